"""The pictures of tasks: exact match over length, and needles by length and depth."""

import math
from collections.abc import Sequence

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from pipeline.report.collect import Study
from pipeline.report.drawing import INK, STYLE, legend, length_axis, look, veil
from pipeline.report.fragments import counted
from pipeline.report.heatmap import Row, heatmap_stem, needle_figure
from pipeline.report.picture import Part, Picture, Point, mark, whole_part
from pipeline.report.reading import Run
from pipeline.report.task_shares import Share, guessing, share, task_lengths, task_rows, tasks_of
from pipeline.report.tasks import stated

COLUMNS = 3


def draw_tasks(study: Study) -> dict[str, Picture]:
    """File stem -> figure: ``tasks``, and ``needle-<task>`` for each with depths; or nothing."""
    names = tasks_of(study)
    figures = {"tasks": _curves(study, names)} if names else {}
    for task in names:
        panels = _needle_panels(study, task)
        if panels:
            figures[heatmap_stem(task)] = needle_figure(panels, study.train_length, _parts(study))
    return figures


def _curves(study: Study, names: list[str]) -> Picture:
    """One panel per task, one line per encoding, seeds and depths averaged, and seeds as points."""
    columns = min(COLUMNS, len(names))
    lines = math.ceil(len(names) / columns)
    with matplotlib.rc_context(STYLE):
        size = (max(6.0, 3.7 * columns), 0.6 + 2.9 * lines)
        figure = Picture(figsize=size, layout="constrained")
        for number, task in enumerate(names):
            axes = figure.add_subplot(lines, columns, number + 1)
            _panel(figure, axes, study, task, named=number == 0)
            if number % columns == 0:
                axes.set_ylabel("exact match")
            if number + columns >= len(names):
                axes.set_xlabel("length in tokens (log scale)")
        legend(figure)
    return figure


def _panel(figure: Picture, axes: Axes, study: Study, task: str, *, named: bool) -> None:
    axes.set_title(task, fontsize=10.5)
    for label in study.encodings:
        measured = [(n, share(study, label, task, n)) for n in task_lengths(study, task)]
        known = [(n, found) for n, found in measured if found and not found.reason]
        part, name = whole_part(study, label), label if named else ""
        mark(_line(axes, known, part, name, len(study.encodings)), part)
        figure.points += (_point(axes, label, n, found, part) for n, found in known)
        _seeds(figure, axes, label, known, part.encoding)
        if known and any(n > known[-1][0] and found and found.reason for n, found in measured):
            end = axes.plot(
                known[-1][0], known[-1][1].value, marker="|", markersize=18, markeredgewidth=2.6,
                color=look(part.encoding)[0], linestyle="none", zorder=5, clip_on=False,
            )  # fmt: skip
            mark(end, Part(part.encoding, "name"))
    _guesses(axes, study, task)
    axes.set_ylim(0.0, 1.0)
    # whether the task was trained at all is not told by the train length
    length_axis(axes, task_lengths(study, task), study.train_length, "train length")


def _line(
    axes: Axes, known: Sequence[tuple[int, Share]], part: Part, name: str, encodings: int
) -> list[Artist]:
    """Mean and band of one encoding, and its seeds as points."""
    colour, marker = look(part.encoding)
    x = [n for n, _ in known]
    band = axes.fill_between(
        x, [found.low for _, found in known], [found.high for _, found in known],
        color=colour, alpha=veil(encodings), linewidth=0,
    )  # fmt: skip
    y = [found.value for _, found in known]
    line = axes.plot(x, y, color=colour, marker=marker, label=name, clip_on=False)
    seeds = [(n, one) for n, found in known for one in found.by_seed.values()]
    if len(seeds) == len(known):
        return [band, *line]
    dots = axes.plot(
        [n for n, _ in seeds], [one for _, one in seeds], color=colour, marker=".",
        markersize=4, alpha=0.6, linestyle="none", clip_on=False,
    )  # fmt: skip
    return [band, *line, *dots]


def _seeds(
    figure: Picture, axes: Axes, label: str, known: Sequence[tuple[int, Share]], number: int
) -> None:
    """A thin line for each of several seeds."""
    seeds = dict.fromkeys(seed for _, found in known for seed in found.by_seed)
    for seed in seeds if len(seeds) > 1 else ():
        own = [(n, found) for n, found in known if seed in found.by_seed]
        colour, marker = look(number)
        line = axes.plot(
            [n for n, _ in own], [found.by_seed[seed] for _, found in own], color=colour,
            linewidth=0.9, marker=marker, markersize=3.5, clip_on=False,
        )  # fmt: skip
        part = Part(number, "seed", seed)
        mark(line, part)
        figure.points += (_point(axes, label, n, found, part) for n, found in own)


def _point(axes: Axes, label: str, length: int, found: Share, part: Part) -> Point:
    """The number of one encoding, or of the seed of this part, at one length."""
    if part.kind == "seed" and part.seed is not None:
        value = found.by_seed[part.seed]
        text = f"{label}, seed {part.seed}, {length} tokens: {value:.2f}"
    else:
        value = found.value
        of = f"{label}, {counted(len(found.by_seed), 'seed')}, {length} tokens"
        text = f"{of}: {value:.2f}, {found.low:.2f} to {found.high:.2f} over {found.over}"
    return Point(axes, length, value, part, text)


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
    """One panel for each run that has rows of this task."""
    panels: dict[str, list[Row]] = {}
    for label, runs in study.encodings.items():
        for run in runs:
            rows: list[Row] = [row for row in task_rows(run, task) if row["depth"] is not None]
            if rows:
                panels[_panel_title(label, runs, run)] = rows
    return panels


def _parts(study: Study) -> dict[str, Part]:
    """What the panel with each title is of."""
    return {
        _panel_title(label, runs, run): Part(number, "run", run.config["seed"])
        for number, (label, runs) in enumerate(study.encodings.items())
        for run in runs
    }


def _panel_title(label: str, runs: Sequence[Run], run: Run) -> str:
    """The encoding, and its seed where there are several."""
    return f"{label}, seed {run.config['seed']}" if len(runs) > 1 else label
