"""The pictures of a report: loss over length, over position, and over training."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from pipeline.report.collect import Cell, Study
from pipeline.report.drawing import (
    DASHED,
    INK,
    STYLE,
    end_bar,
    foot_note,
    legend,
    length_axis,
    look,
    short_number,
    veil,
)
from pipeline.report.fragments import counted
from pipeline.report.picture import Part, Picture, Point, mark, whole_part
from pipeline.report.reading import Run
from pipeline.report.table import beyond, shown

THIN = 0.9
SHORT, NAMED = 24, 3  # letters of a name at the foot of the axes, and names that stand there


def draw(study: Study) -> dict[str, Picture]:
    """File stem -> figure: ``suffix``, and ``per-position`` and ``training`` if they have rows."""
    with matplotlib.rc_context(STYLE):
        figures = {"suffix": suffix_figure(study)}
        if any(row["protocol"] == "per-position" for run in study.runs for row in run.rows):
            figures["per-position"] = per_position_figure(study)
        if any(run.train_rows for run in study.runs):
            figures["training"] = training_figure(study)
    return figures


def suffix_figure(study: Study) -> Picture:
    """Suffix loss over length with intervals; dashed, the window control of each encoding.

    Where encodings that fail would press the others together, a second panel shows those near the
    best.
    """
    figure = Picture(figsize=(11, 5.0), layout="constrained")
    near = _close_up(study)
    panels = [None] if near is None else [None, near]
    for column, bounds in enumerate(panels, start=1):
        axes = figure.add_subplot(1, len(panels), column)
        # Room at the foot for what is said about lines that end.
        axes.margins(y=0.12)
        lines = {
            label: _suffix_line(figure, axes, study, label, named=column == 1)
            for label in study.encodings
        }
        _mark_ends(axes, study, {label: end for label, end in lines.items() if end})
        length_axis(axes, study.lengths("suffix"), study.train_length)
        axes.set_xlabel("length in tokens (log scale)")
        if column == 1:
            axes.set_ylabel("suffix loss (nats per token)")
            axes.plot([], [], color=INK, linestyle=DASHED, linewidth=1.2, label="window control")
        if bounds is not None:
            axes.set_ylim(bounds)
            axes.set_title("close-up", fontsize=10.5)
    legend(figure)
    return figure


def per_position_figure(study: Study) -> Picture:
    """Mean loss at each position of the longest sequence that each encoding is defined for."""
    figure = Picture(figsize=(11, 4.6), layout="constrained")
    axes = figure.add_subplot()
    axes.margins(y=0.12)
    furthest = study.train_length
    ends: dict[str, tuple[float, float]] = {}
    for number, (label, runs) in enumerate(study.encodings.items()):
        for index, run in enumerate(runs):
            x, y = _per_position(run)
            name = "" if index else label
            drawn = axes.plot(x, y, linewidth=1.5, label=name, **_sparse(number, index, len(x)))
            mark(drawn, Part(number, "run", run.config["seed"]))
            furthest = max([furthest, *map(int, x[-1:])])
            if x and index == 0:
                ends[label] = x[-1], y[-1]
    _mark_ends(axes, study, ends)
    ticks = [2**power for power in range(4, 31) if 2**power <= 1.5 * furthest]
    length_axis(axes, ticks, study.train_length)
    axes.set_xlabel("position (log scale)")
    axes.set_ylabel("loss (nats per token)")
    legend(figure)
    return figure


def training_figure(study: Study) -> Picture:
    """Training loss over tokens and, if there were any, the short evaluations on the way."""
    lengths = sorted({row["length"] for run in study.runs for row in run.short_rows})
    inside = [length for length in lengths if length <= study.train_length]
    panels: list[tuple[str, Callable[[Run], list[tuple[int, float]]]]] = [
        ("training loss", _trained)
    ]
    for length in dict.fromkeys([*inside[-1:], *lengths[-1:]]):
        panels.append((f"suffix loss at {length}", partial(_short, length)))
    figure = Picture(figsize=(11, 3.7), layout="constrained")
    for column, (title, points) in enumerate(panels, start=1):
        axes = figure.add_subplot(1, len(panels), column)
        for number, label in enumerate(study.encodings):
            for index, run in enumerate(study.trained.get(label, [])):
                known = points(run)
                name = label if column == 1 and index == 0 else ""
                drawn = axes.plot(
                    [x for x, _ in known], [y for _, y in known], linewidth=1.3, label=name,
                    **_sparse(number, index, len(known)),
                )  # fmt: skip
                mark(drawn, Part(number, "run", run.config["seed"]))
        axes.set_title(title, fontsize=10.5)
        axes.set_xlabel("tokens")
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))
        if column == 1:
            axes.set_ylabel("nats per token")
    legend(figure)
    return figure


def _close_up(study: Study) -> tuple[float, float] | None:
    """Lowest and highest loss of a panel for the encodings near the best; None if all are."""
    known = [_known(study, label, "suffix") for label in study.encodings]
    points = [(x, y) for xs, ys, _ in known for x, y in zip(xs, ys, strict=True)]
    losses = [loss for _, loss in points]
    settled = [loss for x, loss in points if x <= study.train_length]
    if not settled:
        return None
    lowest, spread = min(losses), max(settled) - min(losses)
    # Without spread there is no range to look at closely.
    if spread == 0 or max(losses) - lowest < 4 * spread:
        return None
    return lowest - 0.3 * spread, lowest + 1.35 * spread


def _suffix_line(
    figure: Picture, axes: Axes, study: Study, label: str, *, named: bool
) -> tuple[float, float] | None:
    """Mean, band and window control of one encoding, and thin lines of its seeds; returns where
    the mean ends."""
    part, runs = whole_part(study, label), study.encodings[label]
    colour, marker = look(part.encoding)
    x, y, half = _known(study, label, "suffix")
    low = [value - width for value, width in zip(y, half, strict=True)]
    high = [value + width for value, width in zip(y, half, strict=True)]
    band = axes.fill_between(
        x, low, high, color=colour, alpha=veil(len(study.encodings)), linewidth=0
    )
    line = axes.plot(x, y, color=colour, marker=marker, label=label if named else "")
    mark([band, *line, *_control(axes, study, label, colour, None)], part)
    figure.points += _points(axes, study, label, part)
    end = (x[-1], y[-1]) if x else None
    for run in runs if len(runs) > 1 else ():
        of_seed = Part(part.encoding, "seed", run.config["seed"])
        x, y, _ = _known(study, label, "suffix", of_seed.seed)
        thin = axes.plot(x, y, color=colour, linewidth=THIN, marker=marker, markersize=3.5)
        mark([*thin, *_control(axes, study, label, colour, of_seed.seed)], of_seed)
        figure.points += _points(axes, study, label, of_seed)
    return end


def _control(axes: Axes, study: Study, label: str, colour: str, seed: int | None) -> list[Line2D]:
    """The dashed line of the window control."""
    x, y, _ = _known(study, label, "window control", seed)
    width = 1.2 if seed is None else 0.7
    if len(x) == 1:
        # Measured once: the scored targets see the same window at every longer length.
        x, y = [x[0], max(x[0], study.lengths("suffix")[-1])], y * 2
    return axes.plot(x, y, color=colour, linestyle=DASHED, linewidth=width, alpha=0.9)


def _points(axes: Axes, study: Study, label: str, part: Part) -> Iterator[Point]:
    """The numbers of the suffix loss at each length."""
    for length, cell in _cells(study, label, "suffix", part.seed):
        of = f"{label}, {counted(cell.seeds, 'seed')}"
        if part.seed is not None:
            of = f"{label}, seed {part.seed}"
        text = f"{of}, {length} tokens: {shown(cell, 'loss')} nats, perplexity "
        yield Point(axes, length, cell.loss or 0.0, part, text + shown(cell, "perplexity"))


def _mark_ends(axes: Axes, study: Study, ends: Mapping[str, tuple[float, float]]) -> None:
    """A bar where each line ends for a reason, and at the foot the reasons: of each encoding by
    name, of many that have the same one once."""
    labels, row = list(study.encodings), 0
    reasons = {label: text for label in ends if (text := beyond(study, label)) is not None}
    for text in dict.fromkeys(reasons.values()):
        same = [label for label in reasons if reasons[label] == text]
        for label in same:
            part = Part(labels.index(label), "name")
            colour, _ = look(part.encoding)
            mark(end_bar(axes, ends[label], colour), part)
            if len(same) <= NAMED:
                # longer names would push the axes together
                name = label if len(label) <= SHORT else f"{label[: SHORT - 1]}…"
                note = foot_note(axes, ends[label][0], f"{name}: {text}", colour, row=row)
                mark([note], part)
                row += 1
        if len(same) > NAMED:
            foot_note(axes, ends[same[0]][0], f"{len(same)} encodings: {text}", INK, row=row)
            row += 1


def _sparse(number: int, index: int, points: int) -> dict[str, Any]:
    """Colour, and a marker here and there, of a line with many points."""
    colour, marker = look(number)
    every = max(1, points // 6)
    start = (number + 2 * index) % every
    return {"color": colour, "marker": marker, "markevery": (start, every), "markersize": 4}


def _cells(study: Study, label: str, protocol: str, seed: int | None) -> list[tuple[int, Cell]]:
    """Lengths and what the seeds gave together, or this one, where measured and defined."""
    lengths = study.lengths(protocol)
    found = ((length, study.cell(label, protocol, length, seed)) for length in lengths)
    return [(length, cell) for length, cell in found if cell and cell.loss is not None]


def _known(
    study: Study, label: str, protocol: str, seed: int | None = None
) -> tuple[list[int], list[float], list[float]]:
    """Lengths, losses and half-widths of intervals, where measured and defined."""
    known = _cells(study, label, protocol, seed)
    losses = [cell.loss for _, cell in known if cell.loss is not None]
    return [n for n, _ in known], losses, [cell.spread or 0.0 for _, cell in known]


def _per_position(run: Run) -> tuple[list[float], list[float]]:
    rows = [row for row in run.rows if row["protocol"] == "per-position" and row["defined"]]
    if not rows:
        return [], []
    row = max(rows, key=lambda row: int(row["length"]))
    pairs = [
        ((number + 0.5) * row["bin"], loss)
        for number, loss in enumerate(row["losses"])
        if loss is not None
    ]
    return [x for x, _ in pairs], [y for _, y in pairs]


def _trained(run: Run) -> list[tuple[int, float]]:
    return [(row["tokens"], row["loss"]) for row in run.train_rows if row["loss"] is not None]


def _short(length: int, run: Run) -> list[tuple[int, float]]:
    return [
        (row["tokens"], row["loss"])
        for row in run.short_rows
        if row["length"] == length and row["protocol"] == "suffix" and row["loss"] is not None
    ]
