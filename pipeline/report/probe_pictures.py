"""The pictures of probes: attention by distance, and position in the states, layer by layer."""

import math
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from pipeline.report.collect import Study
from pipeline.report.drawing import DASHED, INK, STYLE, legend, look
from pipeline.report.picture import Part, Picture, Point, mark
from pipeline.report.probes import Probes, Row, lengths_of, names_of, numbers_of, values

PANELS = 4
TARGETS = ("position", "log position")


def draw_probes(study: Study, probes: Probes) -> dict[str, Picture]:
    """File stem -> figure: ``probe-attention`` and ``probe-decodability``, or nothing."""
    if not probes:
        return {}
    with matplotlib.rc_context(STYLE):
        return {
            "probe-attention": attention_figure(study, probes),
            "probe-decodability": decodability_figure(study, probes),
        }


def attention_figure(study: Study, probes: Probes) -> Picture:
    """One panel per layer: share of attention by distance, every head and their mean."""
    rows = [row for found in probes.values() for row in found if row["probe"] == "attention"]
    layers = sorted({row["layer"] for row in rows})
    edges = max((row["edges"] for row in rows), key=len)
    columns = min(PANELS, len(layers))
    lines = math.ceil(len(layers) / columns)
    size = (max(6.0, 3.4 * columns), 0.6 + 2.7 * lines)
    figure = Picture(figsize=size, layout="constrained")
    first: Axes | None = None
    for number, layer in enumerate(layers):
        axes = figure.add_subplot(lines, columns, number + 1, sharey=first)
        first = first or axes
        for label, place in numbers_of(study, probes).items():
            if label in probes:
                name = "" if number else names_of(probes)[label]
                _attention(axes, probes[label], layer, place, name)
        _distance_axis(axes, edges, study.train_length)
        axes.set_title(f"layer {layer}", fontsize=10.5)
        if number % columns == 0:
            axes.set_ylabel("share of attention")
        if number + columns >= len(layers):
            axes.set_xlabel("distance in tokens (bins that double)")
    assert first is not None
    first.plot([], [], color=INK, linestyle=DASHED, linewidth=1.2, label="at the train length")
    legend(figure)
    return figure


def decodability_figure(study: Study, probes: Probes) -> Picture:
    """Panels by target, at the train length and at the longest one: R² by layer, with controls."""
    trained = study.train_length
    panels: list[tuple[str, str, bool]] = [
        (target, f"{target}, {'longest length' if longest else f'{trained} tokens'}", longest)
        for longest in (False, True)
        for target in TARGETS
        if not longest or any(lengths_of(rows)[-1] > trained for rows in probes.values())
    ]
    figure = Picture(figsize=(max(7.0, 3.4 * len(panels)), 3.6), layout="constrained")
    first: Axes | None = None
    for number, (target, title, longest) in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), number + 1, sharey=first)
        first = first or axes
        for label, place in numbers_of(study, probes).items():
            rows, name = probes.get(label, []), "" if number else names_of(probes).get(label, "")
            here = [n for n in lengths_of(rows) if (n > trained if longest else n == trained)]
            for length in here[-1:]:
                own = [row for row in rows if row["length"] == length]
                _decodability(figure, axes, own, target, place, label, name)
        axes.set_title(title, fontsize=10.5)
        axes.set_xlabel("layer")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if number == 0:
            axes.set_ylabel("R² on other documents")
            axes.plot([], [], color=INK, linestyle=DASHED, linewidth=1.2, label="shuffled")
    legend(figure)
    return figure


def _attention(axes: Axes, rows: Sequence[Row], layer: int, place: int, name: str) -> None:
    """Heads and mean at the longest length, and the mean at the train length if it is shorter."""
    colour, _ = look(place)
    lengths, drawn = lengths_of(rows), list[Line2D]()
    for length in lengths:
        heads = values(rows, "attention", "mass", length=length, layer=layer)
        if heads is None:
            continue
        mass = np.array(heads)
        x = np.arange(mass.shape[1])
        longest = length == lengths[-1]
        if longest:
            drawn += axes.plot(x, mass.T, color=colour, linewidth=0.6, alpha=0.35)
        dashes: Any = "-" if longest else DASHED
        label = name if longest else ""
        drawn += axes.plot(
            x, mass.mean(0), color=colour, label=label, linestyle=dashes,
            linewidth=2.0 if longest else 1.2,
        )  # fmt: skip
    mark(drawn, _part(rows, place))


def _part(rows: Sequence[Row], place: int) -> Part:
    """What these rows are of: the only seed that was probed, or a mean over seeds."""
    seeds = {row["seed"] for row in rows}
    return Part(place, "mean") if len(seeds) > 1 else Part(place, "run", min(seeds))


def _distance_axis(axes: Axes, edges: Sequence[int], train_length: int) -> None:
    """Bins side by side, every other one named by its first distance; the train length marked."""
    ticks = range(0, len(edges) - 1, 2)
    axes.set_xticks(list(ticks), [str(edges[tick]) for tick in ticks])
    # bins are drawn at whole numbers: 2^(n-1) begins bin n
    axes.axvline(math.log2(train_length) + 0.5, color=INK, linewidth=1.0, linestyle=":")


def _decodability(
    figure: Picture, axes: Axes, rows: Sequence[Row], target: str, place: int, label: str, name: str
) -> None:
    """R² of each layer, mean over seeds, and dashed its control; gaps where there is no number."""
    colour, marker = look(place)
    layers, part = sorted({row["layer"] for row in rows}), _part(rows, place)
    for key in ("r2", "control_r2"):
        found = [values(rows, "decodability", key, layer=n, target=target) for n in layers]
        y = [math.nan if one is None else float(np.mean(one)) for one in found]
        if key == "r2":
            mark(axes.plot(layers, y, color=colour, marker=marker, label=name), part)
            figure.points += (
                Point(axes, layer, value, part, f"{label}, layer {layer}: R² {value:.3f}")
                for layer, value in zip(layers, y, strict=True)
                if math.isfinite(value)
            )
        else:
            mark(axes.plot(layers, y, color=colour, linestyle=DASHED, linewidth=1.2), part)
