"""Run as a process of its own: mirrors rows through the real W&B client and prints how long it took.

Usage: python -m tests.record.mirror_child FOLDER ROWS_JSON [SECTION_JSON]; it goes on to finish when its
standard input is closed.
"""

import json
import sys
import time
from pathlib import Path

from pipeline.config.schema import Config, WandbConfig
from pipeline.record.wandb_mirror import WandbMirror


def main(folder: str, rows: str, section: str = "{}") -> None:
    """Mirror the rows and print the seconds as JSON."""
    config = Config(experiment="compare", position={"name": "rope", "base": 10000.0})
    config.wandb = WandbConfig(**{"init_timeout": 8.0, "finish_timeout": 4.0, **json.loads(section)})
    seconds = {}
    start = time.perf_counter()
    mirror = WandbMirror(config, Path(folder), enabled=True)
    seconds["start"] = time.perf_counter() - start
    start = time.perf_counter()
    for row in json.loads(rows):
        mirror.log(row)
    seconds["log"] = time.perf_counter() - start
    sys.stdin.read()
    start = time.perf_counter()
    mirror.finish()
    seconds["finish"] = time.perf_counter() - start
    print(json.dumps(seconds))


if __name__ == "__main__":
    main(*sys.argv[1:])
