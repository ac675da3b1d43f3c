"""The batch scripts, run by bash with stand-ins for the programs they call, which record it."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from pipeline.launch.cli import main
from tests.architecture.tree import ROOT

ALLOCATION = ["trainer.nodes=2", "trainer.processes=4", "trainer.threads=8"]
SMOKE = "build/smoke-1234567"


class Job:
    """One job of 2 nodes x 4 tasks x 8 CPUs; `env` may be changed before `run`."""

    def __init__(self, folder: Path) -> None:
        programs, self.seen = folder / "programs", folder / "seen"
        (folder / "venv" / "bin").mkdir(parents=True)
        (folder / "venv" / "bin" / "activate").touch()
        programs.mkdir()
        self.seen.mkdir()
        answers = {
            "scontrol": "echo node7; echo node8",
            "srun": f"env > {self.seen}/env; exit ${{SRUN_CODE:-0}}",
            "python": "",
        }
        for name, answer in answers.items():
            record = f"printf '%s\\n' \"$@\" > {self.seen}/{name}"
            (programs / name).write_text(f"#!/bin/bash\n{record}\n{answer}\n")
            (programs / name).chmod(0o755)
        self.env = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "FARSIGHT_VENV": str(folder / "venv"),
            "SLURM_SUBMIT_DIR": str(ROOT),
            "SLURM_JOB_ID": "1234567",
            "SLURM_JOB_NODELIST": "node[7-8]",
            "SLURM_JOB_NUM_NODES": "2",
            "SLURM_NTASKS_PER_NODE": "4",
            "SLURM_CPUS_PER_TASK": "8",
        }

    def run(self, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["bash", str(ROOT / "slurm" / script), *arguments]
        return subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=60)

    def arguments(self, program: str) -> list[str]:
        return (self.seen / program).read_text().splitlines()

    def rank_env(self) -> dict[str, str]:
        lines = (self.seen / "env").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


@pytest.mark.parametrize(
    ("script", "arguments", "python"),
    [
        (
            "train.sbatch",
            ["configs/long.yaml", "position=alibi"],
            ["train.py", "configs/long.yaml", "position=alibi", *ALLOCATION],
        ),
        (
            "sweep.sbatch",
            ["configs/compare.yaml", "seed=1"],
            ["train.py", "configs/compare.yaml", "seed=1", *ALLOCATION, "--task", "3"],
        ),
        (
            "smoke.sbatch",
            [],
            ["train.py", "configs/smoke.yaml", f"runs={SMOKE}", *ALLOCATION, "--task", "0"],
        ),
    ],
)
def test_each_rank_runs(job: Job, script: str, arguments: list[str], python: list[str]) -> None:
    job.env["SLURM_ARRAY_TASK_ID"] = "3"
    done = job.run(script, *arguments)
    assert done.returncode == 0, done.stderr
    assert job.arguments("srun") == ["--kill-on-bad-exit=1", "python", *python]


def test_evaluate_starts_its_own_ranks_on_one_node(job: Job) -> None:
    job.env["SLURM_JOB_NUM_NODES"] = "1"
    done = job.run("evaluate.sbatch", "runs/x/rope-L128-s0", "evaluate.documents=8")
    assert done.returncode == 0, done.stderr
    expected = ["-m", "pipeline", "evaluate", "runs/x/rope-L128-s0", "evaluate.documents=8"]
    assert job.arguments("python") == [*expected, "trainer.processes=4", "trainer.threads=8"]
    assert not (job.seen / "srun").exists()


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
        ("evaluate.sbatch", ["runs/x"], {}, "on one node"),
        ("sweep.sbatch", ["configs/demo.yaml"], {}, "--array=0-N"),
        ("train.sbatch", ["c.yaml"], {"SLURM_NTASKS_PER_NODE": ""}, "--ntasks-per-node=N"),
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
