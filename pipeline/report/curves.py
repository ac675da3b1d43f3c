"""The pictures of a report, as SVG that follows the page's colours and as PNG for papers.

One colour and one marker per encoding, the same in every picture, distinguishable without colour vision
(Okabe and Ito's palette without its yellow and black, which vanish on white and on dark).
"""

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from pipeline.report.collect import Run, Study

COLOURS = ("#0b7fc2", "#d9660a", "#06a077", "#cb6fa5", "#e2a011", "#5fb3e6", "#8a8f98")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "h")
# Drawn in these colours, which the page then replaces by those of its text and its ground.
INK, GROUND = "#010203", "#fefdfc"
DASHED = (0, (4, 3))
STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "farsight",
    "font.family": "sans-serif",
    "font.size": 10.5,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": INK,
    "grid.alpha": 0.12,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "lines.linewidth": 1.9,
    "lines.markersize": 5.5,
    "legend.frameon": False,
}


def draw(study: Study) -> dict[str, Figure]:
    """File stem -> figure: ``suffix`` always, ``per-position`` and ``training`` if rows for them exist."""
    with matplotlib.rc_context(STYLE):
        figures = {"suffix": suffix_figure(study)}
        if any(row["protocol"] == "per-position" for run in study.runs for row in run.rows):
            figures["per-position"] = per_position_figure(study)
        if any(run.train_rows for run in study.runs):
            figures["training"] = training_figure(study)
    return figures


def suffix_figure(study: Study) -> Figure:
    """Suffix loss over length with intervals; dashed, the same model seeing train_length tokens only.

    Where an encoding that fails would press the others together, a second panel shows those near the
    best of them.
    """
    figure = Figure(figsize=(11, 5.0), layout="constrained")
    ceiling = _close_up(study)
    panels = [None] if ceiling is None else [None, ceiling]
    for column, top in enumerate(panels, start=1):
        axes = figure.add_subplot(1, len(panels), column)
        for number, label in enumerate(study.encodings):
            _suffix_line(axes, study, label, look(number), named=column == 1)
        _length_axis(axes, study, study.lengths("suffix"))
        axes.set_xlabel("length in tokens (log scale)")
        if column == 1:
            axes.set_ylabel("suffix loss (nats per token)")
            axes.plot([], [], color=INK, linestyle=DASHED, linewidth=1.2, label="window control")
        if top is not None:
            axes.set_ylim(top=top)
            axes.set_title("close-up", fontsize=10.5)
    _legend(figure, len(study.encodings) + 1)
    return figure


def per_position_figure(study: Study) -> Figure:
    """Mean loss at each position of the longest sequence that each encoding is defined for."""
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    axes = figure.add_subplot()
    furthest = study.train_length
    for number, label in enumerate(study.encodings):
        colour, _ = look(number)
        for index, run in enumerate(study.encodings[label]):
            x, y = _per_position(run)
            if x:
                axes.plot(x, y, color=colour, linewidth=1.5, label="" if index else label)
                furthest = max(furthest, int(x[-1]))
                limit = study.limit(label)
                if limit is not None and index == 0:
                    _ended(axes, x[-1], y[-1], limit, colour)
    ticks = [2**power for power in range(4, 31) if 2**power <= 1.5 * furthest]
    _length_axis(axes, study, ticks)
    axes.set_xlabel("position (log scale)")
    axes.set_ylabel("loss (nats per token)")
    _legend(figure, len(study.encodings))
    return figure


def training_figure(study: Study) -> Figure:
    """Training loss over tokens and, if there were any, the short evaluations on the way."""
    lengths = sorted({row["length"] for run in study.runs for row in run.short_rows})
    inside = [length for length in lengths if length <= study.train_length]
    panels: list[tuple[str, Callable[[Run], list[tuple[int, float]]]]] = [("training loss", _trained)]
    for length in dict.fromkeys([*inside[-1:], *lengths[-1:]]):
        panels.append((f"suffix loss at {length}", lambda run, at=length: _short(run, at)))
    figure = Figure(figsize=(11, 3.7), layout="constrained")
    for column, (title, points) in enumerate(panels, start=1):
        axes = figure.add_subplot(1, len(panels), column)
        for number, label in enumerate(study.encodings):
            for index, run in enumerate(study.encodings[label]):
                known = points(run)
                name = label if column == 1 and index == 0 else ""
                axes.plot(
                    [x for x, _ in known], [y for _, y in known],
                    color=look(number)[0], linewidth=1.3, label=name,
                )  # fmt: skip
        axes.set_title(title, fontsize=10.5)
        axes.set_xlabel("tokens")
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))
        if column == 1:
            axes.set_ylabel("nats per token")
    _legend(figure, len(study.encodings))
    return figure


def look(number: int) -> tuple[str, str]:
    """Colour and marker of the encoding with this place in the table."""
    return COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]


def as_svg(figure: Figure) -> str:
    """The figure as an ``<svg>`` element whose ink is the text colour of the page around it."""
    out = io.StringIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    text = out.getvalue()
    head, body = text[text.index("<svg") :].split(">", 1)
    # Without a size of its own the picture takes the width of the page.
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    return head + ">" + body.replace(INK, "currentColor").replace(GROUND, "var(--ground)")


def save_png(figure: Figure, path: Path) -> None:
    """Write the figure with a white ground. Raises OSError."""
    with matplotlib.rc_context(STYLE):
        FigureCanvasAgg(figure)
        figure.savefig(path, dpi=160, facecolor="white")


def short_number(value: float) -> str:
    """1234567 -> ``1.23M``."""
    for size, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{suffix}"
    return f"{value:.3g}"


def _close_up(study: Study) -> float | None:
    """Upper end of a panel that shows the encodings near the best; None if one panel shows all well."""
    cells = [
        cell
        for label in study.encodings
        for length in study.lengths("suffix")
        if (cell := study.cell(label, "suffix", length)) is not None
    ]
    losses = [cell.loss for cell in cells if cell.loss is not None]
    inside = [
        cell.loss
        for label in study.encodings
        for length in study.lengths("suffix")
        if length <= study.train_length
        and (cell := study.cell(label, "suffix", length)) is not None
        and cell.loss is not None
    ]
    lowest, settled = min(losses), max(inside, default=max(losses))
    top = settled + 0.35 * (settled - lowest)
    return top if max(losses) - lowest > 3 * (top - lowest) else None


def _suffix_line(
    axes: Axes, study: Study, label: str, style: tuple[str, str], *, named: bool
) -> None:
    colour, marker = style
    x, y, half = _known(study, label, "suffix")
    low = [value - width for value, width in zip(y, half, strict=True)]
    high = [value + width for value, width in zip(y, half, strict=True)]
    axes.fill_between(x, low, high, color=colour, alpha=0.16, linewidth=0)
    axes.plot(x, y, color=colour, marker=marker, label=label if named else "")
    limit = study.limit(label)
    if x and limit is not None:
        _ended(axes, x[-1], y[-1], limit, colour)
    x, y, _ = _known(study, label, "window control")
    if len(x) == 1:
        # Measured once: the scored targets see the same window at every longer length.
        x, y = [study.train_length, study.lengths("suffix")[-1]], y * 2
    axes.plot(x, y, color=colour, linestyle=DASHED, linewidth=1.2, alpha=0.9)


def _known(study: Study, label: str, protocol: str) -> tuple[list[int], list[float], list[float]]:
    """Lengths, losses and half-widths of intervals, where measured and defined."""
    found = [(length, study.cell(label, protocol, length)) for length in study.lengths(protocol)]
    known = [
        (length, cell.loss, cell.spread or 0.0)
        for length, cell in found
        if cell is not None and cell.loss is not None
    ]
    return [n for n, _, _ in known], [loss for _, loss, _ in known], [half for _, _, half in known]


def _legend(figure: Figure, entries: int) -> None:
    figure.legend(loc="outside upper left", ncols=min(entries, 7), columnspacing=1.6, handlelength=1.8)


def _ended(axes: Axes, x: float, y: float, limit: int, colour: str) -> None:
    """A bar across the end of a line: the encoding is not defined further on."""
    axes.plot(
        [x], [y], marker="|", markersize=20, markeredgewidth=2.6, color=colour, linestyle="none", zorder=5
    )
    axes.annotate(
        f"not defined beyond {limit}", (x, y), xytext=(8, -15), textcoords="offset points",
        color=colour, fontsize=9.5, zorder=6,
        path_effects=[withStroke(linewidth=3.5, foreground=GROUND)],
    )  # fmt: skip


def _length_axis(axes: Axes, study: Study, ticks: list[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
    axes.axvline(study.train_length, color=INK, linewidth=1.0, linestyle=":")
    axes.annotate(
        "trained up to here", (study.train_length, 1.0), xycoords=("data", "axes fraction"),
        xytext=(-4, -2), textcoords="offset points", ha="right", va="top", fontsize=9, rotation=90,
    )  # fmt: skip


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


def _short(run: Run, length: int) -> list[tuple[int, float]]:
    return [
        (row["tokens"], row["loss"])
        for row in run.short_rows
        if row["length"] == length and row["protocol"] == "suffix" and row["loss"] is not None
    ]
