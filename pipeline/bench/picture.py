"""The picture of a bench: time ratio and memory over length, one line a subject."""

from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from pipeline.report.drawing import STYLE, look

# title of a panel, key of a row, what the value is divided by
PANELS = (("time / yardstick", "ratio", 1.0), ("peak memory (MiB)", "peak_bytes", 2.0**20))


def draw(record: dict[str, Any]) -> Figure:
    """One row of panels a measure; what failed or was not measured has no point."""
    results = record["results"]
    measures = list(dict.fromkeys(row["measure"] for row in results))
    lengths = sorted({row["length"] for row in results})
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(11, 4.2 * len(measures)), layout="constrained")
        for number, measure in enumerate(measures):
            rows = [row for row in results if row["measure"] == measure]
            for column, (title, key, unit) in enumerate(PANELS, start=1):
                axes = figure.add_subplot(len(measures), 2, 2 * number + column)
                _lines(axes, rows, key, unit)
                _axes(axes, lengths, f"{measure}: {title}")
                if column == 1:
                    axes.legend(fontsize=9)
    return figure


def _lines(axes: Axes, rows: list[dict[str, Any]], key: str, unit: float) -> None:
    for number, name in enumerate(dict.fromkeys(row["subject"] for row in rows)):
        colour, marker = look(number)
        known = [row for row in rows if row["subject"] == name and row.get(key) is not None]
        yardstick = next(row["yardstick"] for row in rows if row["subject"] == name)
        axes.plot(
            [row["length"] for row in known], [row[key] / unit for row in known],
            color=colour, marker=marker, label=f"{name} / {yardstick}",
        )  # fmt: skip


def _axes(axes: Axes, lengths: list[int], title: str) -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(lengths))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
    axes.set_ylim(0, 1.08 * axes.get_ylim()[1])
    axes.set_title(title, fontsize=10.5)
    axes.set_xlabel("length in tokens (log scale)")
