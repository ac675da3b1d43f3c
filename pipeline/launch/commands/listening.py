"""How a process can be asked to stop: one that is a rank, and one that starts ranks."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from pipeline.errors import Preempted
from pipeline.launch.ranks import adopt_slurm_variables, is_rank
from pipeline.parallel.parent import hear_end_of_torchrun
from pipeline.parallel.signals import SIGNALS
from pipeline.parallel.stop import StopRequest
from pipeline.record import marker


def listening() -> StopRequest | None:
    """What asks this rank to stop; None in a process that nobody started as one.

    Call it early: until it listens, a signal ends the process without a word; and libraries fail at
    their import where a variable of the rank is no number.

    Raises:
        ConfigError: see `adopt_slurm_variables`.
    """
    if not is_rank():
        return None
    adopt_slurm_variables()
    stop = StopRequest()
    stop.end_alone(_end)
    stop.listen()
    hear_end_of_torchrun()
    return stop


def _end() -> None:
    """End this rank, which has not met the others; with a code that makes its launcher end them."""
    asked = Preempted(None)
    print(f"rank {os.environ.get('RANK', '?')}: {asked}", file=sys.stderr, flush=True)
    marker.leave(asked.exit_code, asked.progress)
    os._exit(asked.exit_code)


@contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM or SIGUSR1 ends a process that is no rank, in one line, where none of its ranks run.

    While they do, `start_ranks` has handlers of its own. At once, and without a clean-up, as a kill
    would: whatever is written here gets its name when it is whole.
    """
    if is_rank():
        yield
        return
    stop, once = StopRequest(), threading.Lock()

    def heard(number: int, frame: FrameType | None) -> None:
        end()

    def end() -> None:
        # the thread that hears of all signals may come late, when ranks have been started
        if signal.getsignal(signal.SIGTERM) is heard and once.acquire(blocking=False):
            asked = Preempted("what is finished")
            # a progress bar may stand there
            print(f"\n{asked}", file=sys.stderr, flush=True)
            marker.leave(asked.exit_code, asked.progress)
            os._exit(asked.exit_code)

    before = {number: signal.signal(number, heard) for number in SIGNALS}
    stop.end_alone(end)
    try:
        yield
    finally:
        stop.end_alone_no_more()
        for number, handler in before.items():
            signal.signal(number, handler)
