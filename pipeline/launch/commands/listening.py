"""Whether this process is a rank, and can be asked to stop."""

import os
import sys

from pipeline.errors import Preempted
from pipeline.launch.ranks import adopt_slurm_variables, is_rank
from pipeline.parallel.parent import hear_end_of_torchrun
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
