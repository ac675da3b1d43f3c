"""Whether the numbers of a run's rows are those of the arrays that the rows name."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.config.label import file_name
from pipeline.errors import DataError
from pipeline.evaluate.means import standard_error
from pipeline.record.evaluation import read_arrays
from pipeline.report.reading import Run

Row = Mapping[str, Any]
Nats = npt.NDArray[np.float64]

AGAIN = "Evaluate the run again"
# what a number is of its arrays
NAMES = {
    "loss": "mean", "standard_error": "standard error", "rank": "mean rank",
    "exact_match": "share of exact answers",
}  # fmt: skip
# of all tokens of a document: inflating them would take most of the time of a report
WHOLE = ("sliding", "non-overlapping", "per-position")


def held_suffixes(run: Run) -> dict[int, tuple[Path, Nats]]:
    """File and nats [documents, suffix_tokens] behind each suffix loss, by length.

    Rows that name arrays are held against them, but for those of whole documents. Rows that were
    written before arrays were kept name none, and are not.

    Raises:
        DataError: arrays are missing, damaged, or not those of their row; names the file.
    """
    found: dict[int, tuple[Path, Nats]] = {}
    for row in run.rows:
        if not row.get("values") or row["protocol"] in WHOLE:
            continue
        path = _path(run, row)
        if not row["defined"]:
            raise DataError(f"{path}: its row is not defined, and so has no values. {AGAIN}")
        nats = _read(path, row)
        if row["protocol"] == "suffix":
            found[row["length"]] = path, nats
    return found


def _path(run: Run, row: Row) -> Path:
    folder = run.path / "evaluation"
    if run.extension:
        folder /= file_name(run.extension)
    path = folder / "values" / str(row["values"])
    if not path.is_file():
        raise DataError(
            f"{path}: missing, so the numbers of its row cannot be checked. Copy the run folder "
            f"whole, or {AGAIN[0].lower()}{AGAIN[1:]}"
        )
    return path


def _read(path: Path, row: Row) -> Nats:
    """Nats behind a row, by document where its documents have as many each."""
    try:
        arrays = read_arrays(path)
        nats = np.asarray(arrays["nats"], dtype=np.float64)
        _check_count(path, nats, row)
        _check(path, row, "loss", nats.mean())
        if row["protocol"] == "task":
            _check(path, row, "rank", arrays["rank"].mean())
            _check(path, row, "exact_match", arrays["exact"].mean())
            return nats
        by_document: Nats = nats.reshape(row["documents"], -1)
        _check(path, row, "standard_error", standard_error(by_document.mean(axis=1)))
        return by_document
    except (ValueError, KeyError) as error:
        raise DataError(f"{path}: cannot be read ({error}). {AGAIN}") from error


def _check_count(path: Path, nats: Nats, row: Row) -> None:
    documents, targets, scored = row["documents"], row.get("suffix_tokens"), row["scored_tokens"]
    if targets is not None and nats.shape != (documents * targets,):
        raise DataError(
            f"{path}: holds {nats.shape} values instead of those of {documents} documents with "
            f"{targets} targets each, as its row says. {AGAIN}"
        )
    uneven = row["protocol"] != "task" and (documents < 1 or scored % documents != 0)
    if nats.shape != (scored,) or not scored or uneven:
        raise DataError(
            f"{path}: holds {nats.shape} values instead of those of {scored} scored tokens of "
            f"{documents} documents, as its row says. {AGAIN}"
        )


def _check(path: Path, row: Row, field: str, value: float | np.floating[Any] | None) -> None:
    """Refuse a row whose number is not the one of its arrays."""
    stated = row.get(field)
    if value is None and stated is None:
        return
    # nats are kept in fp32, the numbers of rows are made of fp64; what documents differ by may be
    # as small as what rounding their nats makes of it
    rounding = 1e-7 * max(1.0, row["loss"])
    if (
        value is None
        or stated is None
        or not math.isclose(value, stated, rel_tol=1e-5, abs_tol=rounding)
    ):
        said = "null" if stated is None else f"{stated:.6f}"
        raise DataError(
            f"{path}: its {NAMES[field]} is {'none' if value is None else f'{value:.6f}'} and the "
            f"{field} of its row {said}: it belongs to another evaluation, or the row was "
            f"changed. {AGAIN}"
        )
