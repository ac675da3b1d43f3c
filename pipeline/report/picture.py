"""Figures whose parts say which encoding and seed they are of, so that a page can filter them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipeline.report.collect import Study

Kind = Literal["mean", "seed", "run", "name"]


@dataclass(frozen=True)
class Part:
    """What something drawn is of: the encoding with this place among all, and the seed if it is of
    one.

    `kind`: a "mean" over seeds stands for none of them and goes when seeds are chosen; then a
    "seed", which pages hide at first and other pictures do without, comes; what is of a "run" is
    there always, and a "name" for all of an encoding's.
    """

    encoding: int
    kind: Kind
    seed: int | None = None

    @property
    def gid(self) -> str:
        """How an SVG element is marked on its way out of matplotlib; see GID."""
        return f"e{self.encoding}-{self.kind}{'' if self.seed is None else f'-s{self.seed}'}"


# what `Part.gid` gives, as matplotlib writes it
GID = r'<g id="e(\d+)-(mean|seed|run|name)(?:-s(-?\d+))?"'


@dataclass(frozen=True)
class Point:
    """A place in a picture, in the units of its axes, and the numbers that belong to it."""

    axes: Axes
    x: float
    y: float
    part: Part
    text: str


class Picture(Figure):
    """A figure with the numbers behind its points."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.points: list[Point] = []


def whole_part(study: Study, label: str) -> Part:
    """What is drawn for all seeds of an encoding: their mean, or its only run."""
    number, runs = list(study.encodings).index(label), study.encodings[label]
    if len(runs) > 1:
        return Part(number, "mean")
    return Part(number, "run", runs[0].config["seed"])


def mark(artists: Iterable[Artist], part: Part) -> None:
    """Say of each what it is of."""
    for artist in artists:
        artist.set_gid(part.gid)
