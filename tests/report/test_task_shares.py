"""Shares of right answers and what guessing reaches: over what they vary, and the CSVs."""

import csv
import math
import statistics
from pathlib import Path

import pytest

from pipeline.evaluate.proportion import wilson
from pipeline.record.metrics import read_rows
from pipeline.report.collect import collect
from pipeline.report.task_shares import guessing, share, shares_csv, tasks_csv
from pipeline.report.tasks import stated
from tests.report.synthetic import write_extended, write_rows
from tests.report.test_curves import xs, ys
from tests.report.test_tasks import DEPTHS, EXAMPLES, LENGTHS, REASON, edit, made, panels, right


def set_shares(runs: list[Path], task: str, length: int, counts: list[int]) -> None:
    """Right answers of each run to a task at a length, at every depth."""
    for run, count in zip(runs, counts, strict=True):
        path = run / "evaluation" / "rows.jsonl"
        cell = {"task": task, "length": length}
        new = {"exact_match": count / EXAMPLES}
        rows = read_rows(path)
        write_rows(path, [row | new if cell.items() <= row.items() else row for row in rows])


def test_over_seeds_the_interval_is_of_the_shares_of_seeds(tmp_path: Path) -> None:
    runs = made(tmp_path, "rope", seeds=3)
    set_shares(runs, "copy", 512, [2, 10, 9])
    found = share(collect(runs), "rope", "copy", 512)
    assert found
    assert found.by_seed == {0: 0.1, 1: 0.5, 2: 0.45}
    assert (found.over, found.examples) == ("seeds", EXAMPLES)
    assert found.value == pytest.approx(0.35)
    # t of 0.975 with 2 degrees of freedom, and the cut at 0
    assert found.high == pytest.approx(0.35 + 4.302652730 * 0.217944947 / math.sqrt(3))
    assert found.low == 0.0
    pooled = wilson(21, 3 * EXAMPLES)
    assert found.high - found.low > 2 * (pooled[1] - pooled[0])


def test_depths_of_one_seed_are_examples_of_one_share(tmp_path: Path) -> None:
    study = collect(made(tmp_path, "rope"))
    counts = [right("rope", "passkey", 512, depth, 0) or 0 for depth in DEPTHS]
    asked = EXAMPLES * len(DEPTHS)
    found = share(study, "rope", "passkey", 512)
    assert found
    assert (found.over, found.examples, found.by_seed) == (
        "examples", asked, {0: sum(counts) / asked},
    )  # fmt: skip
    assert (found.low, found.high) == wilson(sum(counts), asked)
    assert share(study, "rope", "copy", 1024) is None


def test_seeds_that_agree_are_as_sure_as_one(tmp_path: Path) -> None:
    """The spread of nothing is no interval, and the same examples are not three times as many."""
    runs = made(tmp_path, "rope", seeds=3)
    set_shares(runs, "copy", 512, [EXAMPLES] * 3)
    found = share(collect(runs), "rope", "copy", 512)
    assert found
    assert (found.value, found.over, found.low, found.high) == (
        1.0, "examples", *wilson(EXAMPLES, EXAMPLES),
    )  # fmt: skip


def test_shares_have_a_csv_that_says_over_what_their_intervals_are(tmp_path: Path) -> None:
    runs = made(tmp_path, "learned", "rope", seeds=2)
    set_shares(runs[2:], "copy", 512, [5, 10])
    edit(runs[2], "copy", shown=1)
    study = collect(runs)
    lines = list(csv.DictReader(shares_csv(study).splitlines()))
    assert len(lines) == 2 * 3 * len(LENGTHS)
    cells = {(x["encoding"], x["task"], x["length"]): x for x in lines}
    found, line = share(study, "rope", "copy", 512), cells["rope", "copy", "512"]
    assert found
    ends = (float(line["exact_match_low"]), float(line["exact_match_high"]))
    assert (float(line["exact_match"]), *ends) == (0.375, found.low, found.high)
    assert (line["interval_over"], line["seeds"], line["examples_of_a_seed"]) == (
        "seeds", "2", "20",
    )  # fmt: skip
    line = cells["learned", "parity", "256"]
    assert (line["defined"], line["exact_match"], line["interval_over"], line["reason"]) == (
        "false", "", "", REASON,
    )  # fmt: skip
    assert line["guessing"] == "0.5"


def test_where_an_encoding_is_not_defined_nothing_was_asked(tmp_path: Path) -> None:
    found = share(collect(made(tmp_path, "learned")), "learned", "passkey", 256)
    assert found
    assert (found.by_seed, found.examples, found.reason) == ({}, 0, REASON)


def test_the_csv_has_every_task_row(tmp_path: Path) -> None:
    runs = made(tmp_path, "learned", "rope", seeds=2)
    write_extended(runs[2], "yarn", "scale=4")
    lines = list(csv.DictReader(tasks_csv(collect(runs)).splitlines()))
    assert len(lines) == 5 * len(LENGTHS) * (2 + len(DEPTHS))
    assert {line["extension"] for line in lines} == {"none", "yarn scale=4"}
    one = next(
        x for x in lines
        if (x["encoding"], x["seed"], x["task"], x["length"], x["depth"])
        == ("rope", "1", "passkey", "512", "0.5")
    )  # fmt: skip
    count = right("rope", "passkey", 512, 0.5, 1) or 0
    low, high = wilson(count, EXAMPLES)
    assert float(one["exact_match"]) == count / EXAMPLES
    assert (float(one["exact_match_low"]), float(one["exact_match_high"])) == (low, high)
    assert (one["rank"], one["chance_rank"], one["choices"]) == ("1.5", "1.5", "2")
    # rows that were measured before prompts were looked at so
    assert (one["interval_over"], one["shown"], one["guessing"]) == ("examples", "", "0.0")
    undefined = [line for line in lines if line["defined"] == "false"]
    assert len(undefined) == 2 * 2 * 5
    assert {(line["exact_match"], line["reason"]) for line in undefined} == {("", REASON)}


def test_guessing_among_the_answers_shown_is_a_guess_at_each_length(tmp_path: Path) -> None:
    """As in recall, whose short prompts have few values to choose from."""
    runs = made(tmp_path, "rope")
    path = runs[0] / "evaluation" / "rows.jsonl"
    rows = read_rows(path)
    shown = dict(zip(LENGTHS, (2, 4, 1, None), strict=True))
    changed = {"chance_exact_match": 0.01}
    write_rows(
        path,
        [
            r | changed | {"shown": shown[r["length"]]} if r.get("task") == "copy" else r
            for r in rows
        ],
    )
    study = collect(runs)
    assert [guessing(study, "copy", n) for n in LENGTHS] == [0.5, 0.25, 0.01, 0.01]
    axes = panels(study)["copy"]
    (line,) = (x for x in axes.lines if x.get_linestyle() == "-.")
    assert (xs(line), ys(line)) == (list(LENGTHS), [0.5, 0.25, 0.01, 0.01])
    assert "guessing 0.01 to 0.50" in [text.get_text() for text in axes.texts]
    lines = csv.DictReader(tasks_csv(study).splitlines())
    assert [(x["shown"], x["guessing"]) for x in lines if x["task"] == "copy"] == [
        ("2", "0.5"), ("4", "0.25"), ("1", "0.01"), ("", "0.01"),
    ]  # fmt: skip


def test_a_hundredth_is_stated_however_many_rows_it_is_the_mean_of() -> None:
    means = [statistics.fmean([0.01] * n) for n in range(1, 400)]
    assert min(means) < 0.01 and all(map(stated, means))
    assert not stated(0.009) and not stated(None)
