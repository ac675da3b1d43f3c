"""The tile path: any scores, forward and backward in tiles, in memory linear in the length.

What the scores of a tile are is the business of `pipeline.model.tile_scores`; here they become
attention. Tiles of a row block run from the diagonal back. Online softmax as in Milakov and
Gimelshein 2018, arXiv 1805.02867; recomputed backward as in Dao et al. 2022, arXiv 2205.14135.

Legend: G = B h slices, S sequence, d width of v, I query rows and J key columns of one tile, B
batch.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from pipeline.model.distance import DistanceTable, Spread, Tile
from pipeline.model.kernel import Gradients, Wanted
from pipeline.model.reach import head_groups, of_heads, reaches
from pipeline.model.tile_scores import LOG2E, TileScores, slices
from pipeline.positions.scores import Scores

# less than any score; exp2 of minus infinity less this is 0, where of minus infinity less itself
# it would not be a number
LEAST = -1e30


class TileKernel:
    """See `pipeline.model.kernel.Kernel`."""

    def forward(self, scores: Scores, v: Tensor) -> tuple[Tensor, Tensor]:
        """v [B,h,S,d] -> out [B,h,S,d], lse [B,h,S] fp32."""
        groups = head_groups(scores, v)
        if len(groups) == 1:
            return TilePass(scores, v).forward()
        out, lse = torch.empty_like(v), v.new_empty(v.shape[:3], dtype=torch.float32)
        for heads in groups:
            own = TilePass(of_heads(scores, heads), v[:, heads]).forward()
            out[:, heads], lse[:, heads] = own
        return out, lse

    def backward(
        self, scores: Scores, v: Tensor, out: Tensor, lse: Tensor, d_out: Tensor, wanted: Wanted
    ) -> tuple[Tensor, Gradients]:
        """Gradients of v and of `scores.tensors()`."""
        groups = head_groups(scores, v)
        if len(groups) == 1:
            done = TilePass(scores, v)
            return done.backward(out, lse, d_out, wanted), done.gradients
        ((q, k),), table, d_v = scores.pairs, scores.table, torch.empty_like(v)
        assert table is not None
        d_q, d_k = torch.empty_like(q), torch.empty_like(k)
        d_table = torch.zeros_like(table, dtype=torch.float32) if wanted[2] else None
        for heads in groups:
            done = TilePass(of_heads(scores, heads), v[:, heads])
            d_v[:, heads] = done.backward(out[:, heads], lse[:, heads], d_out[:, heads], wanted)
            d_q[:, heads], d_k[:, heads], own, *_ = done.gradients  # type: ignore[assignment]
            if d_table is not None:
                d_table[heads] = own  # type: ignore[assignment]
        return d_v, (d_q, d_k, d_table, *(None for _ in scores.vectors[1:]))


class TilePass:
    """One pass over the tiles of one layer.

    With `sums`, a backward pass also fills `row_sums` [B,h,S]: sums over the keys of the scores'
    gradient.
    """

    def __init__(self, scores: Scores, v: Tensor, sums: bool = False) -> None:
        self.v, self.sums, self.window = v, sums, scores.window
        self.length = v.shape[2]
        # relative vectors cost an I x (I + J) product per tile: few rows, many columns
        content = scores.keys is not None or scores.key_table is not None
        self.rows, self.columns = (128, 1024) if content else (256, 512)
        self.score = TileScores(scores, v, self.rows, self.columns)
        self.values = slices(v)
        self.added: DistanceTable | None = None
        if scores.values is not None:
            self.added = DistanceTable(scores.values, *self.score.size)
        self.reach: list[int] | None = None
        if self.score.table is not None and scores.tabular and not v.is_meta:
            (q, k), unit = map(slices, scores.pairs[0]), scores.scale * LOG2E
            self.reach = reaches(q, k, unit, self.score.table, self.rows).amax(0).tolist()
        self.row_sums = self.values.new_zeros(self.values.shape[:2])
        self.gradients: Gradients = ()

    def tiles(self) -> Iterator[list[tuple[Tile, Tensor | None]]]:
        """Of each row block the tiles that it sees, from the diagonal back, each with its mask.

        A block that sees nothing, which a part of the keys may leave, has no tiles and is not here.
        """
        for i0 in range(0, self.length, self.rows):
            i1 = min(self.length, i0 + self.rows)
            seen = self.length if self.reach is None else self.reach[i0 // self.rows]
            first = max(0, i0 - min(seen, self.window or self.length) + 1)
            ends = range(i1, first, -self.columns)
            every = [Tile(self.length, i0, i1, max(first, j1 - self.columns), j1) for j1 in ends]
            masked = ((tile, self.score.allowed(tile)) for tile in every)
            found = [(t, m) for t, m in masked if m is None or m.is_meta or bool(m.any())]
            if found:
                yield found

    def forward(self) -> tuple[Tensor, Tensor]:
        """out [B,h,S,d] and lse [B,h,S]; 0 and minus infinity in rows that see nothing."""
        out, lse = torch.zeros_like(self.values), self.values.new_zeros(*self.values.shape[:2], 1)
        lse.fill_(-math.inf)
        for tiles in self.tiles():
            here = tiles[0][0].rows
            best = self.values.new_full((len(self.values), here.stop - here.start, 1), LEAST)
            mass, mixed = torch.zeros_like(best), torch.zeros_like(self.values[:, here])
            for tile, allowed in tiles:
                weight = self.score(tile, allowed)
                top = torch.maximum(best, weight.amax(-1, keepdim=True))
                weight.sub_(top).exp2_()
                kept = (best - top).exp2_()
                mass.mul_(kept).add_(weight.sum(-1, keepdim=True))
                mixed.mul_(kept).baddbmm_(weight, self.values[:, tile.columns])
                if self.added is not None:
                    mixed.add_(self.added.mix(Spread(weight), tile))
                best = top
            lse[:, here] = best.add_(mass.log2()).div_(LOG2E)
            out[:, here] = mixed.div_(mass.clamp_(min=torch.finfo(mass.dtype).tiny))
        shape = self.v.shape
        return out.flip(1).view(shape).to(self.v.dtype), lse.flip(1).view(shape[:3])

    def backward(self, out: Tensor, lse: Tensor, d_out: Tensor, wanted: Wanted) -> Tensor:
        """out, d_out [B,h,S,d], lse [B,h,S] of whole rows -> gradient of v; fills `gradients`."""
        slope = slices(d_out).flip(1)
        lse = lse.reshape(-1, self.length, 1).flip(1) * LOG2E
        # sum_j P_ij dP_ij = out_i . dout_i, the term softmax's backward subtracts from every dP_ij
        pull = (slope * slices(out).flip(1)).sum(-1, keepdim=True)
        self.score.start(wanted)
        d_values = torch.zeros_like(self.values)
        for tiles in self.tiles():
            here = tiles[0][0].rows
            for tile, allowed in tiles:
                weight = self.score(tile, allowed).sub_(lse[:, here]).exp2_()
                d_values[:, tile.columns].baddbmm_(weight.transpose(1, 2), slope[:, here])
                d_score = torch.bmm(slope[:, here], self.values[:, tile.columns].transpose(1, 2))
                if self.added is not None:
                    d_score.add_(self.added.product(slope[:, here], tile))
                    self.added.collect(Spread(weight), slope[:, here], tile)
                d_score.sub_(pull[:, here]).mul_(weight)
                self.score.collect(d_score, tile)
                if self.sums:
                    self.row_sums[:, here] += d_score.sum(-1)
        self.gradients = self._gradients()
        self.row_sums = self.row_sums.flip(1).view(self.v.shape[:3])
        return d_values.view(self.v.shape).to(self.v.dtype)

    def _gradients(self) -> Gradients:
        found, values = self.score.gradients(), self.score.scores.values
        if self.added is None or values is None:
            return found
        # in the order of `Scores.vectors`
        place = 2 * len(self.score.scores.pairs) + 4
        return (*found[:place], self.added.gradient.to(values.dtype), *found[place + 1 :])
