"""Shares of right answers: of one encoding over its seeds, with intervals, guesses and the CSVs."""

import csv
import io
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.special import bdtrc

from pipeline.evaluate.proportion import wilson
from pipeline.evaluate.seeds import half_width
from pipeline.report.collect import Study
from pipeline.report.reading import Run

ROW_COLUMNS = (
    "encoding", "extension", "run", "seed", "task", "length", "depth", "defined", "exact_match",
    "exact_match_low", "exact_match_high", "interval_over", "chance_exact_match", "shown",
    "guessing", "examples", "loss", "rank", "chance_rank", "choices", "scored_tokens",
    "real_length", "real_depth", "text_sha256", "reason",
)  # fmt: skip
SHARE_COLUMNS = (
    "encoding", "extension", "task", "length", "defined", "exact_match", "exact_match_low",
    "exact_match_high", "interval_over", "seeds", "examples_of_a_seed", "guessing", "reason",
)  # fmt: skip


@dataclass(frozen=True)
class Share:
    """Right answers of one encoding to one task at one length, over all depths.

    ``by_seed`` has the share of each seed, over the same ``examples``, and ``value`` is their mean.
    ``low`` and ``high`` bound its 95 % interval ``over`` "seeds": Student's t, cut off at 0 and 1;
    or over "examples", Wilson's, with one seed, and where all seeds have the same share, which says
    nothing of how far others could be from it. Examples of several seeds are never pooled: they are
    the same ones, so they tell no more of other examples than one seed does.

    If a part is not defined, ``reason`` says why, and nothing was asked.
    """

    by_seed: dict[int, float]
    examples: int
    low: float
    high: float
    over: str
    reason: str | None

    @property
    def value(self) -> float:
        """The mean over seeds of the share of examples that are right; NaN if none was asked."""
        return statistics.fmean(self.by_seed.values()) if self.by_seed else float("nan")


def task_rows(run: Run, task: str | None = None) -> list[dict[str, Any]]:
    """The task rows of a run, or those of one task, in the order measured."""
    rows = [row for row in run.rows if row["protocol"] == "task"]
    return [row for row in rows if task in (None, row["task"])]


def tasks_of(study: Study) -> list[str]:
    """The names of all tasks that any run was asked, in the order of appearance."""
    return list(dict.fromkeys(row["task"] for run in study.runs for row in task_rows(run)))


def task_lengths(study: Study, task: str) -> list[int]:
    """The lengths that any run was asked a task at, ascending."""
    return sorted({row["length"] for run in study.runs for row in task_rows(run, task)})


def share(study: Study, label: str, task: str, length: int) -> Share | None:
    """What the seeds of one encoding gave at one length; None if it was not measured."""
    found: dict[int, list[dict[str, Any]]] = {}
    for run in study.encodings[label]:
        rows = [row for row in run.by_length.get(("task", length), []) if row["task"] == task]
        if rows:
            found[run.config["seed"]] = rows
    if not found:
        return None
    undefined = [row for rows in found.values() for row in rows if not row["defined"]]
    if undefined:
        reason = undefined[0].get("reason") or "not defined at this length"
        return Share({}, 0, 0.0, 1.0, "", reason)
    right = {seed: sum(map(_right, rows)) for seed, rows in found.items()}
    asked = {seed: sum(row["examples"] for row in rows) for seed, rows in found.items()}
    shares = {seed: right[seed] / asked[seed] for seed in found}
    values, fewest = list(shares.values()), min(asked.values())
    if len(set(values)) == 1:
        low, high = wilson(round(values[0] * fewest), fewest)
        return Share(shares, fewest, low, high, "examples", None)
    middle, error = statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values))
    half = half_width(error, len(values))
    return Share(shares, fewest, max(0.0, middle - half), min(1.0, middle + half), "seeds", None)


def guessing(study: Study, task: str, length: int) -> float | None:
    """The share of exact matches that guessing reaches, over all depths; None if nothing was asked.

    The better one of two guesses: each token of the answer alone, out of all that answers are made
    of; and one of the answers that the prompt shows, where the rows say how many it does.
    """
    at_length = (row for run in study.runs for row in run.by_length.get(("task", length), []))
    rows = (row for row in at_length if row["task"] == task)
    known = [guess for row in rows if (guess := _guess(row)) is not None]
    return statistics.fmean(known) if known else None


def at_chance(study: Study) -> list[str]:
    """The tasks at which no run is above guessing at any length: each is tested alone (binomial),
    and all tests of a task together find one by chance with a probability of at most 0.05."""
    idle = []
    for task in tasks_of(study):
        tests = []
        for length in task_lengths(study, task):
            found = [share(study, label, task, length) for label in study.encodings]
            guess = guessing(study, task, length)
            for one in found:
                if one is not None and guess is not None:
                    right = [round(value * one.examples) for value in one.by_seed.values()]
                    tests += [float(bdtrc(n - 1, one.examples, guess)) if n else 1.0 for n in right]
        if min(tests, default=1.0) * len(tests) > 0.05:
            idle.append(task)
    return idle


def trained_share(runs: Sequence[Run], task: str) -> tuple[float, float] | None:
    """Least and largest share of the training sequences of these runs that were of a task; None if
    a configuration does not say."""
    mixes = [run.config.get("data", {}).get("mix", {}) for run in runs]
    shares = [float(mix[task]) for mix in mixes if task in mix]
    return (min(shares), max(shares)) if shares and len(shares) == len(runs) else None


def tasks_csv(study: Study) -> str:
    """Every task row of every run, one a line, with a header; losses in nats per answer token."""
    lines: list[Sequence[object]] = [ROW_COLUMNS]
    for label, runs in study.encodings.items():
        for run in runs:
            lines += (_row_line(label, run, row) for row in task_rows(run))
    return _written(lines)


def shares_csv(study: Study) -> str:
    """What the section about tasks shows, seeds and depths together, one cell a line."""
    lines: list[Sequence[object]] = [SHARE_COLUMNS]
    for label, runs in study.encodings.items():
        for task in tasks_of(study):
            for length in task_lengths(study, task):
                found = share(study, label, task, length)
                if found is None:
                    continue
                known = not found.reason
                numbers = (found.value, found.low, found.high) if known else (None, None, None)
                lines.append([
                    label, runs[0].extension or "none", task, length, str(known).lower(), *numbers,
                    found.over, len(found.by_seed), found.examples, guessing(study, task, length),
                    found.reason or "",
                ])  # fmt: skip
    return _written(lines)


def _right(row: Mapping[str, Any]) -> int:
    return round(row["exact_match"] * row["examples"])


def _guess(row: Mapping[str, Any]) -> float | None:
    if row["chance_exact_match"] is None:
        return None
    # rows that were measured before prompts were looked at so do not say it
    shown = row.get("shown")
    # a single answer shown is not guessed but found
    return max(row["chance_exact_match"], 1 / shown if shown and shown > 1 else 0.0)


def _row_line(label: str, run: Run, row: Mapping[str, Any]) -> list[object]:
    low, high = wilson(_right(row), row["examples"]) if row["defined"] else (None, None)
    return [
        label, run.extension or "none", run.name, row["seed"], row["task"], row["length"],
        row["depth"], str(row["defined"]).lower(), row["exact_match"], low, high,
        "examples" if row["defined"] else "", row["chance_exact_match"], row.get("shown"),
        _guess(row), row["examples"], row["loss"], row["rank"], row["chance"], row["choices"],
        row["scored_tokens"], row["real_length"], row["real_depth"], row["text_sha256"],
        row.get("reason") or "",
    ]  # fmt: skip


def _written(lines: Sequence[Sequence[object]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(lines)
    return out.getvalue()
