"""SIGTERM and SIGUSR1 to a process that starts ranks, while none run."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.launch.commands.listening import stoppable
from pipeline.parallel.signals import SIGNALS
from pipeline.record import marker
from tests.distributed.ranks import ROOT
from tests.launch.made_study import command, write_study

SAID = "\nstopped as asked after what is finished; started again, it goes on from there\n"
SLEEPS = "time.sleep(60)"
# foreign code that no handler of Python can interrupt
WAITS = "lock = ctypes.CDLL(None).pthread_mutex_lock; own = bytes(64); lock(own), lock(own)"
PASSES_ON = """
from pipeline.launch.ranks import _passing_on
from pipeline.launch import ranks
ranks.child_sessions = lambda: [os.getppid()]
ranks.os.kill = lambda *_: None
with _passing_on() as asked:
    print("ready", flush=True)
    while not asked: time.sleep(0.01)
sys.exit(40)
"""


def stopped(program: str, number: int, **more: str) -> tuple[int, str]:
    """Exit code and errors of a program that gets a signal once it has said that it is ready."""
    with subprocess.Popen(
        [sys.executable, "-c", f"import ctypes, os, sys, time\n{program}"],
        cwd=ROOT,
        env={**os.environ, **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            while (line := process.stdout.readline()) != "ready\n":
                assert line, process.stderr.read()
            process.send_signal(number)
            _, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    return process.returncode, errors


def within(work: str, ready: str = 'print("ready", flush=True)') -> str:
    inner = "\n".join(f"    {line}" for line in [ready, *work.strip().splitlines()])
    return f"from pipeline.launch.commands.listening import stoppable\nwith stoppable():\n{inner}"


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("work", [SLEEPS, WAITS])
def test_it_ends_in_one_line(number: int, work: str, tmp_path: Path) -> None:
    told = tmp_path / "marker"
    code, errors = stopped(within(work), number, **{marker.MARKER: str(told)})
    assert (code, errors) == (85, SAID)
    assert told.read_text() == "85 after what is finished\n"


@pytest.mark.parametrize("number", SIGNALS)
def test_while_ranks_run_it_is_theirs(number: int) -> None:
    assert stopped(within(PASSES_ON, ready="pass"), number) == (40, "")


@pytest.mark.parametrize("variables", [{}, {"RANK": "0", "WORLD_SIZE": "2"}])
def test_signals_are_as_before_when_it_is_done_and_in_ranks(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    before = [signal.getsignal(number) for number in SIGNALS]
    with stoppable():
        within_it = [signal.getsignal(number) for number in SIGNALS]
        assert (within_it == before) == bool(variables)
    assert [signal.getsignal(number) for number in SIGNALS] == before
    assert signal.set_wakeup_fd(-1) == -1


def test_preparation_that_was_stopped_is_made_again(tmp_path: Path) -> None:
    study = write_study(tmp_path, "rope")
    program = f"""
from pipeline.data import prepare
def build(config, source, sha256, survey, folder):
    (folder / "half").write_text("")
    print("ready", flush=True)
    time.sleep(60)
prepare._build = build
from pipeline.launch.cli import main
sys.exit(main(["train", {str(study)!r}]))
"""
    code, errors = stopped(program, signal.SIGTERM)
    assert code == 85 and errors.endswith(SAID)
    assert not (tmp_path / "runs").exists()
    (half,) = (tmp_path / "prepared").iterdir()
    assert half.suffix == ".partial"
    command("-m", "pipeline", "prepare", study)
    (whole,) = (tmp_path / "prepared").iterdir()
    assert (whole / "manifest.json").is_file() and not (whole / "half").exists()
