"""What the W&B run of a run folder has already, so that no point of training is there twice.

A run that was killed trains the steps after its checkpoint again, and the last rows before a kill
may not have reached W&B's file. So a later start hands over all rows from the first on, and those
that are there are left out.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.parallel.signals import stops_held

AXIS = "train/tokens"


@dataclass(frozen=True)
class Sent:
    """Where the points of training end: the last values of a run, by their names."""

    last: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tokens(self) -> float:
        """The last `train/tokens`; less than any where there is none."""
        return float(self.last.get(AXIS, -1))

    def holds(self, point: Mapping[str, Any]) -> bool:
        """Whether this point of training is there; of points at the last tokens, which of them.

        A step is told by its number: trained again on another world its loss may differ in the
        last digits.
        """
        if point[AXIS] != self.tokens:
            return bool(point[AXIS] < self.tokens)
        names: Iterable[str] = ("train/step",) if "train/step" in point else point
        return all(self.last.get(name) == point[name] for name in names)


def furthest(*summaries: Mapping[str, Any]) -> Sent:
    """The one that ends last."""
    return max((Sent(summary) for summary in summaries), key=lambda sent: sent.tokens)


def segments(folder: Path) -> list[Path]:
    """W&B's files of all starts of a run folder, oldest first: their folders are named by time."""
    wandb = folder / "wandb"
    found = [*wandb.glob("offline-run-*/run-*.wandb"), *wandb.glob("run-*/run-*.wandb")]
    return sorted(found, key=lambda path: path.parent.name.removeprefix("offline-"))


def last_values(segment: Path) -> dict[str, Any]:
    """The last values of every metric in one of W&B's files, also of a start that was killed.

    By its rows alone: W&B writes a summary before the row that it is of, so a file that a kill cut
    between them sums up a row that it lacks.

    Raises:
        OSError, ValueError: W&B's own reader does not understand the file.
    """
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json"]
    # SLURM signals every process of a job
    with stops_held():
        done = subprocess.run([*command, str(segment)], capture_output=True, text=True, timeout=60)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise OSError(f"{segment}: exit code {done.returncode}: {said}")
    last: dict[str, Any] = {}
    for line in filter(None, done.stdout.split("\n")):
        record = json.loads(line)
        if record["type"] == "history":
            last |= record["history"]["item"]
    return last
