"""An evaluation that is killed goes on where it was, after training and when given again."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pipeline.record.metrics import read_rows
from tests.distributed.ranks import ROOT
from tests.launch.made_study import command, write_study

pytestmark = pytest.mark.distributed

ONE = ("trainer.processes=1", "trainer.sequence_parallel=1")


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a study whose one run is finished."""
    path: Path = write_study(tmp_path_factory.mktemp("resumed"), "rope")
    command("train.py", path, *ONE)
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def break_off(run: Path, rows: int) -> None:
    """Leave a run as a kill leaves it that comes after so many rows of its evaluation."""
    whole = run / "evaluation" / "rows.jsonl"
    lines = whole.read_bytes().splitlines(keepends=True)
    whole.unlink()
    whole.with_name("rows.jsonl.partial").write_bytes(b"".join(lines[:rows]) + lines[rows][:20])
    for line in lines[rows:]:
        name = json.loads(line).get("values")
        if name is not None:
            (whole.parent / "values" / name).unlink()
    for name in ("finished", "summary.json"):
        (run / name).unlink()


def test_a_run_killed_in_its_evaluation_is_finished_without_training_again(study: Path) -> None:
    run = study.parent / "runs" / "path" / "rope-L33-s0"
    before = contents(run)
    stamps = {p: p.stat().st_mtime_ns for p in (run / "evaluation" / "values").iterdir()}
    break_off(run, 5)
    kept = {p for p in stamps if p.exists()}
    assert len(kept) == 5
    said = command("train.py", study, *ONE).stderr
    assert "goes on with its evaluation" in said
    before, after = (
        {name: what for name, what in found.items() if not name.startswith("report")}
        for found in (before, contents(run))
    )
    summary = json.loads(after.pop("summary.json"))
    expected = json.loads(before.pop("summary.json"))
    assert summary.pop("evaluate_seconds") is None and expected.pop("evaluate_seconds") > 0
    assert summary == expected
    assert after == before
    assert all(p.stat().st_mtime_ns == stamps[p] for p in kept)


def test_a_killed_evaluate_goes_on(study: Path) -> None:
    """By SIGKILL at some row, as the batch system does it; the lock of the dead does not count."""
    run = study.parent / "runs" / "path" / "rope-L33-s0"
    settings = ("extension=interpolation", "extension.scale=4", "evaluate.batch_tokens=1")
    folder = run / "evaluation" / "interpolation-scale=4"
    command("-m", "pipeline", "evaluate", run, *settings)
    whole = contents(folder)
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    process = subprocess.Popen(
        [sys.executable, "-m", "pipeline", "evaluate", str(run), *settings],
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    partial = folder / "rows.jsonl.partial"
    until = time.monotonic() + 120
    while not (partial.is_file() and partial.read_bytes().count(b"\n") >= 2):
        assert time.monotonic() < until and process.poll() is None
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    time.sleep(0.5)  # the ranks die with their parent
    done = read_rows(partial)
    assert 2 <= len(done) < 13
    stamps = {
        p: p.stat().st_mtime_ns
        for p in (folder / "values" / row["values"] for row in done if "values" in row)
    }
    command("-m", "pipeline", "evaluate", run, *settings)
    assert contents(folder) == whole
    assert all(p.stat().st_mtime_ns == when for p, when in stamps.items())


def test_a_run_that_another_job_writes_is_not_tested(study: Path) -> None:
    run = study.parent / "runs" / "path" / "rope-L33-s0"
    holder: dict[str, Any] = {"host": "elsewhere", "pid": 1}
    (run / "lock").write_text(json.dumps(holder))
    try:
        refused = command("-m", "pipeline", "evaluate", run, "extension=log_n", expect=74)
    finally:
        (run / "lock").unlink()
    assert "is being written by process 1 on elsewhere" in refused.stderr
    assert not (run / "evaluation" / "log_n").exists()
