"""Signals set a flag and do nothing else, in the process that listens and in no other."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from pipeline.parallel.signals import SIGNALS, ignore_stops, stops_held
from pipeline.parallel.stop import StopRequest
from tests.distributed.ranks import ROOT


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_signal_sets_the_flag_and_nothing_else(number: int) -> None:
    stop = StopRequest()
    stop.listen()
    assert stop.agreed() == 0
    os.kill(os.getpid(), number)
    assert stop.agreed() == stop.signal == number


def test_what_took_the_signals_since_gives_them_back() -> None:
    stop = StopRequest()
    stop.listen()
    signal.signal(signal.SIGTERM, lambda *_: pytest.fail("another handler"))
    stop.listen()
    os.kill(os.getpid(), signal.SIGTERM)
    assert stop.signal == signal.SIGTERM


def in_child(work: str) -> int:
    """The exit code of a forked child of a process that listens, after it got both signals."""
    program = f"""
import os, signal, sys
from pipeline.parallel.signals import ignore_stops
from pipeline.parallel.stop import StopRequest
stop = StopRequest()
stop.listen()
if (child := os.fork()) == 0:
    {work}
    os.kill(os.getpid(), signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGTERM)
    os._exit(40 + stop.signal)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT).returncode


def test_a_child_that_was_just_forked_outlives_the_signals_without_a_flag() -> None:
    assert in_child("pass") == 40


def test_a_loader_process_ignores_the_signals() -> None:
    assert in_child("ignore_stops(0)") == 40
    ignore_stops(0)
    assert all(signal.getsignal(number) is signal.SIG_IGN for number in SIGNALS)


def test_what_is_started_while_signals_are_held_never_hears_them() -> None:
    stop = StopRequest()
    stop.listen()
    with stops_held():
        child = subprocess.Popen(["sleep", "60"])
        # to this thread: another one, of a library, may take what is sent to the process
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        assert stop.signal == 0
    assert stop.agreed() == signal.SIGUSR1
    for number in SIGNALS:
        child.send_signal(number)
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.5)
    child.kill()
    assert child.wait(10) == -signal.SIGKILL
