"""One thread per test process: sizes are tiny, and threads that wait for each other are slow.

What would reach from one test into all that follow it fails the test that leaves it.
`FARSIGHT_SLOW=N` in the environment leaves of the files with slow tests those of tests/slurm and N
others, other ones at every commit.
"""

import os
import signal
from collections.abc import Iterator

import pytest
import torch

from pipeline.parallel.signals import SIGNALS
from tests.distributed.ranks import ROOT
from tests.sampling import commit_here, sampled

RANK = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SLURM_STEP_ID")


def pytest_configure() -> None:
    torch.set_flush_denormal(True)
    torch.set_num_threads(1)
    # a shell lets what it starts in the background ignore it, and with that what tests stop by it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not (count := int(os.environ.get("FARSIGHT_SLOW", "0"))):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    files = sorted({str(item.path.relative_to(ROOT)) for item in slow})
    others = [file for file in files if not file.startswith("tests/slurm/")]
    left_out = {*others} - {*sampled(others, count, commit_here(), str)}
    dropped = {item for item in slow if str(item.path.relative_to(ROOT)) in left_out}
    config.hook.pytest_deselected(items=[*dropped])
    items[:] = [item for item in items if item not in dropped]


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
