"""What `watch` says beside the table, and how a start that takes over rows is shown."""

import os
import subprocess
from pathlib import Path

import pytest

from pipeline.launch import status
from pipeline.launch.cli import main
from pipeline.launch.status import Job
from pipeline.launch.watch import watch
from pipeline.record.folder import RunFolder
from pipeline.record.metrics import MetricsLog, cut_rows
from tests.slurm.test_status import lines, made, mute_queue, table, trained_to

EVERY = 2.0
CLEAR = "\x1b[H\x1b[J"


def looks(monkeypatch: pytest.MonkeyPatch, folder: RunFolder, least: int) -> None:
    """Let the run finish before look number `least`, and pass over the pauses."""
    seen: list[float] = []

    def wait(seconds: float) -> None:
        if seconds == EVERY:  # and not a wait for the end of squeue
            seen.append(seconds)
        if len(seen) == least - 1:
            folder.mark_finished()

    monkeypatch.setattr("pipeline.launch.watch.time.sleep", wait)


@pytest.mark.parametrize("terminal", [False, True])
def test_what_is_wrong_stays_to_be_read(
    terminal: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """On a terminal, which each look wipes, below the table at every look; elsewhere it is said
    once, of a damaged run as of a queue that does not answer."""
    going = made(tmp_path / "runs", "alibi")
    bad = made(tmp_path / "runs", "rope")
    bad.metrics.write_text("[]\n")
    bad.mark_finished()
    mute_queue(tmp_path, monkeypatch)
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    looks(monkeypatch, going, 4)
    assert watch([tmp_path / "runs"], EVERY)
    said = capsys.readouterr()
    wrong = [
        "note: nothing is known of jobs: fatal: no controller",
        "smoke/rope-L128-s0 is damaged",
    ]
    if not terminal:
        assert [said.err.count(words) for words in wrong] == [1, 1]
        return
    assert said.err == ""
    first, *drawn = said.out.split(CLEAR)
    assert first == "" and len(drawn) == 4
    for one in drawn:
        tabled, _, below = one.partition("\nsmoke/rope-L128-s0   damaged")
        assert tabled and [below.count(words) for words in wrong] == [1, 1]


def test_another_text_of_the_queue_is_said_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, texts = made(tmp_path, "rope"), ["one", "one", "two", "one"]
    monkeypatch.setattr(status, "queue", lambda note: note(texts.pop(0)))
    looks(monkeypatch, folder, 4)
    assert watch([tmp_path], EVERY)
    assert capsys.readouterr().err.split() == ["one", "two"]


def test_status_says_that_the_queue_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made(tmp_path / "runs", "rope")
    mute_queue(tmp_path, monkeypatch)
    assert main(["status", str(tmp_path / "runs")]) == 0
    assert capsys.readouterr().err.count("nothing is known of jobs: fatal: no controller") == 1


def test_a_queue_that_says_something_and_hangs_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came before a timeout is bytes, whatever was asked for."""
    (tmp_path / "squeue").write_text("#!/bin/bash\necho 'retrying' >&2\nexec sleep 60\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    run, said = subprocess.run, list[str]()
    monkeypatch.setattr(subprocess, "run", lambda *a, **how: run(*a, **{**how, "timeout": 1.0}))
    assert status.queue(said.append) is None
    assert said == ["note: nothing is known of jobs: retrying"]


def killed(folder: RunFolder, step: int) -> None:
    """As a kill leaves a run, some seconds ago."""
    trained_to(folder, step)
    then = folder.metrics.stat().st_mtime - 5
    os.utime(folder.metrics, (then, then))


def shown(runs: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (line,) = table(runs, {}, monkeypatch).values()
    return line


@pytest.mark.parametrize("before", [0, 2])
def test_rows_of_before_are_not_the_progress_of_a_start(
    before: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the lock on, past the cut to a checkpoint, until it has written a row itself."""
    folder = made(tmp_path, "rope")
    killed(folder, 15)
    if before:
        lines(folder.restarts, *({"step": 0} for _ in range(before)))
    assert shown(tmp_path, monkeypatch).startswith(
        f"stopped 15/20 2.500 12,346 61% 700 MiB {before}"
    )
    folder.take()
    assert shown(tmp_path, monkeypatch) == f"starting -/20 - - - - {before + 1} - - - -"
    cut_rows(folder.metrics, 4)
    with MetricsLog(folder.restarts) as log:
        log.write({"step": 4})
    now = shown(tmp_path, monkeypatch)
    assert now.startswith("starting 1/20 2.500") and now.split()[7] == str(before + 1)
    with MetricsLog(folder.metrics) as log:
        log.write({"kind": "spike", "step": 5})
    assert shown(tmp_path, monkeypatch).startswith("training 1/20")
    trained_to(folder, 6)
    now = shown(tmp_path, monkeypatch)
    assert now.startswith("training 6/20") and now.split()[7] == str(before + 1)


def test_a_start_that_only_evaluates_takes_no_rows_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made(tmp_path, "rope")
    killed(folder, 20)
    folder.trained.write_text("{}")
    folder.take()
    assert shown(tmp_path, monkeypatch).startswith("evaluating 20/20 2.500 12,346 61% 700 MiB 0 ")
    folder.release()
    lines(folder.submitted, {"job": "7"})
    jobs = {"7": Job("7", "RUNNING", "9:00", "None")}
    found = table(tmp_path, jobs, monkeypatch)
    assert found["smoke/rope-L128-s0"].startswith("starting 20/20 2.500 ")


@pytest.mark.parametrize("file", ["metrics.jsonl", "restarts.jsonl"])
def test_a_row_without_its_step_is_named(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made(tmp_path, "rope")
    trained_to(folder, 5)
    lines(folder.restarts, {"step": 4})
    lines(folder.path / file, {"kind": "spike"})
    assert shown(tmp_path, monkeypatch).startswith("damaged ")
    (words,) = status.status([tmp_path]).damage
    assert f"{file}:1: not a row that a run writes (KeyError('step'))" in words
