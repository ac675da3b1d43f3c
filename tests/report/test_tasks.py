"""Task rows in a report: what is refused, pooled, drawn and written."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import QuadMesh
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from pipeline.errors import DataError
from pipeline.record.metrics import read_rows
from pipeline.report.appendix import other_protocols
from pipeline.report.collect import Study, collect
from pipeline.report.drawing import COLOURS
from pipeline.report.heatmap import needle_figure
from pipeline.report.page import build_report
from pipeline.report.picture import Part
from pipeline.report.reading import read_run
from pipeline.report.sections import main_table
from pipeline.report.table import csv_table, text_table
from pipeline.report.task_pictures import draw_tasks
from pipeline.report.task_shares import guessing, share
from tests.report.synthetic import FATE, TRAIN_LENGTH, write_rows, write_run
from tests.report.test_curves import xs, ys
from tests.report.test_page import Page

LENGTHS, DEPTHS, EXAMPLES = (64, 128, 256, 512), (0.0, 0.5, 1.0), 20
GUESSED = {"copy": 0.0, "parity": 0.5, "passkey": 0.0}
REASON = f"this position encoding is not defined beyond {TRAIN_LENGTH} tokens"


def right(position: str, task: str, length: int, depth: float | None, seed: int) -> int | None:
    """Made-up right answers out of `EXAMPLES`; None where the encoding is not defined."""
    doublings = max(0.0, math.log2(length / TRAIN_LENGTH))
    if doublings and FATE[position] is None:
        return None
    draw = np.random.default_rng([seed, length, len(position), len(task), round(4 * (depth or 0))])
    fails = min(1.0, doublings * abs(FATE[position] or 0) * (0.8 if depth is None else 1 - depth))
    p = GUESSED[task] + (1 - GUESSED[task]) * (1 - fails)
    return int(draw.binomial(EXAMPLES, p))


def task_row(
    task: str, length: int, depth: float | None, correct: int | None, **more: Any
) -> dict[str, Any]:
    """A row of a task, not defined without right answers."""
    known = correct is not None
    return {
        "key": f"task-{task}-{length}-{depth}", "protocol": "task", "task": task, "length": length,
        "depth": depth, "defined": known, "reason": None if known else REASON,
        "exact_match": None if correct is None else correct / EXAMPLES, "standard_error": None,
        "loss": 0.25 if known else None, "rank": 1.5 if known else None, "choices": 2,
        "chance": 1.5, "chance_exact_match": GUESSED[task], "examples": EXAMPLES,
        "documents": EXAMPLES, "scored_tokens": 3 * EXAMPLES if known else 0,
        "real_length": length - 0.5, "real_depth": depth, "perplexity": None, **more,
    }  # fmt: skip


def write_tasks(folder: Path, position: str, seed: int = 0) -> Path:
    """Add rows of every task to a run folder; returns it."""
    path = folder / "evaluation" / "rows.jsonl"
    rows = read_rows(path)
    fields = ("split", "position", "seed", "train_length", "step", "tokens", "precision",
              "corpus_sha256", "tokenizer_sha256", "code_sha256")  # fmt: skip
    shared = {name: rows[0][name] for name in fields}
    for task in GUESSED:
        for length in LENGTHS:
            for depth in DEPTHS if task == "passkey" else (None,):
                row = task_row(task, length, depth, right(position, task, length, depth, seed))
                digest = f"{task}-{length}-{depth}".ljust(64, "0")
                rows.append({**row, **shared, "text_sha256": digest})
    write_rows(path, rows)
    return folder


def made(tmp_path: Path, *names: str, seeds: int = 1) -> list[Path]:
    return [
        write_tasks(write_run(tmp_path / "runs", name, seed), name, seed)
        for name in names
        for seed in range(seeds)
    ]


def edit(folder: Path, asked: str, **changes: Any) -> None:
    """Change fields of every row of one task."""
    path = folder / "evaluation" / "rows.jsonl"
    write_rows(path, [r | changes if r.get("task") == asked else r for r in read_rows(path)])


def panels(study: Study) -> dict[str, Axes]:
    return {axes.get_title(): axes for axes in draw_tasks(study)["tasks"].axes}


def test_one_panel_per_task_one_line_per_encoding(tmp_path: Path) -> None:
    study = collect(made(tmp_path, "learned", "rope", seeds=2))
    found = panels(study)
    assert list(found) == list(GUESSED)
    for task, axes in found.items():
        assert axes.get_ylim() == (0.0, 1.0) and axes.get_xscale() == "log"
        drawn = [x for x in axes.lines if to_hex(x.get_color()) == COLOURS[1]]
        expected = [share(study, "rope", task, length) for length in LENGTHS]
        assert xs(drawn[0]) == list(LENGTHS)
        assert ys(drawn[0]) == [one.value for one in expected if one]
        (points,) = (x for x in drawn if x.get_marker() == ".")
        assert list(zip(xs(points), ys(points), strict=True)) == [
            (length, y)
            for length, one in zip(LENGTHS, expected, strict=True) if one
            for y in one.by_seed.values()
        ]  # fmt: skip
        ends = [x for x in axes.lines if x.get_marker() == "|"]
        assert [(to_hex(x.get_color()), xs(x)) for x in ends] == [(COLOURS[0], [128])]


def test_guessing_is_stated_where_it_is_not_near_nothing(tmp_path: Path) -> None:
    study = collect(made(tmp_path, "rope"))
    assert (guessing(study, "parity", 64), guessing(study, "copy", 64)) == (0.5, 0.0)
    assert guessing(study, "parity", 1024) is None
    for task, axes in panels(study).items():
        said = [text.get_text() for text in axes.texts]
        dotted = [x for x in axes.lines if ys(x) == [0.5] * len(LENGTHS)]
        assert ("guessing 0.50" in said, len(dotted)) == (task == "parity", task == "parity")


def test_nothing_says_that_a_task_was_trained_at_the_train_length(tmp_path: Path) -> None:
    runs = [
        write_tasks(write_run(tmp_path, name, config={"data": {"mix": mix}}), name)
        for name, mix in (
            ("rope", {"copy": 0.05, "parity": 0}),
            ("alibi", {"copy": 0.1, "parity": 0}),
        )
    ]
    study = collect(runs)
    figures = draw_tasks(study)
    words = [x.get_text() for f in figures.values() for axes in f.axes for x in axes.texts]
    assert "train length" in words and "trained up to here" not in words
    html = build_report(runs, tmp_path / "out").read_text()
    assert "<th>copy <small>5 to 10 % of training</small></th>" in html
    assert "<th>parity <small>not in training</small></th>" in html
    assert "<th>passkey <small>share of training not stated</small></th>" in html


def test_a_heatmap_has_each_number_at_its_length_and_depth(tmp_path: Path) -> None:
    study = collect(made(tmp_path, "learned", "rope", seeds=2))
    figure = draw_tasks(study)["needle-passkey"]
    FigureCanvasAgg(figure).draw()
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == [f"{name}, seed {seed}" for name in ("learned", "rope") for seed in (0, 1)]
    learned, rope = figure.axes[1], figure.axes[3]
    for axes in (learned, rope):
        assert [x.get_text() for x in axes.get_xticklabels()] == [str(n) for n in LENGTHS]
        assert [x.get_text() for x in axes.get_yticklabels()] == ["0", "0.5", "1"]
        assert axes.get_ylim() == (3, 0)
        (mark,) = axes.lines
        assert xs(mark) == [2, 2]
        (mesh,) = (x for x in axes.collections if isinstance(x, QuadMesh))
        assert mesh.get_clim() == (0.0, 1.0)
    cells = {
        (x.get_position()[0] - 0.5, x.get_position()[1] - 0.5): x.get_text()
        for x in rope.texts[:-1]
    }
    assert cells == {
        (column, line): f"{(right('rope', 'passkey', length, depth, 1) or 0) / EXAMPLES:.2f}"
        for column, length in enumerate(LENGTHS)
        for line, depth in enumerate(DEPTHS)
    }
    assert figure.get_supxlabel() == "in each cell: 20 examples"
    hatched = [x for x in learned.patches if isinstance(x, Rectangle) and x.get_hatch()]
    assert sorted(x.get_xy() for x in hatched) == [(x, y) for x in (2, 3) for y in range(3)]
    assert len(learned.texts) == 2 * 3 + 1


def test_numbers_are_read_on_dark_and_on_light() -> None:
    rows = [task_row("passkey", n, 0.5, correct) for n, correct in ((64, 0), (128, 20))]
    light, dark, _ = needle_figure({"rope": rows}, 128, {"rope": Part(0, "run")}).axes[0].texts
    assert (light.get_color(), dark.get_color()) == ("#111111", "#ffffff")


def test_the_page_shows_tasks_between_the_other_sections(tmp_path: Path) -> None:
    runs = made(tmp_path, "learned", "rope", seeds=2)
    html = build_report(runs, tmp_path / "out").read_text()
    page = Page(html)
    assert page.open == [] and page.asks == [] and len(page.ids) == len(set(page.ids))
    assert html.index("Loss at each position") < html.index("Tasks: exact match")
    assert html.index("passkey: share of exact matches") < html.index("<h2>Training</h2>")
    assert page.order.count("figure") == 3 + 2
    found = share(collect(runs), "rope", "passkey", 128)
    assert found
    cell = f" {found.low:.2f}–{found.high:.2f}</small></td>"
    start = f'<td class="trained">{found.value:.2f}<small title="over {found.over}; 2 seeds, of 60 '
    assert start in html and cell in html.partition(start)[2].partition("</td>")[0] + "</td>"
    assert html.count(f'<td class="undefined" title="{REASON}">not defined</td>') == 3 * 2
    assert html.count("<td><small>guessing 0.50</small></td>") == len(LENGTHS)
    assert "In each cell: 20 examples. The prompt shows one number only" in page.words
    for words in ("Stopping is not tested", "All seeds are asked the same examples"):
        assert words in page.words
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written >= {"tasks.csv", "task_shares.csv", "tasks.png", "needle-passkey.png"}


def test_a_page_about_runs_without_tasks_does_not_mention_them(tmp_path: Path) -> None:
    html = build_report([write_run(tmp_path, "rope")], tmp_path / "out").read_text()
    assert "exact match" not in html
    assert not [path for path in (tmp_path / "out").iterdir() if "task" in path.name]


def test_task_rows_leave_the_main_table_as_it_was(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "bare", "rope"), *made(tmp_path, "rope")]
    bare, tasked = (collect([run]) for run in runs)
    assert text_table(tasked) == text_table(bare) and csv_table(tasked) == csv_table(bare)
    assert main_table(tasked) == main_table(bare)
    assert other_protocols(tasked) == other_protocols(bare)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"task": "../copy"}, "`task` = '../copy' is no name of a task"),
        ({"exact_match": None}, "`exact_match` = null must be int or float"),
        ({"exact_match": 1.5}, "`exact_match` = 1.5 of `examples` = 20 is no share"),
        ({"examples": 0}, "`exact_match` = 1.0 of `examples` = 0 is no share"),
        ({"rank": "1"}, '`rank` = "1" must be'),
        ({"shown": "1"}, '`shown` = "1" must be int or null'),
    ],
)
def test_a_row_that_cannot_be_is_refused_with_its_line(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    (folder,) = made(tmp_path, "rope")
    edit(folder, "copy", **changes)
    rows = (folder / "evaluation" / "rows.jsonl").read_text().splitlines()
    number = next(i for i, row in enumerate(rows, 1) if json.loads(row)["protocol"] == "task")
    with pytest.raises(DataError) as caught:
        read_run(folder)
    assert f"rows.jsonl:{number}: {said}" in str(caught.value)


def test_runs_asked_other_examples_are_not_put_side_by_side(tmp_path: Path) -> None:
    one, two = made(tmp_path, "rope", "alibi")
    collect([one, two])
    edit(two, "parity", text_sha256="ff" * 32)
    with pytest.raises(DataError, match="text_sha256 differs"):
        collect([one, two])
