"""The batch scripts, run by bash with stand-ins for the programs they call, which record it."""

import re
import shutil
import socket
from pathlib import Path

import pytest

from pipeline.launch.cli import main
from tests.architecture.tree import ROOT
from tests.slurm.batch_job import Job

ALLOCATION = ["trainer.nodes=2", "trainer.processes=4", "trainer.threads=8"]
SMOKE = "build/smoke-1234567"
SRUN = ["--kill-on-bad-exit=1", "python"]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


@pytest.mark.parametrize(
    ("script", "arguments", "python"),
    [
        (
            "train.sbatch",
            ["configs/long.yaml", "position=alibi"],
            ["configs/long.yaml", "position=alibi", *ALLOCATION],
        ),
        (
            "sweep.sbatch",
            ["configs/compare.yaml", "seed=1"],
            ["configs/compare.yaml", "seed=1", *ALLOCATION, "--task", "3"],
        ),
        (
            "smoke.sbatch",
            [],
            ["configs/smoke.yaml", f"runs={SMOKE}", *ALLOCATION, "--task", "0"],
        ),
    ],
)
def test_each_rank_runs(job: Job, script: str, arguments: list[str], python: list[str]) -> None:
    job.env["SLURM_ARRAY_TASK_ID"] = "3"
    done = job.run(script, *arguments)
    assert done.returncode == 0, done.stderr
    assert job.arguments("srun") == [*SRUN, str(ROOT / "train.py"), *python]


def test_evaluate_runs_on_every_rank(job: Job) -> None:
    done = job.run("evaluate.sbatch", "runs/x/rope-L128-s0", "evaluate.documents=8")
    assert done.returncode == 0, done.stderr
    command = ["-m", "pipeline", "evaluate", "runs/x/rope-L128-s0", "evaluate.documents=8"]
    assert job.arguments("srun") == [*SRUN, *command, *ALLOCATION]


def test_a_task_of_a_list_is_the_run_folder_in_its_line(job: Job, tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("runs/x/a b-L128-s0\nruns/x/alibi-L128-s0\n")
    for task, name in enumerate(("runs/x/a b-L128-s0", "runs/x/alibi-L128-s0")):
        job.env["SLURM_ARRAY_TASK_ID"] = str(task)
        assert job.run("sweep.sbatch", str(tmp_path / "list.txt")).returncode == 0
        assert job.arguments("srun") == [*SRUN, str(ROOT / "train.py"), name, *ALLOCATION]
    job.env["SLURM_ARRAY_TASK_ID"] = "2"
    done = job.run("sweep.sbatch", str(tmp_path / "list.txt"))
    assert done.returncode == 2 and "names 2 run folders" in done.stderr


def test_a_job_that_was_submitted_runs_the_copy_of_the_code(job: Job, tmp_path: Path) -> None:
    copy = tmp_path / "a copy"
    shutil.copytree(ROOT / "slurm", copy / "slurm")
    job.env.update(FARSIGHT_CODE=str(copy), SLURM_SUBMIT_DIR=str(tmp_path))
    assert job.run("train.sbatch", "runs/x/rope-L128-s0").returncode == 0
    assert job.arguments("srun")[len(SRUN)] == str(copy / "train.py")


def test_the_command_line_takes_what_the_scripts_hand_over(
    job: Job, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job.env.update(SLURM_JOB_NUM_NODES="1", SLURM_NTASKS_PER_NODE="2")
    job.run("smoke.sbatch")
    monkeypatch.chdir(ROOT)
    assert main(["train", *job.arguments("srun")[3:], "--dry-run"]) == 0
    assert f"runs: {SMOKE}" in capsys.readouterr().out


README = (ROOT / "slurm" / "README.md").read_text()
COMMANDS = re.findall(r"^sbatch (.*) slurm/(train|sweep)\.sbatch (.*)$", README, re.M)


@pytest.mark.parametrize(("options", "script", "arguments"), COMMANDS)
def test_the_commands_of_the_readme(
    job: Job, monkeypatch: pytest.MonkeyPatch, options: str, script: str, arguments: str
) -> None:
    asked = dict(option.lstrip("-").split("=") for option in options.split())
    job.env["SLURM_JOB_NUM_NODES"] = asked.get("nodes", "1")
    job.env["SLURM_NTASKS_PER_NODE"] = asked["ntasks-per-node"]
    monkeypatch.chdir(ROOT)
    last = int(asked.get("array", "0-0").partition("%")[0].partition("-")[2])
    for task, code in ((last, 0), (last + 1, 2)):
        job.env["SLURM_ARRAY_TASK_ID"] = str(task)
        job.run(f"{script}.sbatch", *arguments.split())
        command = job.arguments("srun")[3:]
        # a job without an array is one run, not a sweep
        whole = [] if script == "sweep" else ["--task", str(task)]
        assert main(["train", *command, *whole, "--dry-run"]) == code


def test_ranks_meet_on_the_first_host_at_a_port_of_their_job(job: Job) -> None:
    job.run("train.sbatch", "configs/demo.yaml")
    env = job.rank_env()
    assert job.arguments("scontrol") == ["show", "hostnames", "node[7-8]"]
    assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("node7", "24567")
    assert (env["SRUN_CPUS_PER_TASK"], env["OMP_NUM_THREADS"]) == ("8", "8")


def test_the_job_fails_with_its_ranks(job: Job) -> None:
    job.env["SRUN_CODE"] = "4"
    assert job.run("train.sbatch", "configs/demo.yaml").returncode == 4


@pytest.mark.parametrize(
    ("script", "arguments", "change", "message"),
    [
        ("train.sbatch", [], {}, "which configuration?"),
        ("evaluate.sbatch", [], {}, "which run folder?"),
        ("train.sbatch", ["c.yaml"], {"SLURM_JOB_ID": "12;rm"}, "no job of SLURM"),
        ("sweep.sbatch", ["configs/demo.yaml"], {}, "--array=0-N"),
        ("train.sbatch", ["c.yaml"], {"SLURM_NTASKS_PER_NODE": ""}, "--ntasks-per-node=N"),
        (
            "train.sbatch",
            ["c.yaml"],
            {"SLURM_NTASKS": "1"},
            "--ntasks=1 does not fit --nodes=2 x --ntasks-per-node=4; "
            "give --ntasks-per-node (and --nodes) only",
        ),
        ("train.sbatch", ["c.yaml"], {"FARSIGHT_VENV": "/nowhere"}, "make install"),
        ("train.sbatch", ["c.yaml"], {"SLURM_SUBMIT_DIR": "/"}, "from the top folder"),
        ("train.sbatch", ["c.yaml"], {"SLURM_SUBMIT_DIR": ""}, "submit this file with sbatch"),
    ],
)
def test_refused_before_any_rank_starts(
    job: Job, script: str, arguments: list[str], change: dict[str, str], message: str
) -> None:
    job.env.update(change)
    done = job.run(script, *arguments)
    assert done.returncode != 0
    assert message in done.stderr
    assert not {"srun", "python"} & {path.name for path in job.seen.iterdir()}


def test_the_tasks_of_the_allocation_are_taken(job: Job) -> None:
    job.env["SLURM_NTASKS"] = "8"
    assert job.run("train.sbatch", "c.yaml").returncode == 0


def test_no_host_is_a_clear_message(job: Job) -> None:
    (Path(job.env["PATH"].split(":")[0]) / "scontrol").write_text("#!/bin/bash\nexit 1\n")
    done = job.run("train.sbatch", "c.yaml")
    assert done.returncode == 2 and "names no host for SLURM_JOB_NODELIST=node[7-8]" in done.stderr


@pytest.mark.skipif(shutil.which("scontrol") is None, reason="SLURM is not installed")
def test_hosts_of_any_names(job: Job, tmp_path: Path) -> None:
    """As SLURM itself spells them out; it needs a configuration, but no cluster, for that."""
    (Path(job.env["PATH"].split(":")[0]) / "scontrol").unlink()
    (tmp_path / "slurm.conf").write_text("ClusterName=none\nSlurmctldHost=none\n")
    job.env.update(SLURM_JOB_NODELIST="n[03,07-09],m1", SLURM_CONF=str(tmp_path / "slurm.conf"))
    done = job.run("train.sbatch", "c.yaml")
    assert done.returncode == 0, done.stderr
    assert job.rank_env()["MASTER_ADDR"] == "n03"


def test_a_port_that_somebody_listens_at_is_left_alone(job: Job) -> None:
    job.env["SLURM_JOB_ID"] = "29998"
    with socket.socket() as one, socket.socket() as other:
        for place, taken in ((29998, one), (29999, other)):
            taken.bind(("127.0.0.1", place))
            taken.listen()
        job.run("train.sbatch", "c.yaml")
    assert job.rank_env()["MASTER_PORT"] == "20000"


def test_ranks_write_to_w_and_b_offline_unless_the_site_says_otherwise(job: Job) -> None:
    job.run("train.sbatch", "c.yaml")
    assert job.rank_env()["WANDB_MODE"] == "offline"
    job.env["WANDB_MODE"] = "online"
    job.run("train.sbatch", "c.yaml")
    assert job.rank_env()["WANDB_MODE"] == "online"
