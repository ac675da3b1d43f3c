"""The signals by which SLURM asks a job to stop, kept from processes that are to go on."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGUSR1, signal.SIGTERM)


@contextmanager
def stops_held() -> Iterator[None]:
    """What is started in here never hears the signals; this thread hears them afterwards, and other
    threads of this process at once."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_stops(worker: int) -> None:
    """For loader processes, which get every signal that their rank gets: outlive it, since the
    rank needs them to come to the end of its step. They end with their rank."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
