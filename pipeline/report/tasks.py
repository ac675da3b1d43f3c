"""What a study says about tasks with known answers: pooled shares, the CSV, and the section."""

import csv
import io
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from pipeline.evaluate.proportion import wilson
from pipeline.report.collect import Study
from pipeline.report.fragments import encoding, figure, length_heads, table
from pipeline.report.heatmap import heatmap_stem
from pipeline.report.reading import Run

# a chance below this is not worth a line in a picture
STATED_CHANCE = 0.01
CSV_COLUMNS = (
    "encoding", "extension", "run", "seed", "task", "length", "depth", "defined", "exact_match",
    "exact_match_low", "exact_match_high", "chance_exact_match", "examples", "loss", "rank",
    "chance_rank", "choices", "scored_tokens", "real_length", "real_depth", "text_sha256", "reason",
)  # fmt: skip
CURVES = (
    "Tasks: exact match as the length grows",
    "Share of examples whose answer is right in every token, as greedy decoding would write it; of "
    "needles over all depths. Bands are 95 % Wilson intervals, over all examples of all seeds "
    "(every seed is asked the same ones). Dash-dotted, where it is not near 0: what guessing among "
    "the tokens of answers would reach. A bar ends the line of an encoding that is not defined "
    "further.",
)
HEATMAP = (
    "share of exact matches by length and depth",
    "Depth is where the needle lies in the text, from 0 = first to 1 = last; where it really "
    "begins, as a share of the prompt, is in tasks.csv. Dotted: the train length. Hatched: not "
    "defined.",
)


@dataclass(frozen=True)
class Share:
    """Right answers of one encoding to one task at one length, over its seeds and all depths.

    ``low`` and ``high`` bound the 95 % Wilson interval of ``right`` / ``asked``. If a part of it is
    not defined, ``reason`` says why, and nothing was asked.
    """

    right: int
    asked: int
    low: float
    high: float
    reason: str | None

    @property
    def value(self) -> float:
        """The share of examples that are right; NaN if nothing was asked."""
        return self.right / self.asked if self.asked else float("nan")


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
    found = [row for run in study.encodings[label] for row in task_rows(run, task)]
    rows = [row for row in found if row["length"] == length]
    if not rows:
        return None
    undefined = [row for row in rows if not row["defined"]]
    if undefined:
        return Share(0, 0, 0.0, 1.0, undefined[0].get("reason") or "not defined at this length")
    right, asked = sum(map(_right, rows)), sum(row["examples"] for row in rows)
    return Share(right, asked, *wilson(right, asked), reason=None)


def chance(study: Study, task: str) -> float:
    """The share of exact matches that guessing among the choices reaches."""
    rows = [row for run in study.runs for row in task_rows(run, task)]
    known = [row["chance_exact_match"] for row in rows if row["chance_exact_match"] is not None]
    return statistics.fmean(known) if known else 0.0


def tasks_csv(study: Study) -> str:
    """Every task row of every run, one a line, with a header; losses in nats per answer token."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for label, runs in study.encodings.items():
        for run in runs:
            writer.writerows(_csv_line(label, run, row) for row in task_rows(run))
    return out.getvalue()


def tasks_section(study: Study, pictures: Mapping[str, str]) -> str:
    """Curves, table and heatmaps of all tasks; empty if there are none."""
    names = tasks_of(study)
    if not names:
        return ""
    lengths = sorted({length for task in names for length in task_lengths(study, task)})
    bodies = "".join(_table_body(study, task, lengths) for task in names)
    head = f"<th>exact match</th>{length_heads(study, lengths)}"
    note = (
        "Share of examples right in every token, with its 95 % Wilson interval; every task row, "
        "with losses and ranks, is in tasks.csv."
    )
    parts = [
        figure(pictures["tasks"], *CURVES),
        f'<section>{table(head, bodies)}<div class="notes"><p>{note}</p></div></section>',
    ]
    for task in names:
        if (stem := heatmap_stem(task)) in pictures:
            parts.append(figure(pictures[stem], f"{task}: {HEATMAP[0]}", HEATMAP[1]))
    return "\n".join(parts)


def _table_body(study: Study, task: str, lengths: list[int]) -> str:
    guessed = chance(study, task)
    said = f" <small>guessing: {guessed:.2f}</small>" if guessed >= STATED_CHANCE else ""
    rows = f'<tr><th colspan="{1 + len(lengths)}">{escape(task)}{said}</th></tr>'
    for label in study.encodings:
        cells = "".join(
            _cell(share(study, label, task, length), length == study.train_length)
            for length in lengths
        )
        rows += f"<tr>{encoding(study, label)}{cells}</tr>"
    return f'<tbody class="encoding">{rows}</tbody>'


def _cell(found: Share | None, trained: bool) -> str:
    if found is None:
        return "<td>–</td>"
    if found.reason:
        return f'<td class="undefined" title="{escape(found.reason)}">not defined</td>'
    mark = ' class="trained"' if trained else ""
    interval = f"<small> {found.low:.2f}–{found.high:.2f}</small>"
    return f"<td{mark}>{found.value:.2f}{interval}</td>"


def _right(row: Mapping[str, Any]) -> int:
    return round(row["exact_match"] * row["examples"])


def _csv_line(label: str, run: Run, row: Mapping[str, Any]) -> list[object]:
    low, high = wilson(_right(row), row["examples"]) if row["defined"] else (None, None)
    return [
        label, run.extension or "none", run.name, row["seed"], row["task"], row["length"],
        row["depth"], str(row["defined"]).lower(), row["exact_match"], low, high,
        row["chance_exact_match"], row["examples"], row["loss"], row["rank"], row["chance"],
        row["choices"], row["scored_tokens"], row["real_length"], row["real_depth"],
        row["text_sha256"], row.get("reason") or "",
    ]  # fmt: skip
