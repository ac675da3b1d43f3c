"""The pictures of tasks: exact match over length, and needles by length and depth."""

import math

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipeline.report.collect import Study
from pipeline.report.drawing import INK, STYLE, legend, length_axis, look
from pipeline.report.heatmap import Row, heatmap_stem, needle_figure
from pipeline.report.task_shares import guessing, share, task_lengths, task_rows, tasks_of
from pipeline.report.tasks import stated

COLUMNS = 3


def draw_tasks(study: Study) -> dict[str, Figure]:
    """File stem -> figure: ``tasks``, and ``needle-<task>`` for each with depths; or nothing."""
    names = tasks_of(study)
    figures = {"tasks": _curves(study, names)} if names else {}
    for task in names:
        panels = _needle_panels(study, task)
        if panels:
            figures[heatmap_stem(task)] = needle_figure(panels, study.train_length)
    return figures


def _curves(study: Study, names: list[str]) -> Figure:
    """One panel per task, one line per encoding, seeds and depths averaged, and seeds as points."""
    columns = min(COLUMNS, len(names))
    lines = math.ceil(len(names) / columns)
    with matplotlib.rc_context(STYLE):
        size = (max(6.0, 3.7 * columns), 0.6 + 2.9 * lines)
        figure = Figure(figsize=size, layout="constrained")
        for number, task in enumerate(names):
            axes = figure.add_subplot(lines, columns, number + 1)
            _panel(axes, study, task, named=number == 0)
            if number % columns == 0:
                axes.set_ylabel("exact match")
            if number + columns >= len(names):
                axes.set_xlabel("length in tokens (log scale)")
        legend(figure)
    return figure


def _panel(axes: Axes, study: Study, task: str, *, named: bool) -> None:
    axes.set_title(task, fontsize=10.5)
    for number, label in enumerate(study.encodings):
        colour, marker = look(number)
        measured = [(n, share(study, label, task, n)) for n in task_lengths(study, task)]
        known = [(n, found) for n, found in measured if found and not found.reason]
        x = [n for n, _ in known]
        axes.fill_between(
            x, [found.low for _, found in known], [found.high for _, found in known],
            color=colour, alpha=0.14, linewidth=0,
        )  # fmt: skip
        y = [found.value for _, found in known]
        axes.plot(x, y, color=colour, marker=marker, label=label if named else "", clip_on=False)
        seeds = [(n, one) for n, found in known for one in found.by_seed.values()]
        if len(seeds) > len(known):
            axes.plot(
                [n for n, _ in seeds], [one for _, one in seeds], color=colour, marker=".",
                markersize=4, alpha=0.6, linestyle="none", clip_on=False,
            )  # fmt: skip
        if known and any(n > x[-1] and found and found.reason for n, found in measured):
            axes.plot(
                x[-1:], y[-1:], marker="|", markersize=18, markeredgewidth=2.6, color=colour,
                linestyle="none", zorder=5, clip_on=False,
            )  # fmt: skip
    _guesses(axes, study, task)
    axes.set_ylim(0.0, 1.0)
    # whether the task was trained at all is not told by the train length
    length_axis(axes, task_lengths(study, task), study.train_length, "train length")


def _guesses(axes: Axes, study: Study, task: str) -> None:
    """What guessing reaches at each length, where it is not near 0 at all of them."""
    found = [(n, guessing(study, task, n)) for n in task_lengths(study, task)]
    known = [(n, guess) for n, guess in found if guess is not None]
    if not any(stated(guess) for _, guess in known):
        return
    x, y = [n for n, _ in known], [guess for _, guess in known]
    axes.plot(x, y, color=INK, linewidth=1.0, linestyle="-.", alpha=0.7)
    low, high = (f"{edge:.2f}" for edge in (min(y), max(y)))
    axes.annotate(
        f"guessing {low if low == high else f'{low} to {high}'}", (1.0, y[-1]),
        xycoords=("axes fraction", "data"), xytext=(-3, 2), textcoords="offset points",
        ha="right", va="bottom", fontsize=8.5,
    )  # fmt: skip


def _needle_panels(study: Study, task: str) -> dict[str, list[Row]]:
    """One panel for each run, named by its encoding, and by its seed where there are several."""
    panels: dict[str, list[Row]] = {}
    for label, runs in study.encodings.items():
        for run in runs:
            rows: list[Row] = [row for row in task_rows(run, task) if row["depth"] is not None]
            seed = f", seed {run.config['seed']}" if len(runs) > 1 else ""
            if rows:
                panels[f"{label}{seed}"] = rows
    return panels
