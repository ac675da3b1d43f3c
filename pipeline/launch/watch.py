"""How the runs of a study stand, again and again until all of them have come to an end."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from pipeline.errors import ConfigError
from pipeline.launch.status import status

_HOME_AND_CLEAR = "\x1b[H\x1b[J"
_SETTLING = 60.0
"""Seconds without a job before a run counts as given up: what other nodes write is seen late, and a
job that starts again is none for a moment."""


def watch(folders: Sequence[Path], every: float) -> bool:
    """Show the table of `status` every `every` seconds; return when all runs are finished, or when
    of those that are not all were submitted and have no job any more.

    On a terminal the table stays in its place, and below it what is wrong with a run or the queue;
    elsewhere each table follows the one before, none is printed twice without a change, and what is
    wrong is said once, on standard error.

    Returns:
        Whether all runs are finished; those that are not were named on standard error.

    Raises:
        ConfigError: `every` is no time to wait, or one of `folders` holds no run.
    """
    if not 0.5 <= every <= 3600:
        raise ConfigError(f"--every {every:g}: seconds between two looks, 0.5 to 3600")
    shown, said, quiet = "", set[str](), 0.0
    while True:
        table, damage, going, ended = status(folders)
        if sys.stdout.isatty():
            # in one piece: what was printed before it, and elsewhere, the next look would wipe
            drawn = "\n".join((table, time.strftime("%H:%M:%S"), *damage))
            print(f"{_HOME_AND_CLEAR}{drawn}", flush=True)
        else:
            for words in sorted(set(damage) - said):
                print(words, file=sys.stderr, flush=True)
            said.update(damage)
            if table != shown:
                print(f"{table}\n", flush=True)
            shown = table
        if not going and (not ended or quiet >= _SETTLING):
            print("".join(f"{words}\n" for words in ended), end="", file=sys.stderr, flush=True)
            return not ended
        time.sleep(every)
        quiet = 0.0 if going else quiet + every
