"""Reads run folders into one ``Study``: runs whose numbers may stand in one table, or a refusal.

Two numbers in one table may differ only because the encodings differ, so rows scored on other text,
other targets or other training lengths are never put side by side.
"""

import json
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pipeline.errors import DataError
from pipeline.record.metrics import read_rows

# Keys, or their beginnings, that may differ without the runs being different treatments.
NOT_A_TREATMENT = (
    "seed", "runs", "experiment", "wandb.", "data.prepared", "data.workers", "trainer.threads",
    "trainer.log_every",
)  # fmt: skip
SAME_IN_ONE_TABLE = ("text_sha256", "suffix_tokens", "train_length", "split", "stride")


@dataclass(frozen=True)
class Run:
    """All of one run folder; ``config`` and ``summary`` as saved, rows in the order written."""

    path: Path
    config: dict[str, Any]
    summary: dict[str, Any]
    environment: dict[str, Any]
    rows: list[dict[str, Any]]
    train_rows: list[dict[str, Any]]
    short_rows: list[dict[str, Any]]
    config_sha256: str

    @property
    def name(self) -> str:
        """``<experiment>/<run folder>``, which says where the run lies without naming a machine."""
        return f"{self.path.resolve().parent.name}/{self.path.resolve().name}"


@dataclass(frozen=True)
class Cell:
    """One encoding at one length under one protocol, over its seeds.

    ``loss`` in nats per token, ``spread`` the half-width of its interval: the standard deviation
    over seeds if there are several, else two standard errors over documents. Both None if not
    defined, and then ``reason`` says why.
    """

    loss: float | None
    spread: float | None
    perplexity: float | None
    bits_per_byte: float | None
    seeds: int
    documents: int
    scored_tokens: int
    reason: str | None


@dataclass(frozen=True)
class Study:
    """Comparable runs. ``encodings`` maps a label to its runs (seeds), in the order given."""

    encodings: dict[str, list[Run]]
    varied: dict[str, list[Any]]

    @property
    def runs(self) -> list[Run]:
        """Every run, encoding by encoding."""
        return [run for runs in self.encodings.values() for run in runs]

    @property
    def train_length(self) -> int:
        """Tokens in one training sequence, the same for all runs."""
        return int(self.runs[0].config["train_length"])

    def lengths(self, protocol: str) -> list[int]:
        """The lengths that any run was tested at, ascending."""
        return sorted(
            {row["length"] for run in self.runs for row in run.rows if row["protocol"] == protocol}
        )

    def cell(self, label: str, protocol: str, length: int) -> Cell | None:
        """What the seeds of one encoding gave; None if it was not measured."""
        rows = [
            row
            for run in self.encodings[label]
            for row in run.rows
            if row["protocol"] == protocol and row["length"] == length
        ]
        return _merge(rows) if rows else None

    def control(self, label: str, length: int) -> Cell | None:
        """The window control to hold against the suffix loss at ``length``; None if not measured.

        From the train length on the window sees the same tokens at every length, so what was
        measured at the longest length up to this one counts.
        """
        measured = [known for known in self.lengths("window control") if known <= length]
        return self.cell(label, "window control", measured[-1]) if measured else None

    def limit(self, label: str) -> int | None:
        """The length that the encoding is not defined beyond; None if it was defined throughout."""
        cells = {length: self.cell(label, "suffix", length) for length in self.lengths("suffix")}
        reasons = [cell.reason for cell in cells.values() if cell and cell.reason]
        if not reasons:
            return None
        stated = re.search(r"not defined beyond (\d+)", reasons[0])
        if stated:
            return int(stated[1])
        return max(
            (length for length, cell in cells.items() if cell and not cell.reason), default=0
        )

    def usable_length(self, label: str) -> int | None:
        """Up to which length the suffix loss stays within 2 % of the best within train_length.

        None if nothing was measured within train_length.
        """
        cells = {length: self.cell(label, "suffix", length) for length in self.lengths("suffix")}
        known = {n: cell.loss for n, cell in cells.items() if cell and cell.loss is not None}
        inside = {n: loss for n, loss in known.items() if n <= self.train_length}
        if not inside:
            return None
        bound = 1.02 * min(inside.values())
        usable = max(n for n, loss in inside.items() if loss <= bound)
        for length in cells:
            if length > self.train_length:
                if known.get(length, math.inf) > bound:
                    break
                usable = length
        return usable


def collect(folders: Sequence[Path]) -> Study:
    """Read run folders and check that they may be compared.

    Raises DataError for an unreadable, unfinished or repeated run, and for rows that differ in
    text, targets, split, stride or training length, naming the field, the values and the folders.
    """
    if not folders:
        raise DataError("no run folder given; name at least one, such as runs/<experiment>/<name>")
    runs = [_read(Path(folder)) for folder in folders]
    for field in SAME_IN_ONE_TABLE:
        _check_same(runs, field)
    varied = _varied(runs)
    encodings: dict[str, list[Run]] = {}
    for run in runs:
        twins = encodings.setdefault(_label(run, runs), [])
        for twin in twins:
            if twin.config["seed"] == run.config["seed"]:
                raise DataError(
                    f"{twin.path} and {run.path} have the same configuration and seed: counted "
                    "twice, one run would look like two seeds. Name one of them only"
                )
        twins.append(run)
    return Study(encodings, varied)


def _read(folder: Path) -> Run:
    if not (folder / "config.yaml").is_file():
        raise DataError(f"{folder} is not a run folder: it has no config.yaml")
    if not (folder / "finished").is_file():
        raise DataError(
            f"{folder} holds a run that is not finished; wait for it, run it again or leave it out"
        )
    metrics = read_rows(folder / "metrics.jsonl")
    rows = read_rows(folder / "evaluation" / "rows.jsonl")
    if not any(row.get("protocol") == "suffix" for row in rows):
        raise DataError(f"{folder / 'evaluation' / 'rows.jsonl'}: no row of protocol 'suffix'")
    return Run(
        path=folder,
        config=_mapping(folder / "config.yaml"),
        summary=_mapping(folder / "summary.json"),
        environment=_mapping(folder / "environment.json"),
        rows=rows,
        train_rows=[row for row in metrics if row.get("kind") == "train"],
        short_rows=[row for row in metrics if row.get("kind") == "evaluation"],
        config_sha256=(folder / "finished").read_text().strip(),
    )


def _mapping(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        found = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise DataError(f"{path}: cannot be read ({error}); the run folder is damaged") from error
    if not isinstance(found, dict):
        raise DataError(f"{path}: holds {type(found).__name__} instead of keys and values")
    return found


def _check_same(runs: Sequence[Run], field: str) -> None:
    """Refuse runs whose rows differ in a field although they are shown side by side."""
    for kind in ("rows", "short_rows"):
        seen: dict[tuple[object, ...], dict[object, Path]] = {}
        for run in runs:
            for row in getattr(run, kind):
                where: tuple[object, ...] = ()
                if field == "stride":
                    where = (row["protocol"], row["length"])
                elif field == "text_sha256":
                    # Protocols may score different text, but one is the control of the other.
                    control = row["protocol"] == "window control"
                    where = ("suffix" if control else row["protocol"],)
                # Protocols without a suffix have no suffix_tokens: no disagreement.
                if row.get(field) is not None:
                    seen.setdefault(where, {}).setdefault(row[field], run.path)
        for values in seen.values():
            if len(values) > 1:
                found = ", ".join(f"{value} in {path}" for value, path in values.items())
                raise DataError(
                    f"these runs do not belong in one table: {field} differs ({found}). Report "
                    "them separately, or evaluate them again with the same settings"
                )


def _merge(rows: Sequence[Mapping[str, Any]]) -> Cell:
    counts = {
        "seeds": len({row["seed"] for row in rows}),
        "documents": min(row["documents"] for row in rows),
        "scored_tokens": min(row["scored_tokens"] for row in rows),
    }
    undefined = [row for row in rows if not row["defined"]]
    if undefined:
        reason = undefined[0].get("reason") or "not defined at this length"
        return Cell(None, None, None, None, reason=reason, **counts)
    losses = [row["loss"] for row in rows]
    loss = statistics.fmean(losses)
    error = rows[0].get("standard_error")
    spread = statistics.stdev(losses) if len(losses) > 1 else None if error is None else 2 * error
    bits = [row["bits_per_byte"] for row in rows if row.get("bits_per_byte") is not None]
    return Cell(
        loss=loss,
        spread=spread,
        perplexity=math.exp(loss) if loss < 690 else None,
        bits_per_byte=statistics.fmean(bits) if bits else None,
        reason=None,
        **counts,
    )


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = value
    return {key: value for key, value in flat.items() if not key.startswith(NOT_A_TREATMENT)}


def _differing(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """Keys whose values differ, with the values in order of appearance."""
    flats = [_flat(run.config) for run in runs]
    keys = dict.fromkeys(key for flat in flats for key in flat)
    found: dict[str, list[Any]] = {}
    for key in keys:
        values: list[Any] = []
        for flat in flats:
            if key in flat and flat[key] not in values:
                values.append(flat[key])
        if len(values) > 1:
            found[key] = values
    return found


def _varied(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """What differs besides the encoding and its own settings."""
    found = _differing(runs)
    return {key: values for key, values in found.items() if not key.startswith("position.")}


def _label(run: Run, runs: Sequence[Run]) -> str:
    """The encoding's name, with the keys that tell it from other runs of the same encoding."""
    name = str(run.config["position"]["name"])
    same = [other for other in runs if other.config["position"]["name"] == name]
    flat = _flat(run.config)
    extra = [f"{key.rpartition('.')[2]} {flat[key]}" for key in _differing(same) if key in flat]
    return f"{name} ({', '.join(extra)})" if extra else name
