"""Run as a process of its own: mirrors rows through the real W&B client and prints its seconds.

A row with an ``image`` names a picture, whose file is under ``path``; one with a ``table`` holds
its ``columns`` and ``rows``; one with ``figures`` those of the run.
Usage: python -m tests.record.mirror_child RUN_FOLDER ROWS_JSON EXIT_CODE [KEY=VALUE ...]; it
finishes when its standard input is closed.
"""

import json
import sys
import time
from itertools import pairwise
from pathlib import Path

from pipeline.config.compose import load
from pipeline.record.wandb_mirror import WandbMirror


def main(folder: str, rows: str, exit_code: str, *overrides: str) -> None:
    """Mirror the rows and print the seconds of each step as JSON."""
    (config,) = load(Path(folder) / "config.yaml", overrides)
    times = [time.perf_counter()]
    mirror = WandbMirror(config, Path(folder), enabled=True)
    times.append(time.perf_counter())
    for row in json.loads(rows):
        if "image" in row:
            mirror.image(row["image"], Path(row["path"]))
        elif "table" in row:
            mirror.table(row["table"], row["columns"], row["rows"])
        elif "figures" in row:
            mirror.summary(row["figures"])
        else:
            mirror.log(row)
    times.append(time.perf_counter())
    sys.stdin.read()
    times.append(time.perf_counter())
    mirror.finish(int(exit_code))
    times.append(time.perf_counter())
    start, log, _, finish = (after - before for before, after in pairwise(times))
    print(json.dumps({"start": start, "log": log, "finish": finish}))


if __name__ == "__main__":
    main(*sys.argv[1:])
