"""Programs that run until they get a signal, as processes of their own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.checkpoint.state import find_state
from tests.distributed.ranks import ROOT
from tests.faults.test_hang import ENVIRONMENT, left_after, processes_with
from tests.launch.made_study import write_study

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2")
STEPS = 100_000
LAUNCH = """
import sys
from pipeline.errors import FarsightError
from pipeline.launch.ranks import start_ranks
from tests.distributed.toy import toy_config
try:
    start_ranks(toy_config("rope", processes=2), "timeit", ["-s", *sys.argv[1:]])
except FarsightError as error:
    sys.exit(f"{error.exit_code}: {error}")
"""
SLEEP = "import time; time.sleep(600)"


@contextmanager
def launched(
    tag: str, work: str = SLEEP, before: tuple[str, ...] = ()
) -> Iterator[subprocess.Popen[str]]:
    """Two ranks of our launcher, both there, that do `work`, which knows nothing of signals; the
    launcher is started by the command `before`."""
    launcher = subprocess.Popen(
        [*before, sys.executable, "-c", LAUNCH, f"{work} # {tag}"],
        cwd=ROOT, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    end = time.monotonic() + 120.0
    try:
        while len(processes_with(tag)) < 3:
            assert launcher.poll() is None and time.monotonic() < end
            time.sleep(0.05)
        yield launcher
    finally:
        launcher.kill()
        with launcher:  # closes its pipe and waits for it
            pass


@dataclass
class Training:
    """Two ranks that train in `folder`, under our launcher or what `start` puts before it."""

    folder: Path
    start: tuple[str, ...] = ()

    def __enter__(self) -> "Training":
        self.study = write_study(self.folder, "rope")
        self.run = self.folder / "runs" / "path" / "rope-L33-s0"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, *self.start, "train.py", str(self.study), *self.settings()],
                cwd=ROOT,
                env={**ENVIRONMENT, "WANDB_MODE": "offline"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        return self

    def __exit__(self, *error: object) -> None:
        for process in processes_with(str(self.folder)):
            os.kill(process, signal.SIGKILL)
        self.process.wait(60)

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def settings(self) -> list[str]:
        return [
            *(f"trainer.max_steps={STEPS}", f"trainer.save_every={STEPS}", "trainer.log_every=1"),
            *("trainer.processes=2", "trainer.sequence_parallel=2", "trainer.threads=1"),
            f"trainer.evaluate_every={STEPS}",
        ]

    def ranks(self) -> list[int]:
        """The process ids of both ranks, once they are there."""
        found: list[int] = []

        def both() -> bool:
            children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
            found[:] = map(int, children.read_text().split())
            return len(found) == 2

        self.until(both)
        return found

    def trains(self) -> None:
        """Return when it has made some steps."""
        metrics = self.run / "metrics.jsonl"
        self.until(lambda: metrics.is_file() and metrics.read_text().count("\n") > 3)

    def until(self, told: Callable[[], bool]) -> None:
        end = time.monotonic() + 120.0
        while not told():
            assert self.process.poll() is None and time.monotonic() < end, self.log.read_text()
            time.sleep(0.05)

    def left(self, seconds: float = 30.0) -> list[int]:
        return left_after(str(self.folder), seconds)

    def saved_steps(self) -> int:
        found = find_state(self.run / "checkpoints")
        return 0 if found is None else int(found.manifest["step"])

    def locked(self) -> bool:
        return any("lock" in path.name for path in self.run.iterdir())
