"""A study whose runs are jobs of the cluster, and what can happen to these."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from pipeline.checkpoint.export import load_export
from pipeline.record.metrics import read_rows
from tests.distributed.ranks import ROOT
from tests.launch.made_study import write_study

TIMES = ("seconds", "tokens_per_second", "mfu", "peak_memory_bytes")
SHORT = ("--time=10", "--gpus-per-node=1", "--mem=0")


def wait_for(what: Callable[[], object], seconds: float = 90.0) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.1)


class Study:
    """Runs of `steps` steps below `folder`, from where they are submitted."""

    def __init__(
        self, folder: Path, positions: str, steps: int, processes: int = 1, **environment: str
    ) -> None:
        self.folder, self.steps, self.given = folder, steps, environment
        self.file = write_study(folder, positions)
        self.settings = [
            f"trainer.max_steps={steps}",
            "trainer.log_every=1",
            f"trainer.evaluate_every={steps // 2}",
            "trainer.save_every=50",
            "wandb.mode=auto",
            f"trainer.processes={processes}",
            "trainer.threads=1",
        ]

    def python(self, *arguments: object, **environment: str) -> str:
        done = subprocess.run(
            [sys.executable, *map(str, arguments)],
            cwd=self.folder,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @property
    def environment(self) -> dict[str, str]:
        own = {"PYTHONPATH": str(ROOT), "FARSIGHT_VENV": sys.prefix, "WANDB_MODE": "offline"}
        return {**os.environ, **own, **self.given}

    def submit(self, *more: str, sbatch: Sequence[str] = ()) -> str:
        """Submit by our own command; returns the number of the job."""
        options = "=".join(["--sbatch", " ".join([*SHORT, *sbatch])])
        said = self.python("-m", "pipeline", "submit", self.file, *self.settings, *more, options)
        found = re.match(r"job (\d+): ", said)
        assert found, said
        return found[1]

    def sbatch(self, run: Path) -> str:
        """Submit a run folder by hand; returns the number of the job."""
        script = str(ROOT / "slurm" / "train.sbatch")
        shape = ("--ntasks-per-node=1", "--cpus-per-task=1")
        command = ["sbatch", "--parsable", *shape, *SHORT, script, str(run)]
        env = {**self.environment, "FARSIGHT_CODE": str(ROOT)}
        done = subprocess.run(
            command, cwd=self.folder, env=env, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def status(self) -> str:
        return self.python("-m", "pipeline", "status", self.folder / "runs")

    def run(self, position: str = "rope") -> Path:
        return self.folder / "runs" / "path" / f"{position}-L33-s0"

    def rows(self, position: str = "rope") -> list[dict[str, Any]]:
        """The training rows so far, without times."""
        path = self.run(position) / "metrics.jsonl"
        found = read_rows(path) if path.is_file() else []
        return [{k: v for k, v in row.items() if k not in TIMES} for row in found]

    def restarts(self, position: str = "rope") -> list[int]:
        path = self.run(position) / "restarts.jsonl"
        return [row["step"] for row in read_rows(path)] if path.is_file() else []

    def reach(self, step: int, position: str = "rope") -> None:
        """Wait until a run has come that far."""
        wait_for(lambda: any(row["step"] >= step for row in self.rows(position)[-1:]))

    def finish(self, job: str) -> str:
        """Wait until a job has ended; returns its log."""
        wait_for(lambda: fact(job, "JobState") not in ("PENDING", "RUNNING", "COMPLETING"), 180.0)
        logs = sorted(self.folder.glob(f"slurm-*-{job}.out"))
        return "".join(log.read_text() for log in logs)


def scontrol(*arguments: str) -> None:
    subprocess.run(["scontrol", *arguments], check=True)


def fact(job: str, key: str) -> str:
    """What SLURM says of a job, or of one task of an array."""
    done = subprocess.run(["scontrol", "show", "job", "-o", job], capture_output=True, text=True)
    found = re.search(rf"\b{key}=(\S*)", done.stdout)
    return found[1] if found else ""


def signal_job(job: str, name: str, *more: str) -> None:
    """To all processes of the step of a job, as SLURM does it."""
    subprocess.run(["timeout", "2", "scancel", f"--signal={name}", *more, f"{job}.0"], check=False)


def same(one: Study, other: Study, position: str = "rope") -> None:
    """Weights and rows of a run, without times, are those of another study, bit for bit."""
    assert one.rows(position) == other.rows(position)
    steps = [row["step"] for row in one.rows(position) if row["kind"] == "train"]
    assert steps == list(range(1, one.steps + 1))
    (found, _), (wanted, _) = (
        load_export(study.run(position) / "checkpoints" / f"step-{one.steps}")
        for study in (one, other)
    )
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    tested = [
        [{k: v for k, v in row.items() if "sha256" not in k or k == "weights_sha256"}
         for row in read_rows(study.run(position) / "evaluation" / "rows.jsonl")]
        for study in (one, other)
    ]  # fmt: skip
    assert tested[0] == tested[1]
