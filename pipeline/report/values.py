"""The nats of single targets behind the suffix losses of a study, where its runs keep them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.config.label import file_name
from pipeline.errors import DataError
from pipeline.record.evaluation import read_arrays
from pipeline.report.collect import Study
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
    """Read what the runs keep of their suffix losses.

    Runs that were tested before nats were kept have none, which `missing` says.

    Raises:
        DataError: a file that a row names is damaged, does not belong to the row, or holds another
            number of targets than that of another run; names the files.
    """
    nats: dict[tuple[str, int], dict[int, Nats]] = {}
    missing: dict[str, str] = {}
    first: tuple[Path, tuple[int, ...]] | None = None
    for label, runs in study.encodings.items():
        own: dict[tuple[str, int], dict[int, Nats]] = {}
        for length in study.lengths("suffix"):
            for run in runs:
                row = suffix_row(run, length)
                if row is None or not row["defined"]:
                    continue
                path = _path(run, row)
                if path is None or not path.is_file():
                    missing.setdefault(label, _why(run, path))
                    continue
                found = _read(path, row)
                if first is not None and found.shape != first[1]:
                    raise DataError(
                        f"{first[0]} and {path} hold {first[1]} and {found.shape} documents and "
                        "targets, so they were not scored on the same ones. Evaluate these runs "
                        "again with the same settings"
                    )
                first = first or (path, found.shape)
                own.setdefault((label, length), {})[run.config["seed"]] = found
        if label not in missing:
            nats |= own
    sums = {key: {s: x.sum(axis=1) for s, x in seeds.items()} for key, seeds in nats.items()}
    return Values(nats, sums, missing)


def _path(run: Run, row: Mapping[str, Any]) -> Path | None:
    if not row.get("values"):
        return None
    folder = run.path / "evaluation"
    if run.extension:
        folder /= file_name(run.extension)
    return folder / "values" / str(row["values"])


def _why(run: Run, path: Path | None) -> str:
    found = "keeps no nats of single targets" if path is None else f"lacks values/{path.name}"
    return f"{run.name} {found}; `python -m pipeline evaluate RUN` writes them"


def _read(path: Path, row: Mapping[str, Any]) -> Nats:
    """[documents, suffix_tokens] of one row."""
    again = "Evaluate the run again"
    try:
        nats = np.asarray(read_arrays(path)["nats"], dtype=np.float64)
    except (ValueError, KeyError) as error:
        raise DataError(f"{path}: cannot be read ({error}). {again}") from error
    documents, targets = row["documents"], row["suffix_tokens"]
    if nats.shape != (documents * targets,):
        raise DataError(
            f"{path}: holds {nats.shape} values instead of those of {documents} documents with "
            f"{targets} targets each, as its row says. {again}"
        )
    # nats are kept in fp32, losses are means of fp64
    if not math.isclose(nats.mean(), row["loss"], rel_tol=1e-5, abs_tol=1e-7):
        raise DataError(
            f"{path}: its mean is {nats.mean():.6f} and the loss of its row {row['loss']:.6f}: it "
            f"belongs to another evaluation. {again}"
        )
    return nats.reshape(documents, targets)
