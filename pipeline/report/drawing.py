"""How all pictures of a report look.

One colour and one marker per encoding, the same in every picture, told apart without colour vision:
Okabe and Ito's palette, without its yellow and black, which vanish on white and on dark.
"""

import math
import re
import textwrap
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

COLOURS = ("#0b7fc2", "#d9660a", "#06a077", "#cb6fa5", "#e2a011", "#5fb3e6", "#8a8f98")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "h")
# Drawn in these colours, which the page then replaces by those of its text and its ground.
INK, GROUND = "#010203", "#fefdfc"
DASHED = (0, (4, 3))
# Roughly: letters in an inch, the room of a piece of line in letters, inches of a line of names.
LETTERS, SAMPLE, LINE = 12.0, 8, 0.22
STYLE: Any = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10.5,
    # names come from run folders: a dollar sign in one is no formula
    "text.parse_math": False,
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


def look(number: int) -> tuple[str, str]:
    """Colour and marker of the encoding with this place in the table."""
    return COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]


def veil(encodings: int) -> float:
    """How opaque the band of one of so many encodings is: all of them together hide no line."""
    return min(0.16, 1.0 / encodings)


def short_number(value: float) -> str:
    """1234567 -> ``1.23M``."""
    for size, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{suffix}"
    return f"{value:.3g}"


def length_axis(
    axes: Axes, ticks: list[int], train_length: int, mark: str = "trained up to here"
) -> None:
    """Lengths by powers of two, with the train length marked by these words."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
    axes.axvline(train_length, color=INK, linewidth=1.0, linestyle=":")
    axes.annotate(
        mark, (train_length, 1.0), xycoords=("data", "axes fraction"),
        xytext=(-4, -2), textcoords="offset points", ha="right", va="top", fontsize=9, rotation=90,
    )  # fmt: skip


def end_bar(axes: Axes, end: tuple[float, float], colour: str) -> list[Line2D]:
    """A bar across the end of a line."""
    return axes.plot(
        *([value] for value in end), marker="|", markersize=20, markeredgewidth=2.6, color=colour,
        linestyle="none", zorder=5,
    )  # fmt: skip


def foot_note(axes: Axes, x: float, text: str, colour: str, *, row: int) -> Annotation:
    """Words at the foot of the axes, right of ``x``; rows of them stand above each other."""
    return axes.annotate(
        text, (x, 0.025 + 0.06 * row), xycoords=("data", "axes fraction"), xytext=(7, 0),
        textcoords="offset points", color=colour, fontsize=9.5, zorder=6,
        path_effects=[withStroke(linewidth=3.5, foreground=GROUND)],
    )  # fmt: skip


def legend(figure: Figure) -> None:
    """Names above the axes, which keep their height: the figure grows by what is more than a line
    of them; each name is marked as that of the encoding whose line it names."""
    pairs = [
        pair for axes in figure.axes for pair in zip(*axes.get_legend_handles_labels(), strict=True)
    ]
    # beside the piece of line before each name
    room = int(LETTERS * figure.get_figwidth())
    names = [textwrap.wrap(name, room - SAMPLE) for _, name in pairs]
    longest = max((len(line) for lines in names for line in lines), default=0)
    columns = max(1, min(len(pairs), 7, room // (longest + SAMPLE)))
    lines = math.ceil(sum(map(len, names)) / columns)
    figure.set_figheight(figure.get_figheight() + LINE * max(0, lines - 1))
    drawn = figure.legend(
        [line for line, _ in pairs], ["\n".join(lines) for lines in names],
        loc="outside upper left", ncols=columns, columnspacing=1.6, handlelength=1.8,
    )  # fmt: skip
    for (line, _), sample, name in zip(pairs, drawn.legend_handles, drawn.texts, strict=True):
        encoding = re.match(r"e\d+-", line.get_gid() or "")
        for artist in (sample, name):
            if artist is not None:
                artist.set_gid(f"{encoding[0]}name" if encoding else None)
