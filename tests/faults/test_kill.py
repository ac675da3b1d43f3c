"""A run that is killed at random instants, and started again by the same command, ends as one that
never was: same weights and same rows, bit for bit, and no checkpoint is ever lost.

`FARSIGHT_KILLS=N` in the environment kills N times in all, a quarter of them with two ranks; the
project asks for 100, which took 38 minutes on two busy cores. `pytest -s` then says
what the kills hit.
"""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.checkpoint.export import load_export
from pipeline.checkpoint.state import find_state
from pipeline.record.metrics import read_rows
from tests.distributed.ranks import ROOT
from tests.launch.made_study import command, write_study

pytestmark = [pytest.mark.slow, pytest.mark.distributed]

KILLS = int(os.environ.get("FARSIGHT_KILLS", "12"))
STEPS, SAVE_EVERY, KEEP = 24, 2, 2
TIMES = ("seconds", "tokens_per_second", "mfu", "peak_memory_bytes")
RUN = Path("path") / "rope-L33-s0"


def settings(runs: Path, processes: int) -> list[str]:
    return [
        f"runs={runs}",
        f"trainer.max_steps={STEPS}",
        f"trainer.save_every={SAVE_EVERY}",
        f"trainer.keep={KEEP}",
        "trainer.log_every=1",
        "trainer.evaluate_every=8",
        "trainer.threads=1",
        f"trainer.processes={processes}",
        f"trainer.sequence_parallel={processes}",
    ]


@dataclass
class Killed:
    """One run of a study, on so many ranks, beside one that nobody kills."""

    study: Path
    processes: int

    @property
    def runs(self) -> Path:
        return self.study.parent / f"killed-{self.processes}"

    @property
    def run(self) -> Path:
        return self.runs / RUN

    @property
    def whole(self) -> Path:
        return self.study.parent / f"whole-{self.processes}" / RUN

    def train_whole(self) -> float:
        """Seconds of the command that trains the run nobody kills."""
        began = time.monotonic()
        command("train.py", self.study, *settings(self.whole.parents[1], self.processes))
        return time.monotonic() - began

    @contextlib.contextmanager
    def started(self, *launcher: str) -> Iterator[subprocess.Popen[bytes]]:
        """The command that trains, and is killed in the end if it still runs."""
        words = (*launcher, "train.py", str(self.study), *settings(self.runs, self.processes))
        with (self.study.parent / "said").open("wb") as said:
            process = subprocess.Popen(
                [sys.executable, *words],
                cwd=ROOT,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def said(self) -> str:
        """The last words of the command that was started last."""
        return (self.study.parent / "said").read_text(errors="replace")[-2000:]

    def phase(self) -> str:
        """What a kill has just hit, as far as the folder tells."""
        if not self.run.exists():
            return "start"
        if (self.run / "finished").exists():
            return "end"
        if (self.run / "trained.json").exists():
            return "evaluation"
        if list((self.run / "checkpoints").glob("*.partial")):
            return "writing or deleting a checkpoint"
        return "between checkpoints"


def ranks_of(process: subprocess.Popen[bytes], word: bytes = b"pipeline.launch.rank") -> list[int]:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    found = []
    for child in map(int, children.split()):
        with contextlib.suppress(OSError):
            if word in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(child)
    return found


def wait_for_a_save(process: subprocess.Popen[bytes], checkpoints: Path) -> None:
    """Until a checkpoint comes that was not there."""
    before = set(checkpoints.glob("step-*"))
    until = time.monotonic() + 240
    while process.poll() is None and not set(checkpoints.glob("step-*")) - before:
        assert time.monotonic() < until
        time.sleep(0.001)


def kill(process: subprocess.Popen[bytes], draw: random.Random, run: Path, seconds: float) -> bool:
    """At any time of the whole, or soon after a save begins; all of it, or one rank alone.

    Returns whether it still lived: then nothing but the kill ended it.
    """
    if draw.random() < 0.3:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(draw.uniform(0.0, seconds))
    else:
        wait_for_a_save(process, run / "checkpoints")
        # a save of this run takes some milliseconds
        time.sleep(draw.expovariate(draw.choice((8.0, 200.0))))
    if process.poll() is not None:
        return False
    ranks = ranks_of(process)
    if ranks and draw.random() < 0.4:
        with contextlib.suppress(ProcessLookupError):
            os.kill(draw.choice(ranks), signal.SIGKILL)
        process.wait(timeout=240)
    else:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        time.sleep(0.3)  # the ranks die with their parent
    return process.returncode != 0


def good(run: Path) -> int:
    """The step that training would go on from."""
    found = find_state(run / "checkpoints")
    return 0 if found is None else int(found.manifest["step"])


def rows(run: Path) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in row.items() if key not in TIMES}
        for row in read_rows(run / "metrics.jsonl")
    ]


def nothing_lost(run: Path, newest: int) -> int:
    """The step to go on from: not before one there was, at most `save_every` before the end."""
    step = good(run)
    done = max((row["step"] for row in rows(run)), default=0)
    assert step >= newest, "a good checkpoint was lost"
    assert done - step <= SAVE_EVERY, "more steps were lost than lie between two checkpoints"
    assert len([path for path in (run / "checkpoints").iterdir() if path.is_dir()]) <= KEEP + 1
    return step


@pytest.mark.parametrize(("processes", "kills"), [(1, KILLS - KILLS // 4), (2, KILLS // 4)])
def test_a_run_killed_again_and_again_ends_as_if_it_never_was(
    processes: int, kills: int, tmp_path: Path
) -> None:
    killed = Killed(write_study(tmp_path, "rope"), processes)
    seconds = killed.train_whole()
    draw, newest, finished = random.Random(processes), 0, 0
    hits: Counter[str] = Counter()
    while hits.total() < kills:
        with killed.started() as process:
            hit = kill(process, draw, killed.run, seconds)
        if hit:
            hits[killed.phase()] += 1
        else:
            assert process.returncode == 0, killed.said()
        if (killed.run / "finished").exists():  # once more from the start
            same(killed)
            shutil.rmtree(killed.runs)
            finished, newest = finished + 1, 0
            continue
        if not (killed.run / "trained.json").exists() and (killed.run / "checkpoints").exists():
            newest = nothing_lost(killed.run, newest)
    command("train.py", killed.study, *settings(killed.runs, processes))
    same(killed)
    print(f"\n{processes} ranks: {dict(hits)}; {finished + 1} runs, all equal to the whole one")


def test_a_run_of_torchrun_goes_on_by_the_same_command(tmp_path: Path) -> None:
    """One of its ranks is killed, with whom it ends the other; all as under our own start."""
    killed = Killed(write_study(tmp_path, "rope"), 2)
    killed.train_whole()
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
    with killed.started(*torchrun) as process:
        wait_for_a_save(process, killed.run / "checkpoints")
        wait_for_a_save(process, killed.run / "checkpoints")
        os.kill(ranks_of(process, b"train.py")[1], signal.SIGKILL)
        process.wait(timeout=120)
    assert process.returncode == 1 and not (killed.run / "trained.json").exists()
    assert nothing_lost(killed.run, 2) >= 2
    with killed.started(*torchrun) as process:
        assert process.wait(timeout=240) == 0, killed.said()
    assert "goes on from step-" in killed.said()
    same(killed)


def same(killed: Killed) -> None:
    """Bit for bit: the ranks of one world add in one order."""
    one, other = (
        load_export(run / "checkpoints" / f"step-{STEPS}")[0] for run in (killed.whole, killed.run)
    )
    assert [p.name for p in (killed.run / "checkpoints").iterdir()] == [f"step-{STEPS}"]
    assert rows(killed.run) == rows(killed.whole)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
