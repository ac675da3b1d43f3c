"""Trains the same small run with and without W&B in turn: `python -m tests.record.pace_worker
FOLDER ROUNDS STEPS`; prints the seconds of every step, by mode and round, as JSON.

In one process, warm: what differs between two trainings is the mirror of their rows. The client
finds key and server in its environment.
"""

import json
import sys
import time
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from pipeline.config.schema import Config
from pipeline.record.metrics import MetricsLog
from pipeline.record.wandb_mirror import WandbMirror
from pipeline.training.fit import fit
from tests.launch.plan_worker import RandomSequences, config_of

MODES = ("off", "offline", "online")
# steps of 50 to 100 ms on one core, and a row of each of them
SIZE = {
    "model": {"width": 192, "layers": 4, "heads": 4, "mlp_width": 512},
    "vocab": 1024,
    "length": 256,
}


def training(steps: int, mode: str) -> Config:
    """One that mirrors its rows in this mode."""
    config = config_of(SIZE)
    trainer = replace(config.trainer, max_steps=steps, log_every=1)
    return replace(config, trainer=trainer, wandb=replace(config.wandb, mode=mode))


def train(config: Config, folder: Path) -> dict[str, Any]:
    """Seconds until the first step was done, and of each step after it, as rows tell them."""
    folder.mkdir(parents=True)
    log, first = MetricsLog(folder / "metrics.jsonl"), 0.0
    began = time.perf_counter()
    mirror = WandbMirror(config, folder, enabled=True)
    rows: list[dict[str, Any]] = []

    def write(row: dict[str, Any]) -> None:
        nonlocal first
        log.write(row)
        mirror.log(row)
        first = first or time.perf_counter() - began
        rows.append(row)

    try:
        fit(config, RandomSequences(SIZE["length"], SIZE["vocab"]), None, write=write, name="")
    finally:
        mirror.finish()
    seconds = [row["seconds"] for row in rows if row["kind"] == "train"]
    return {"first": first, "steps": [after - before for before, after in pairwise(seconds)]}


def main(folder: Path, rounds: int, steps: int) -> None:
    """Each round begins with another mode, so that none is always the one after another."""
    train(training(3, "off"), folder / "warm")
    found: dict[str, list[dict[str, Any]]] = {mode: [] for mode in MODES}
    for number in range(rounds):
        for mode in (*MODES[number % 3 :], *MODES[: number % 3]):
            found[mode].append(train(training(steps, mode), folder / f"{mode}-{number}"))
    print(json.dumps(found))


if __name__ == "__main__":
    torch.set_flush_denormal(True)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=5))
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    # or a thread of gloo may be alive when the interpreter ends, and abort it
    dist.destroy_process_group()
