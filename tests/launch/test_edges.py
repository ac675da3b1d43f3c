"""Standard streams that are closed, full, unread or of few letters; and what a page has typed."""

import argparse
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.errors import Preempted
from pipeline.launch.checks import say
from pipeline.launch.cli import _ended, main, parse
from pipeline.record.folder import RunFolder
from tests.architecture.tree import ROOT
from tests.report.synthetic import write_run

DEMO = str(ROOT / "configs" / "demo.yaml")
both = pytest.mark.parametrize("buffered", [True, False])
PLAN = ("plan", DEMO, "position=rope")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that `report` takes and `status` shows."""
    monkeypatch.chdir(tmp_path)
    return write_run(tmp_path, "rope")


def broken_pipe(buffered: bool) -> io.TextIOWrapper:
    read, write = os.pipe()
    os.close(read)
    return opened(write, buffered)


def opened(file: str | int, buffered: bool) -> io.TextIOWrapper:
    """A standard stream as Python makes it, without buffers as under PYTHONUNBUFFERED."""
    return (
        open(file, "w") if buffered else io.TextIOWrapper(open(file, "wb", 0), write_through=True)
    )


def unread(*command: str) -> int:
    """How a command ends whose output nobody reads."""
    stream = broken_pipe(buffered=True)
    # not in a fixture: pytest puts its own stream in place before each phase of a test
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "stdout", stream)
        code = main(command)
    stream.close()  # fails where something is still held back
    return code


@pytest.mark.parametrize("command", [("report",), ("status",), ("watch",), PLAN, ("positions",)])
def test_a_command_ends_quietly_where_its_reader_does(
    command: tuple[str, ...], run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = [str(run)] if len(command) == 1 and command != ("positions",) else []
    assert unread(*command, *folder) == 0
    assert (run.parents[1] / "report" / "index.html").exists() == (command == ("report",))
    assert not re.search("Error|Traceback", capsys.readouterr().err)


def test_a_failure_is_one_also_where_nobody_reads(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = write_run(run.parents[1], "t5", config={"experiment": "other", "data": {"source": "b"}})
    (bad / "metrics.jsonl").write_text("{}\n")
    assert unread("report", str(run), str(bad)) == 2
    assert "metrics.jsonl:1: has no `kind`" in capsys.readouterr().err


@both
def test_a_log_that_nobody_reads_is_no_quiet_end(
    buffered: bool, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in `train ... 2>&1 | head`: what is left to do is not done."""
    log = broken_pipe(buffered)
    log.reconfigure(line_buffering=True)
    monkeypatch.setattr("pipeline.launch.submit.submit", lambda *_, **__: say("x"))
    monkeypatch.setattr(sys, "stderr", log)
    with pytest.raises(BrokenPipeError):
        main(["submit", DEMO])
    os.dup2(os.open(os.devnull, os.O_WRONLY), log.fileno())


@both
def test_standard_output_that_is_full_is_named(
    buffered: bool, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    full = opened("/dev/full", buffered)
    monkeypatch.setattr(sys, "stdout", full)
    assert main(["status", str(run)]) == 74
    assert "error: standard output: No space left on device" in capsys.readouterr().err


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_closed_stream_is_no_fault(
    closed: str, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run.parent / "texts").mkdir()
    for number in range(30):
        text = f"a text, number {number}, of some words " * 15
        (run.parent / "texts" / f"{number}.txt").write_text(text)
    data = [f"data.source={run.parent}/texts", "data.vocab=300", "data.tokenizer_bytes=10000"]
    lengths = ["train_length=64", "eval_lengths=[64]", "data.test_fraction=0.3"]
    for command in (
        ["watch", str(run)],
        ["prepare", DEMO, "position=rope", *data, *lengths, "data.validation_fraction=0.2"],
    ):
        monkeypatch.setattr(sys, closed, None)
        assert main(command) == 0


def test_closed_streams_are_open_for_ranks_and_no_file_takes_their_place(tmp_path: Path) -> None:
    script = """if True:
        import os, subprocess, sys
        from pipeline.launch.cli import main
        main(["positions"])
        with open("file", "w") as file:
            taken = file.fileno() < 3
        rank = "import sys; sys.exit(50 + (None in (sys.stdin, sys.stdout, sys.stderr)))"
        os._exit(2 if taken else subprocess.run([sys.executable, "-c", rank]).returncode)
    """
    shell = f"cd {tmp_path}; {sys.executable} -c '{script}' <&- >&- 2>&-"
    path = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.run(["bash", "-c", shell], env=path).returncode == 50


def test_letters_that_a_terminal_lacks_are_replaced(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(held, encoding="ascii"))
    assert main(["report", str(run)]) == 0
    assert re.search(rb"rope .*\d\.\d{3} \? 0\.\d{3}", held.getvalue())


@pytest.mark.parametrize("what", ["file", "link"])
def test_what_is_no_folder_is_refused_before_the_text_is_read(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "runs" / "fl" / "rope-L128-s0"
    place.parent.mkdir(parents=True)
    place.touch() if what == "file" else place.symlink_to("nowhere")
    asked = ["position=rope", "experiment=fl", "data.source=absent.txt"]
    assert main(["train", DEMO, *asked]) == 74
    assert f"{RunFolder(place).path.name} is a file, or a link" in capsys.readouterr().err


def commands(page: Path) -> list[str]:
    """The lines of a page that call `python -m pipeline`, and its ways to give options to sbatch,
    without the values that a reader is to fill in."""
    text = page.read_text()
    found = re.findall(r"^python -m pipeline (.*)$|`python -m pipeline ([a-z]+ [^`]*)`", text, re.M)
    options = re.findall(r"`(--sbatch[^`]*)`", text)
    return ["".join(one) for one in found] + [f"submit CONFIG {option}" for option in options]


def test_commands_of_the_page_on_slurm_are_understood() -> None:
    found = commands(ROOT / "slurm" / "README.md")
    assert len(found) >= 7 and sum("--sbatch" in one for one in found) == 2
    for command in found:
        asked = parse(shlex.split(command))
        if "--sbatch" in command:
            assert asked.sbatch.startswith("--") and asked.sbatch in command


def test_being_stopped_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Of any command: tests stop as trainings do."""

    def command(arguments: argparse.Namespace) -> int:
        raise Preempted("3 rows of the evaluation")

    assert _ended(command, argparse.Namespace()) == 85
    said = capsys.readouterr().err
    assert said.startswith("stopped as asked after 3 rows of the evaluation;")
