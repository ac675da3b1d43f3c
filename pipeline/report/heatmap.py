"""Needle heatmaps: exact match by length and depth, one panel for each run."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from pipeline.report.drawing import INK, LETTERS, LINE, STYLE
from pipeline.report.picture import Part, Picture, mark

# Light is 0 and dark is 1; told apart without colour vision and in grey.
COLOURS = "GnBu"
COLUMNS = 3
WIDTH = 3.6  # inches of a panel
Row = Mapping[str, Any]


def heatmap_stem(task: str) -> str:
    """The file stem of the heatmaps of a task."""
    return f"needle-{task}"


def needle_figure(
    panels: Mapping[str, Sequence[Row]], train_length: int, parts: Mapping[str, Part]
) -> Picture:
    """Exact match of one needle task as colour and number, by length and depth.

    Args:
        panels: the title of each panel, and the task rows that it shows, one per length and depth.
        train_length: tokens in a training sequence, marked in every panel.
        parts: what the panel with each title is of.
    """
    columns = min(COLUMNS, len(panels))
    lines = math.ceil(len(panels) / columns)
    with matplotlib.rc_context({**STYLE, "axes.grid": False, "hatch.linewidth": 0.6}):
        titles = [textwrap.wrap(title, int(LETTERS * WIDTH)) for title in panels]
        taller = LINE * (max(map(len, titles)) - 1)
        size = (1 + WIDTH * columns, 0.5 + (2.7 + taller) * lines)
        figure = Picture(figsize=size, layout="constrained")
        for number, (title, rows) in enumerate(panels.items()):
            axes = figure.add_subplot(lines, columns, number + 1)
            _panel(axes, rows, train_length)
            mark([axes], parts[title])
            axes.set_title("\n".join(titles[number]), fontsize=10.5, loc="left", pad=16)
            if number % columns == 0:
                axes.set_ylabel("depth of the needle")
            if number + columns >= len(panels):
                axes.set_xlabel("length in tokens")
        every = [row for rows in panels.values() for row in rows]
        figure.supxlabel(f"in each cell: {cell_examples(every)}", fontsize=9)
    return figure


def cell_examples(rows: Sequence[Row]) -> str:
    """How many examples the number of each cell is of: ``32 examples``."""
    counts = sorted({row["examples"] for row in rows if row["examples"]})
    return f"{' to '.join(map(str, dict.fromkeys([*counts[:1], *counts[-1:]])))} examples"


def _panel(axes: Axes, rows: Sequence[Row], train_length: int) -> None:
    lengths = sorted({row["length"] for row in rows})
    depths = sorted({row["depth"] for row in rows})
    shares = np.full((len(depths), len(lengths)), np.nan)
    for row in rows:
        if row["defined"]:
            shares[depths.index(row["depth"]), lengths.index(row["length"])] = row["exact_match"]
    colours = matplotlib.colormaps[COLOURS]
    axes.pcolormesh(shares, cmap=colours, vmin=0.0, vmax=1.0, edgecolors="white", linewidth=0.8)
    for (line, column), value in np.ndenumerate(shares):
        if math.isnan(value):
            empty = Rectangle((column, line), 1, 1, fill=False, hatch="////", linewidth=0)
            empty.set_edgecolor(INK)
            axes.add_patch(empty)
            continue
        red, green, blue, _ = colours(value)
        dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
        written = axes.text(
            column + 0.5, line + 0.5, f"{value:.2f}", ha="center", va="center", fontsize=8.5,
            color="#ffffff" if dark else "#111111",
        )  # fmt: skip
        # it lies within its cell, and measuring thousands of these takes seconds
        written.set_in_layout(False)
    axes.set_xticks(np.arange(len(lengths)) + 0.5, [str(length) for length in lengths])
    axes.set_yticks(np.arange(len(depths)) + 0.5, [f"{depth:g}" for depth in depths])
    axes.tick_params(length=0)
    axes.set_xlim(0, len(lengths))
    # the beginning of the prompt at the top, as it is read
    axes.set_ylim(len(depths), 0)
    inside = sum(length <= train_length for length in lengths)
    axes.axvline(inside, color=INK, linewidth=1.6, linestyle=":", clip_on=False)
    axes.annotate(
        "train length", (inside, 1.0), xycoords=("data", "axes fraction"),
        xytext=(0, 3), textcoords="offset points", ha="left" if inside == 0 else "center",
        va="bottom", fontsize=8.5,
    )  # fmt: skip
