"""Whether rows are those of the run in whose folder they lie, each once, and can be at all."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.errors import DataError
from pipeline.record.evaluation import row_sha256

# what is a mean of nats, or made of one
AT_LEAST_NOTHING = ("loss", "standard_error", "perplexity", "bits_per_byte")
AGAIN = "The folder is damaged, or rows of another run were put there. Evaluate the run again"


def check_own(rows: Sequence[Mapping[str, Any]], path: Path, config: Mapping[str, Any]) -> None:
    """Refuse rows of another run, rows that stand twice, losses and errors below 0 or not finite,
    rows that were changed, and a file that was cut.

    Args:
        rows: what the file holds; each has the fields of a row.
        path: the file, for the message.
        config: the settings of the run.

    Raises:
        DataError: naming file, line and field.
    """
    if not path.read_bytes().endswith(b"\n"):
        raise DataError(f"{path}: ends in the middle of a row. {AGAIN}")
    own = {
        "position": config["position"]["name"],
        "seed": config["seed"],
        "train_length": config["train_length"],
    }
    # one evaluation writes a file at a time, of one set of weights
    own |= {field: rows[0].get(field) for field in ("weights_sha256", "evaluation_sha256")}
    # files that were written before rows had them hold none
    digests = any("row_sha256" in row for row in rows)
    seen: dict[tuple[object, ...], int] = {}
    for number, row in enumerate(rows, start=1):
        for field, value in own.items():
            if row.get(field) != value:
                raise DataError(
                    f"{path}:{number}: `{field}` = {str(row.get(field))[:64]!r}, but the run has "
                    f"{str(value)[:64]!r}. {AGAIN}"
                )
        _check_numbers(row, f"{path}:{number}")
        if digests and row.get("row_sha256") != row_sha256(row):
            raise DataError(f"{path}:{number}: is not as it was written (`row_sha256`). {AGAIN}")
        place = (row["protocol"], row["length"], row.get("task"), row.get("depth"))
        if place in seen:
            raise DataError(f"{path}:{number}: measures the same as line {seen[place]}. {AGAIN}")
        seen[place] = number


def _check_numbers(row: Mapping[str, Any], where: str) -> None:
    """Refuse what no evaluation gives, whatever it measured."""
    given = [(field, row[field]) for field in AT_LEAST_NOTHING if row.get(field) is not None]
    given += [("losses", loss) for loss in row.get("losses", [])]
    for field, value in given:
        if not isinstance(value, int | float) or not (math.isfinite(value) and value >= 0.0):
            raise DataError(
                f"{where}: `{field}` = {str(value)[:64]} must be a finite number of at least 0. "
                f"{AGAIN}"
            )
