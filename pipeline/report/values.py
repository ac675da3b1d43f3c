"""The nats of single targets behind the suffix losses of a study, where its runs keep them."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.errors import DataError
from pipeline.report.collect import Study
from pipeline.report.held_values import held_suffixes
from pipeline.report.reading import Run

Nats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Values:
    """Nats of the scored targets of every run, and their sums by document.

    `nats[label, length][seed]` is [documents, suffix_tokens], in the same order everywhere, for
    every label, length and seed at which the encoding is defined; `missing[label]` says why a label
    has none of these.
    """

    nats: Mapping[tuple[str, int], Mapping[int, Nats]]
    sums: Mapping[tuple[str, int], Mapping[int, Nats]]
    missing: Mapping[str, str]

    def targets(self) -> tuple[int, int]:
        """Documents, and targets scored in each; (0, 0) if no run keeps its nats."""
        for seeds in self.nats.values():
            for found in seeds.values():
                return found.shape
        return 0, 0


def losses(study: Study, label: str, length: int) -> dict[int, float]:
    """Suffix loss by seed, of the seeds it was measured for; empty if it is not defined for one."""
    rows = {run.config["seed"]: suffix_row(run, length) for run in study.encodings[label]}
    measured = {seed: row for seed, row in rows.items() if row is not None}
    if not all(row["defined"] for row in measured.values()):
        return {}
    return {seed: float(row["loss"]) for seed, row in measured.items()}


def suffix_row(run: Run, length: int) -> Mapping[str, Any] | None:
    """What the run says of its suffix loss at this length; None if it was not measured."""
    return next(iter(run.by_length.get(("suffix", length), [])), None)


def read_values(study: Study) -> Values:
    """Read what the runs keep of their suffix losses, and hold every row against its arrays.

    Runs that were tested before nats were kept have none, which `missing` says.

    Raises:
        DataError: a file that a row names is missing, damaged, does not belong to the row, or holds
            another number of targets than that of another run; names the files.
    """
    nats: dict[tuple[str, int], dict[int, Nats]] = {}
    missing: dict[str, str] = {}
    first: tuple[Path, tuple[int, ...]] | None = None
    # nearly all of the time goes to sums and inflating, which run beside each other
    with ThreadPoolExecutor() as pool:
        held = iter(list(pool.map(held_suffixes, study.runs)))
    for label, runs in study.encodings.items():
        own: dict[tuple[str, int], dict[int, Nats]] = {}
        for run in runs:
            kept = next(held)
            for length in study.lengths("suffix"):
                row = suffix_row(run, length)
                if row is None or not row["defined"]:
                    continue
                if length not in kept:
                    missing.setdefault(label, _why(run))
                    continue
                path, found = kept[length]
                if first is not None and found.shape != first[1]:
                    raise DataError(
                        f"{first[0]} and {path} hold {first[1]} and {found.shape} documents and "
                        "targets, so they were not scored on the same ones. Evaluate these runs "
                        "again with the same settings"
                    )
                first = first or (path, found.shape)
                own.setdefault((label, length), {})[run.config["seed"]] = found
        if label not in missing:
            nats |= {key: own[key] for key in sorted(own)}
    sums = {key: {s: x.sum(axis=1) for s, x in seeds.items()} for key, seeds in nats.items()}
    return Values(nats, sums, missing)


def _why(run: Run) -> str:
    return (
        f"{run.name} keeps no nats of single targets; `python -m pipeline evaluate RUN` writes them"
    )
