"""Seconds, fairly: every subject once a round, round after round, in one process.

A busy neighbour or a hot processor slows all subjects of a round alike, so a ratio is the median
of the ratios within the rounds, never the ratio of two medians.
"""

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from statistics import median
from typing import TypeVar

import torch

Key = TypeVar("Key", bound=Hashable)


def seconds(run: Callable[[], None], device: torch.device) -> float:
    """How long `run` takes: wall time on a CPU, events around it on a GPU."""
    if device.type == "cuda":
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize(device)
        return begin.elapsed_time(end) / 1000.0
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def interleaved(
    runs: Mapping[Key, Callable[[], None]],
    repeats: int,
    device: torch.device,
    said: Callable[[Key], None],
) -> dict[Key, list[float]]:
    """Seconds of each in every round, after one run each that is not counted.

    `said` is told about every run before it starts.
    """
    found: dict[Key, list[float]] = {key: [] for key in runs}
    for number in range(repeats + 1):
        for key, run in runs.items():
            said(key)
            took = seconds(run, device)
            if number:
                found[key].append(took)
    return found


def paired(own: Sequence[float], yardstick: Sequence[float]) -> list[float]:
    """The ratio in each round."""
    return [a / b for a, b in zip(own, yardstick, strict=True)]


def paired_ratio(own: Sequence[float], yardstick: Sequence[float]) -> float:
    """Median over rounds of the ratio within a round."""
    return median(paired(own, yardstick))
