"""Whether this process is a rank, and can be asked to stop."""

from pipeline.launch.ranks import is_rank
from pipeline.parallel.stop import StopRequest


def listening() -> StopRequest | None:
    """What asks this rank to stop; None in a process that nobody started as one. Call it early:
    until it listens, a signal ends the process."""
    if not is_rank():
        return None
    stop = StopRequest()
    stop.listen()
    return stop
