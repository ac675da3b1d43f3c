"""Reads run folders into one ``Study``: runs whose numbers may stand in one table, or a refusal.

Two numbers in one table may differ only because the encodings differ, so rows scored on other text,
other targets or other training lengths are never put side by side.
"""

import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.config.groups import is_name, named_group
from pipeline.config.label import shown
from pipeline.config.schema import Config
from pipeline.errors import DataError
from pipeline.evaluate.seeds import half_width
from pipeline.evaluate.usable import usable_lengths
from pipeline.report.comparable import check_comparable, differing, flat_settings
from pipeline.report.lineage import check_origins, origin_words
from pipeline.report.reading import Run, read_extended, read_run

# what changes what an encoding is, beside its own settings
CHANGING = (
    "position_ids.", "model.attention_window", "model.attention_mask", "model.mask_tokens",
    "model.score_scale", "model.qk_", "model.no_position_every", "model.drop_position_after",
)  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One encoding at one length under one protocol, over its seeds.

    ``loss`` in nats per token, ``spread`` half of its 95 % t interval: over seeds if there are
    several, else over documents. Both None if not defined, and then ``reason`` says why.
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
    """Comparable runs. ``encodings`` maps a label to its runs (seeds), in the order given.

    After each encoding come the extensions it was tested with, each labelled as such.
    """

    encodings: dict[str, list[Run]]
    varied: dict[str, list[Any]]

    @property
    def runs(self) -> list[Run]:
        """Every run, encoding by encoding, and again under each extension it was tested with."""
        return [run for runs in self.encodings.values() for run in runs]

    @property
    def trained(self) -> dict[str, list[Run]]:
        """The encodings as they were trained: without extensions."""
        return {label: runs for label, runs in self.encodings.items() if not runs[0].extension}

    @property
    def trained_runs(self) -> list[Run]:
        """Every run once, encoding by encoding."""
        return [run for runs in self.trained.values() for run in runs]

    @property
    def train_length(self) -> int:
        """Tokens in one training sequence, the same for all runs."""
        return int(self.runs[0].config["train_length"])

    def lengths(self, protocol: str) -> list[int]:
        """The lengths that any run was tested at, ascending."""
        return self._lengths.get(protocol, [])

    @cached_property
    def _lengths(self) -> dict[str, list[int]]:
        measured = sorted({place for run in self.runs for place in run.by_length})
        return {name: [n for known, n in measured if known == name] for name, _ in measured}

    def cell(self, label: str, protocol: str, length: int, seed: int | None = None) -> Cell | None:
        """What the seeds of one encoding gave together, or one of them alone; None if it was not
        measured."""
        key = label, protocol, length, seed
        if key not in self._cells:
            runs = [run for run in self.encodings[label] if seed in (None, run.config["seed"])]
            rows = [row for run in runs for row in run.by_length.get((protocol, length), [])]
            self._cells[key] = _merge(rows) if rows else None
        return self._cells[key]

    @cached_property
    def _cells(self) -> dict[tuple[str, str, int, int | None], Cell | None]:
        """What was asked for so far: tables and pictures ask for the same."""
        return {}

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
        """Up to which length the suffix loss stays within 2 % of the best within train_length, as
        `pipeline.evaluate.usable` says.

        None if nothing was measured within train_length.
        """
        lengths = self.lengths("suffix")
        cells = [self.cell(label, "suffix", length) for length in lengths]
        losses = [math.inf if cell is None or cell.loss is None else cell.loss for cell in cells]
        return int(usable_lengths(lengths, np.array([losses]), self.train_length)[0]) or None


def collect(folders: Sequence[Path]) -> Study:
    """Read run folders and check that they may be compared.

    Raises DataError for an unreadable, damaged, unfinished or repeated run, and for runs that
    differ in the text or tokenizer they were trained with or in the text, targets, split, stride
    or training length of their rows, naming the field, the values and the folders; and for seeds of
    which only some continue the same weights.
    """
    if not folders:
        raise DataError("no run folder given; name at least one, such as runs/<experiment>/<name>")
    runs = [read_run(Path(folder)) for folder in folders]
    extended = {run.path: read_extended(run) for run in runs}
    check_comparable([*runs, *(one for found in extended.values() for one in found)])
    varied = differing(runs)
    encodings: dict[str, list[Run]] = {}
    for run, label in zip(runs, _labels(runs, varied), strict=True):
        twins = encodings.setdefault(label, [])
        for twin in twins:
            if twin.config["seed"] == run.config["seed"]:
                raise DataError(
                    f"{twin.path} and {run.path} have the same configuration and seed: counted "
                    "twice, one run would look like two seeds. Name one of them only"
                )
        twins.append(run)
    for label, twins in encodings.items():
        check_origins(label, twins)
    # the encoding and its own settings stand in the label
    varied = {key: values for key, values in varied.items() if not key.startswith("position.")}
    return Study(_with_extensions(encodings, extended), varied)


def _with_extensions(
    encodings: Mapping[str, list[Run]], extended: Mapping[Path, Sequence[Run]]
) -> dict[str, list[Run]]:
    """After each encoding, what its runs gave under extensions, one label for each of these."""
    found: dict[str, list[Run]] = {}
    for label, runs in encodings.items():
        found[label] = runs
        tested = [one for run in runs for one in extended[run.path]]
        for extension in sorted({one.extension for one in tested}, key=_in_order):
            same = [one for one in tested if one.extension == extension]
            found[f"{label} + {extension}"] = same
    return found


def _in_order(label: str) -> list[str | float]:
    """Names by letters, the numbers within them by size: ``scale=4`` before ``scale=16``."""
    parts = re.split(r"(\d+(?:\.\d+)?)", label)
    return [float(part) if number % 2 else part for number, part in enumerate(parts)]


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
    if len(losses) > 1:
        count, error = len(losses), statistics.stdev(losses) / math.sqrt(len(losses))
    else:
        count, error = rows[0]["documents"], rows[0].get("standard_error")
    bits = [row["bits_per_byte"] for row in rows if row.get("bits_per_byte") is not None]
    return Cell(
        loss=loss,
        spread=None if error is None else half_width(error, count),
        perplexity=math.exp(loss) if loss < 690 else None,
        bits_per_byte=statistics.fmean(bits) if bits else None,
        reason=None,
        **counts,
    )


def _labels(runs: Sequence[Run], varied: Mapping[str, Any]) -> Iterator[str]:
    """Of each run the encoding's name, with the keys that tell it from other runs of the same
    encoding, and with what not all runs have and other than by default: ids and modifiers change
    an encoding. A continued run has the extension that it was trained under, and where its weights
    are from."""
    usual = flat_settings(asdict(Config()))
    alike: dict[str, list[Run]] = {}
    for run in runs:
        alike.setdefault(str(run.config["position"]["name"]), []).append(run)
    telling = {name: differing(same) for name, same in alike.items()}
    for run in runs:
        name, flat = str(run.config["position"]["name"]), flat_settings(run.config)
        changed = [key for key in varied if key in flat and flat[key] != usual.get(key)]
        keys = dict.fromkeys([*telling[name], *(k for k in changed if k.startswith(CHANGING))])
        told = [k for k in keys if k in flat and not k.startswith(("init_from", "extension."))]
        extra = [
            *origin_words(run, alike[name]),
            *(f"{_last(key)} {shown(flat[key])}" for key in told),
        ]
        yield f"{name} ({', '.join(extra)})" if extra else name


def _last(key: str) -> str:
    """The last part of a dotted key, for a label; of the name of a group, the group."""
    return named_group(key) if is_name(key) else key.rpartition(".")[2]
