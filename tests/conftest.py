"""One thread per test process: sizes are tiny, and threads that wait for each other are slow.

And what would reach from one test into all that follow it fails the test that leaves it.
"""

import os
import signal
from collections.abc import Iterator

import pytest
import torch

from pipeline.parallel.signals import SIGNALS

RANK = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SLURM_STEP_ID")


def pytest_configure() -> None:
    torch.set_flush_denormal(True)
    torch.set_num_threads(1)
    # a shell lets what it starts in the background ignore it, and with that what tests stop by it
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _asked() -> dict[str, object]:
    """What makes this process a rank, or lets a signal end it."""
    told = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(told)
    handlers = {str(number): signal.getsignal(number) for number in SIGNALS}
    return {**{name: os.environ.get(name) for name in RANK}, **handlers, "wakeup_fd": told}


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    before = _asked()
    yield
    assert _asked() == before, "put back what makes this process a rank"
