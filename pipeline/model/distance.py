"""Tables by distance inside a tile, with no copy of the tile.

Query rows stand in reverse, r = S - 1 - i, so that a function of the distance i - j is a function
of r + j: constant along antidiagonals. In memory a step down such a matrix and a step to the right
are the same step of one vector (a Hankel view, strides 1, 1).

Legend: G = B h slices, S sequence, E width, I query rows and J key columns of one tile, N entries
of a table, read at min(i - j, N - 1).
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor


class Tile(NamedTuple):
    """Queries [i0, i1) against keys [j0, j1) of a sequence of `length` tokens."""

    length: int
    i0: int
    i1: int
    j0: int
    j1: int

    @property
    def rows(self) -> slice:
        """The queries, in reversed order."""
        return slice(self.length - self.i1, self.length - self.i0)

    @property
    def columns(self) -> slice:
        """The keys."""
        return slice(self.j0, self.j1)

    @property
    def span(self) -> int:
        """I + J: one more than the distances in the tile."""
        return self.i1 - self.i0 + self.j1 - self.j0


def hankel(table: Tensor | None, length: int, window: int | None, like: Tensor) -> Tensor:
    """table [G,N] or None -> [G or 1, 2S]: entry r + j is the bias of (r, j), minus infinity where
    j > i or i - j >= window."""
    if table is None:
        table = like.new_zeros(1, 1)
    table = extend(table, length)
    if window is not None:
        table[:, window:] = -math.inf
    return torch.cat([table.flip(-1), torch.full_like(table, -math.inf)], dim=-1)


def hankel_view(vector: Tensor, tile: Tile, slices: int) -> Tensor:
    """vector [G or 1, 2S] -> its tile [G,I,J], a view."""
    start = vector.storage_offset() + tile.length - tile.i1 + tile.j0
    step = vector.stride(0) if vector.shape[0] > 1 else 0
    size = (slices, tile.i1 - tile.i0, tile.j1 - tile.j0)
    return vector.as_strided(size, (step, 1, 1), start)


def extend(table: Tensor, length: int) -> Tensor:
    """table [G,N] -> a new [G,S], entry min(distance, N - 1)."""
    known = table[:, :length]
    tail = table[:, -1:].expand(-1, length - known.shape[1])
    return torch.cat([known, tail], dim=-1)


def fold_tail(gradient: Tensor, entries: int) -> Tensor:
    """The transpose of `extend`: [...,S] -> [...,N]."""
    if gradient.shape[-1] <= entries:
        return torch.nn.functional.pad(gradient, (0, entries - gradient.shape[-1]))
    folded = gradient[..., :entries].clone()
    folded[..., -1] += gradient[..., entries:].sum(-1)
    return folded


def skew(tile: Tensor) -> Tensor:
    """[G,I,J] -> [G,I,I+J]: row r moved right by r, so that equal distances stand in one column.

    The last column is zero.
    """
    slices, rows, columns = tile.shape
    wide = tile.new_zeros(slices, rows, rows + columns)
    stride = rows + columns
    wide.as_strided(tile.shape, (rows * stride, stride + 1, 1)).copy_(tile)
    return wide


def unskew(wide: Tensor, columns: int) -> Tensor:
    """[G,I,I+J] -> its tile [G,I,J], a view: the transpose of `skew`."""
    slices, rows, stride = wide.shape
    return wide.as_strided((slices, rows, columns), (rows * stride, stride + 1, 1))


@dataclass
class Spread:
    """A tile [G,I,J] and, made when first asked for, its skewed form [G,I,I+J]."""

    tile: Tensor

    @cached_property
    def wide(self) -> Tensor:
        """See `skew`."""
        return skew(self.tile)


class DistanceTable:
    """Vectors by distance, T [h,N,E] in fp32 for B sequences, and the three products with them.

    They are kept by descending distance, as the columns of a skewed tile read them, from the
    largest that a tile with entries before the last can hold; no tile is taller or wider than
    `reach` rows and columns together.
    """

    def __init__(self, table: Tensor, batch: int, length: int, reach: int) -> None:
        self.batch, self.heads, self.last = batch, table.shape[0], table.shape[1] - 1
        self.first = min(length - 1, self.last + reach)
        steps = torch.arange(self.first, -reach - 1, -1, device=table.device)
        self.entries = steps.clamp(0, self.last)
        self.vectors = table.float()[:, self.entries].repeat(batch, 1, 1)
        self.sums = torch.zeros_like(self.vectors)

    @property
    def gradient(self) -> Tensor:
        """[h,N,E]: what was collected."""
        sums = self.sums.unflatten(0, (self.batch, self.heads)).sum(0)
        whole = sums.new_zeros(self.heads, self.last + 1, sums.shape[-1])
        return whole.index_add_(1, self.entries, sums)

    def _constant(self, tile: Tile) -> bool:
        """Whether the whole tile reads the last entry."""
        return tile.i0 - (tile.j1 - 1) >= self.last

    def _columns(self, tile: Tile) -> slice:
        """The vectors read along the I + J columns of a skewed tile; of one that is constant, the
        first."""
        start = 0 if self._constant(tile) else self.first - (tile.i1 - 1 - tile.j0)
        return slice(start, start + (1 if self._constant(tile) else tile.span))

    def product(self, x: Tensor, tile: Tile) -> Tensor:
        """x [G,I,E] of the queries -> x_i . T[i-j], [G,I,J] or [G,I,1]; or, distances being the
        same along rows and columns, x [G,J,E] of the keys -> x_j . T[i-j], [G,J,I] or [G,J,1]."""
        wide = x @ self.vectors[:, self._columns(tile)].transpose(1, 2)
        return wide if wide.shape[-1] == 1 else unskew(wide, tile.span - x.shape[1])

    def mix(self, weight: Spread, tile: Tile) -> Tensor:
        """weight [G,I,J] -> sum_j weight_ij T[i-j], [G,I,E]; or, [G,J,I] -> [G,J,E]."""
        vectors = self.vectors[:, self._columns(tile)]
        if self._constant(tile):
            return weight.tile.sum(-1, keepdim=True) * vectors
        return weight.wide @ vectors

    def collect(self, weight: Spread, x: Tensor, tile: Tile) -> None:
        """Add sum_ij weight_ij x_i to the gradient of T[i-j]; weight [G,I,J], x [G,I,E] of the
        queries, or weight [G,J,I], x [G,J,E] of the keys."""
        constant = self._constant(tile)
        wide = weight.tile.sum(-1, keepdim=True) if constant else weight.wide
        self.sums[:, self._columns(tile)].baddbmm_(wide.transpose(1, 2), x)
