"""How the runs of a study stand, again and again until all of them have come to an end."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from pipeline.errors import ConfigError
from pipeline.launch.status import status
from pipeline.launch.tables import find_runs
from pipeline.record.folder import RunFolder

_HOME_AND_CLEAR = "\x1b[H\x1b[J"


def watch(folders: Sequence[Path], every: float) -> None:
    """Show the table of `status` every `every` seconds; return when all runs are finished.

    On a terminal the table stays in its place; elsewhere each follows the one before, and none is
    printed twice without a change. What is wrong with a run is said once.

    Raises:
        ConfigError: `every` is no time to wait, or one of `folders` holds no run.
    """
    if not 0.5 <= every <= 3600:
        raise ConfigError(f"--every {every:g}: seconds between two looks, 0.5 to 3600")
    shown, said = "", set[str]()
    while True:
        table, damage = status(folders)
        for words in sorted(set(damage) - said):
            print(words, file=sys.stderr, flush=True)
        said.update(damage)
        if sys.stdout.isatty():
            print(f"{_HOME_AND_CLEAR}{table}\n{time.strftime('%H:%M:%S')}", flush=True)
        elif table != shown:
            print(f"{table}\n", flush=True)
        shown = table
        if all(RunFolder(path).finished for path in find_runs(folders)):
            return
        time.sleep(every)
