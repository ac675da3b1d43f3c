"""What W&B costs a training: `python -m tests.record.pace_worker FOLDER MODE STEPS`.

Of every two rows in turn, one chosen at random goes to W&B: what is compared lies a step apart, so
that what else the machine does hits both alike. Prints, as JSON, the seconds of the steps that
follow a row that was sent and of those that follow one that was not, without those spent waiting
for a core, and the seconds of CPU that W&B's threads and processes took meanwhile. The client finds
key and server in its environment.
"""

import json
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from pipeline.config.schema import Config
from pipeline.record.metrics import MetricsLog
from pipeline.record.wandb_mirror import WandbMirror
from pipeline.training.fit import fit
from tests.launch.plan_worker import RandomSequences, config_of

# steps of 50 to 100 ms on one core, each with a row
MODEL = {"width": 192, "layers": 4, "heads": 4, "mlp_width": 512}
LENGTH, VOCAB = 256, 1024


def training(steps: int, mode: str) -> Config:
    """One that mirrors its rows in this mode."""
    config = config_of({"model": MODEL, "vocab": VOCAB, "length": LENGTH})
    trainer = replace(config.trainer, max_steps=steps, log_every=1)
    return replace(config, trainer=trainer, wandb=replace(config.wandb, mode=mode))


def tasks() -> set[Path]:
    """The threads of this process."""
    return set(Path("/proc/self/task").iterdir())


def cpu(threads: Iterable[Path]) -> float:
    """Seconds of CPU of these threads, and of all processes that this one has started."""
    found, waiting = 0.0, [*threads]
    for task in tasks():
        waiting += [Path("/proc") / n for n in (task / "children").read_text().split()]
    for path in waiting:
        times = (path / "stat").read_text().rpartition(")")[2].split()[11:13]
        found += sum(map(int, times)) / os.sysconf("SC_CLK_TCK")
    return found


def own_time() -> float:
    """Seconds of this thread's clock, which stands while the thread could go on, but others have
    all cores. Waiting for other threads of this process counts."""
    queued = Path("/proc/thread-self/schedstat").read_text().split()[1]
    return time.perf_counter() - int(queued) / 1e9


class Sender:
    """Keeps every row, and hands of every two the chosen one to the mirror."""

    def __init__(self, folder: Path, mirror: WandbMirror, pairs: int, threads: set[Path]) -> None:
        self.log, self.mirror = MetricsLog(folder / "metrics.jsonl"), mirror
        self.threads, self.cpu = threads, 0.0
        self.chosen = np.random.default_rng(11).integers(0, 2, pairs)
        self.times: list[float] = []

    def sent(self, number: int) -> bool:
        """Whether the row of this number, from 0, is the one of the two."""
        return number // 2 < len(self.chosen) and self.chosen[number // 2] == number % 2

    def __call__(self, row: dict[str, Any]) -> None:
        """Take a row of training."""
        if not self.times:
            self.cpu = -cpu(self.threads)
        self.times.append(own_time())
        self.log.write(row)
        if self.sent(len(self.times) - 1):
            self.mirror.log(row)


def train(folder: Path, mode: str, steps: int) -> dict[str, Any]:
    """What follows a row pays for it, and is the step after it."""
    folder.mkdir(parents=True)
    config, before = training(steps, mode), tasks()
    mirror = WandbMirror(config, folder, enabled=True)
    assert not mirror.sends or mirror._started.wait(60.0)
    write = Sender(folder, mirror, (steps - 1) // 2, tasks() - before)
    try:
        fit(config, RandomSequences(LENGTH, VOCAB), None, write=write, name="")
        taken = write.cpu + cpu(write.threads)
    finally:
        mirror.finish()
    seconds = [after - before for before, after in pairwise(write.times)]
    pairs = [seconds[n : n + 2] for n in range(0, len(seconds) - 1, 2)]
    ordered = [pair[::-1] if write.sent(2 * n) else pair for n, pair in enumerate(pairs)]
    return {
        "without": [pair[0] for pair in ordered],
        "with": [pair[1] for pair in ordered],
        "cpu": taken,
    }


if __name__ == "__main__":
    torch.set_flush_denormal(True)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=5))
    train(Path(sys.argv[1]) / "warm", "off", 3)
    print(json.dumps(train(Path(sys.argv[1]) / "run", sys.argv[2], int(sys.argv[3]))))
    # or a thread of gloo may be alive when the interpreter ends, and abort it
    dist.destroy_process_group()
