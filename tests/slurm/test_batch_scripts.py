"""The batch scripts, run by bash with stand-ins for scontrol and srun that record their calls."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.architecture.tree import ROOT

ALLOCATION = ["trainer.nodes=2", "trainer.processes=4", "trainer.threads=8"]


class Job:
    """One job of 2 nodes x 4 tasks x 8 CPUs; `env` may be changed before `run`."""

    def __init__(self, folder: Path) -> None:
        programs, self.seen = folder / "programs", folder / "seen"
        (folder / "venv" / "bin").mkdir(parents=True)
        (folder / "venv" / "bin" / "activate").touch()
        programs.mkdir()
        self.seen.mkdir()
        _program(programs / "scontrol", f'echo "$*" > {self.seen}/scontrol; echo node7; echo node8')
        arguments = f"printf '%s\\n' \"$@\" > {self.seen}/srun"
        _program(programs / "srun", f"{arguments}; env > {self.seen}/env; exit ${{SRUN_CODE:-0}}")
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

    def srun(self) -> list[str]:
        return (self.seen / "srun").read_text().splitlines()

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
            "evaluate.sbatch",
            ["runs/x/rope-L128-s0"],
            ["-m", "pipeline", "evaluate", "runs/x/rope-L128-s0", *ALLOCATION],
        ),
        (
            "smoke.sbatch",
            [],
            ["train.py", "configs/smoke.yaml", "runs=build/smoke-1234567", *ALLOCATION],
        ),
    ],
)
def test_each_rank_runs(job: Job, script: str, arguments: list[str], python: list[str]) -> None:
    job.env["SLURM_ARRAY_TASK_ID"] = "3"
    done = job.run(script, *arguments)
    assert done.returncode == 0, done.stderr
    assert job.srun() == ["--kill-on-bad-exit=1", "python", *python]


def test_ranks_meet_on_the_first_host_at_a_port_of_their_job(job: Job) -> None:
    job.run("train.sbatch", "configs/demo.yaml")
    env = job.rank_env()
    assert (job.seen / "scontrol").read_text().split() == ["show", "hostnames", "node[7-8]"]
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
    assert not (job.seen / "srun").exists()


def test_the_settings_that_the_scripts_hand_over_exist() -> None:
    handed = re.findall(r"trainer\.(\w+)=", (ROOT / "slurm" / "job.sh").read_text())
    base = yaml.safe_load((ROOT / "configs" / "base.yaml").read_text())
    assert handed and set(handed) <= base["trainer"].keys()
    assert (ROOT / "configs" / "smoke.yaml").is_file()


def _program(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/bash\n{body}\n")
    path.chmod(0o755)
