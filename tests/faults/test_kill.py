"""A run that is killed at random instants, and started again by the same command, ends as one that
never was: same weights and same rows, and no checkpoint is ever lost."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
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
STEPS = 24
TIMES = ("seconds", "tokens_per_second")
RUN = Path("path") / "rope-L33-s0"


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a study whose one run is finished, below `whole`."""
    file: Path = write_study(tmp_path_factory.mktemp("killed"), "rope")
    command("train.py", file, *settings(file.parent / "whole", 1))
    return file


def settings(runs: Path, processes: int) -> list[str]:
    return [
        f"runs={runs}",
        f"trainer.max_steps={STEPS}",
        "trainer.save_every=2",
        "trainer.evaluate_every=8",
        "trainer.threads=1",
        f"trainer.processes={processes}",
        f"trainer.sequence_parallel={processes}",
    ]


@contextlib.contextmanager
def started(file: Path, runs: Path, processes: int) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "train.py", str(file), *settings(runs, processes)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def ranks_of(process: subprocess.Popen[bytes]) -> list[int]:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    found = []
    for child in map(int, children.split()):
        with contextlib.suppress(OSError):
            if b"pipeline.launch.rank" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(child)
    return found


def wait_for_a_save(process: subprocess.Popen[bytes], checkpoints: Path) -> None:
    """Until a checkpoint comes that was not there."""
    before = set(checkpoints.glob("step-*"))
    until = time.monotonic() + 240
    while process.poll() is None and not set(checkpoints.glob("step-*")) - before:
        assert time.monotonic() < until
        time.sleep(0.001)


def kill(process: subprocess.Popen[bytes], draw: random.Random, run: Path, began: float) -> None:
    """At any time of the whole, or soon after a save begins; all of it, or one rank alone."""
    if draw.random() < 0.3:
        time.sleep(draw.uniform(0.0, began))
    else:
        wait_for_a_save(process, run / "checkpoints")
        time.sleep(draw.expovariate(8.0))
    ranks = ranks_of(process) if process.poll() is None else []
    if ranks and draw.random() < 0.4:
        with contextlib.suppress(ProcessLookupError):
            os.kill(draw.choice(ranks), signal.SIGKILL)
        process.wait(timeout=240)
    else:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        time.sleep(0.3)  # the ranks die with their parent


def good(run: Path) -> int:
    found = find_state(run / "checkpoints")
    return 0 if found is None else int(found.manifest["step"])


def rows(run: Path) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in row.items() if key not in TIMES}
        for row in read_rows(run / "metrics.jsonl")
    ]


@pytest.mark.parametrize(("processes", "kills"), [(1, KILLS - KILLS // 4), (2, KILLS // 4)])
def test_a_run_killed_again_and_again_ends_as_if_it_never_was(
    processes: int, kills: int, study: Path
) -> None:
    draw, runs = random.Random(processes), study.parent / f"killed-{processes}"
    run, newest, hit, began = runs / RUN, 0, 0, 8.0
    for _ in range(kills):
        start = time.monotonic()
        with started(study, runs, processes) as process:
            kill(process, draw, run, began)
            assert process.returncode != 0 or (run / "finished").exists()
        hit += process.returncode != 0
        began = min(began, time.monotonic() - start) if hit > 1 else began
        if (run / "finished").exists():  # killed too late: once more from the start
            same(study, run, processes)
            shutil.rmtree(runs)
            newest = 0
            continue
        if not (run / "trained.json").exists() and (run / "checkpoints").exists():
            assert good(run) >= newest, "a good checkpoint was lost"
            newest = good(run)
            held = [p for p in (run / "checkpoints").iterdir() if p.is_dir()]
            assert len(held) <= 3
    command("train.py", study, *settings(runs, processes))
    assert hit >= kills * 0.8
    same(study, run, processes)


def same(study: Path, run: Path, processes: int) -> None:
    whole = study.parent / "whole" / RUN
    (one, _), (other, _) = (
        load_export(path / "checkpoints" / f"step-{STEPS}") for path in (whole, run)
    )
    assert [p.name for p in (run / "checkpoints").iterdir()] == [f"step-{STEPS}"]
    if processes == 1:
        assert rows(run) == rows(whole)
        assert all(torch.equal(one[name], other[name]) for name in one)
    else:
        for row, expected in zip(rows(run), rows(whole), strict=True):
            assert (row["kind"], row["step"]) == (expected["kind"], expected["step"])
            assert row["loss"] == pytest.approx(expected["loss"], abs=1e-4)
