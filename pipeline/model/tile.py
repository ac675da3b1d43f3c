"""The tile path: any scores, forward and backward in tiles, in memory linear in the length.

Scores are in base 2 (exp2 of a very negative number is fast where exp is not) and fp32. Rows are
reversed (`pipeline.model.distance` says why); minus infinity beyond distance 0 in the vector of
biases is the causal mask, and beyond the window the mask of the window. Tiles of a row block run
from the diagonal back, so that from the first one on every row has a finite score. Online softmax
as in Milakov and Gimelshein 2018, arXiv 1805.02867; recomputed backward as in Dao et al. 2022,
arXiv 2205.14135.

Legend: G = B h slices, S sequence, E width of q and k, d width of v, I query rows and J key
columns of one tile, B batch.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from pipeline.model.distance import (
    DistanceTable,
    Spread,
    Tile,
    fold_tail,
    hankel,
    hankel_view,
)
from pipeline.model.kernel import Gradients, Wanted
from pipeline.model.reach import head_groups, of_heads, reaches
from pipeline.positions.scores import Scores

_LOG2E = math.log2(math.e)


def slices(x: Tensor) -> Tensor:
    """[B,h,S,E] -> [G,S,E] fp32."""
    return x.reshape(-1, *x.shape[2:]).float()


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
        return d_v, (d_q, d_k, d_table, None, None, None)


class TilePass:
    """One pass over the tiles of one layer.

    With `sums`, a backward pass also fills `row_sums` [B,h,S]: sums over the keys of the scores'
    gradient.
    """

    def __init__(self, scores: Scores, v: Tensor, sums: bool = False) -> None:
        self.scores, self.v, self.sums = scores, v, sums
        self.batch, self.heads, self.length, _ = v.shape
        # relative vectors cost an I x (I + J) product per tile: few rows, many columns
        self.rows, self.columns = (256, 512) if scores.keys is None else (128, 1024)
        table = scores.table
        if table is not None:
            table = table.float().repeat(self.batch, 1) * _LOG2E
        self.values = slices(v)
        self.bias = hankel(table, self.length, scores.window, self.values)
        unit = scores.scale * _LOG2E
        self.pairs = [(slices(q).flip(1) * unit, slices(k)) for q, k in scores.pairs]
        shape = (self.batch, self.length, self.rows + self.columns)
        self.relative: DistanceTable | None = None
        if scores.keys is not None:
            assert scores.queries is not None
            self.relative = DistanceTable(scores.keys, *shape)
            self.queries = slices(scores.queries).flip(1) * unit
        self.added: DistanceTable | None = None
        if scores.values is not None:
            self.added = DistanceTable(scores.values, *shape)
        self.ids_q = scores.ids_q.flip(0)
        self.reach: list[int] | None = None
        if table is not None and scores.tabular and not v.is_meta:
            q, k = (slices(x) for x in scores.pairs[0])
            self.reach = reaches(q, k, unit, table, self.rows).amax(0).tolist()
        self.row_sums = self.values.new_zeros(self.values.shape[:2])
        self.gradients: Gradients = ()

    def tiles(self) -> Iterator[list[Tile]]:
        """Of each row block the tiles that it sees, from the diagonal back."""
        for i0 in range(0, self.length, self.rows):
            i1 = min(self.length, i0 + self.rows)
            seen = self.length if self.reach is None else self.reach[i0 // self.rows]
            first = max(0, i0 - min(seen, self.scores.window or self.length) + 1)
            ends = range(i1, first, -self.columns)
            yield [Tile(self.length, i0, i1, max(first, j1 - self.columns), j1) for j1 in ends]

    def branches(self, tile: Tile) -> list[tuple[int, Tensor | None]]:
        """The branches that a tile needs, each with where it holds, [I,J]; None = everywhere."""
        if self.scores.select is None:
            return [(0, None)]
        chosen = self.scores.select(self.ids_q[tile.rows], self.scores.ids_k[tile.columns])
        # on the meta device there are no values to look at
        least, most = (0, len(self.pairs) - 1) if chosen.is_meta else map(int, chosen.aminmax())
        if least == most:
            return [(least, None)]
        return [(b, chosen == b) for b in range(least, most + 1)]

    def score(self, tile: Tile) -> Tensor:
        """Scores of one tile in base 2, [G,I,J]."""
        bias = hankel_view(self.bias, tile, len(self.values))
        score: Tensor | None = None
        for branch, where in self.branches(tile):
            q, k = self.pairs[branch]
            own = torch.baddbmm(bias, q[:, tile.rows], k[:, tile.columns].transpose(1, 2))
            score = own if score is None else torch.where(where, own, score)  # type: ignore
        assert score is not None
        if self.relative is not None:
            score.add_(self.relative.product(self.queries[:, tile.rows], tile))
        if self.scores.bias is not None:
            ids = self.ids_q[tile.rows], self.scores.ids_k[tile.columns]
            score.unflatten(0, (self.batch, -1)).add_(self.scores.bias(*ids), alpha=_LOG2E)
        return score

    def forward(self) -> tuple[Tensor, Tensor]:
        """out [B,h,S,d] and lse [B,h,S]."""
        out, lse = torch.empty_like(self.values), self.values.new_empty(*self.values.shape[:2], 1)
        for tiles in self.tiles():
            here = tiles[0].rows
            best = self.values.new_full((len(self.values), here.stop - here.start, 1), -math.inf)
            mass, mixed = torch.zeros_like(best), torch.zeros_like(self.values[:, here])
            for tile in tiles:
                weight = self.score(tile)
                top = torch.maximum(best, weight.amax(-1, keepdim=True))
                weight.sub_(top).exp2_()
                kept = (best - top).exp2_()
                mass.mul_(kept).add_(weight.sum(-1, keepdim=True))
                mixed.mul_(kept).baddbmm_(weight, self.values[:, tile.columns])
                if self.added is not None:
                    mixed.add_(self.added.mix(Spread(weight), tile))
                best = top
            out[:, here] = mixed.div_(mass)
            lse[:, here] = best.add_(mass.log2_()).div_(_LOG2E)
        shape = self.v.shape
        return out.flip(1).view(shape).to(self.v.dtype), lse.flip(1).view(shape[:3])

    def backward(self, out: Tensor, lse: Tensor, d_out: Tensor, wanted: Wanted) -> Tensor:
        """out, d_out [B,h,S,d], lse [B,h,S] of whole rows -> gradient of v; fills `gradients`."""
        slope = slices(d_out).flip(1)
        lse = lse.reshape(-1, self.length, 1).flip(1) * _LOG2E
        # sum_j P_ij dP_ij = out_i . dout_i, the term softmax's backward subtracts from every dP_ij
        pull = (slope * slices(out).flip(1)).sum(-1, keepdim=True)
        self._start_gradients(wanted)
        d_values = torch.zeros_like(self.values)
        for tiles in self.tiles():
            here = tiles[0].rows
            for tile in tiles:
                weight = self.score(tile).sub_(lse[:, here]).exp2_()
                d_values[:, tile.columns].baddbmm_(weight.transpose(1, 2), slope[:, here])
                d_score = torch.bmm(slope[:, here], self.values[:, tile.columns].transpose(1, 2))
                if self.added is not None:
                    d_score.add_(self.added.product(slope[:, here], tile))
                    self.added.collect(Spread(weight), slope[:, here], tile)
                d_score.sub_(pull[:, here]).mul_(weight)
                self._collect(Spread(d_score), tile)
                if self.sums:
                    self.row_sums[:, here] += d_score.sum(-1)
        self.gradients = self._finish()
        self.row_sums = self.row_sums.flip(1).view(self.v.shape[:3])
        return d_values.view(self.v.shape).to(self.v.dtype)

    def _start_gradients(self, wanted: Wanted) -> None:
        zeros = torch.zeros_like
        self.d_pairs = [(zeros(q), zeros(k)) for q, k in self.pairs]
        self.d_bias = zeros(self.bias) if wanted[2 * len(self.pairs)] else None
        self.d_queries = zeros(self.queries) if self.relative is not None else None
        # fp32, or bf16 would round the sum once a tile
        self.d_parameters = [zeros(p, dtype=torch.float32) for p in self.scores.parameters]

    def _collect(self, d_score: Spread, tile: Tile) -> None:
        """Add what one tile [G,I,J] of the scores' gradient brings to every tensor."""
        here, there, scale = tile.rows, tile.columns, self.scores.scale
        for branch, where in self.branches(tile):
            own = d_score.tile if where is None else d_score.tile * where
            q, k = self.pairs[branch]
            d_q, d_k = self.d_pairs[branch]
            d_q[:, here].baddbmm_(own, k[:, there], alpha=scale)
            # q was multiplied by scale and log2(e) at the start
            d_k[:, there].baddbmm_(own.transpose(1, 2), q[:, here], alpha=1 / _LOG2E)
        if self.d_bias is not None:
            start = tile.length - tile.i1 + tile.j0
            self.d_bias[:, start : start + tile.span] += d_score.wide.sum(1)
        if self.relative is not None:
            assert self.d_queries is not None
            self.d_queries[:, here].add_(self.relative.mix(d_score, tile), alpha=scale)
            self.relative.collect(d_score, self.queries[:, here], tile)
        if self.scores.bias is not None and self.d_parameters:
            self._collect_bias(d_score.tile, tile)

    def _collect_bias(self, d_score: Tensor, tile: Tile) -> None:
        assert self.scores.bias is not None
        with torch.enable_grad():
            ids = self.ids_q[tile.rows], self.scores.ids_k[tile.columns]
            bias = self.scores.bias(*ids)
        d_bias = d_score.unflatten(0, (self.batch, -1)).sum(0)
        found = torch.autograd.grad(bias, self.scores.parameters, d_bias, allow_unused=True)
        for total, part in zip(self.d_parameters, found, strict=True):
            if part is not None:
                total += part

    def _finish(self) -> Gradients:
        scores, found = self.scores, []
        for (q, k), (d_q, d_k) in zip(scores.pairs, self.d_pairs, strict=True):
            found += [d_q.flip(1).view(q.shape).to(q.dtype), d_k.view(k.shape).to(k.dtype)]
        table = queries = keys = values = None
        if self.d_bias is not None:
            assert scores.table is not None
            by_distance = self.d_bias[:, : self.length].flip(-1)
            by_distance = by_distance.view(self.batch, self.heads, self.length).sum(0)
            table = fold_tail(by_distance, scores.table.shape[1])
        if self.relative is not None:
            assert scores.queries is not None and scores.keys is not None
            assert self.d_queries is not None
            queries = self.d_queries.flip(1).view(scores.queries.shape).to(scores.queries.dtype)
            keys = (self.relative.gradient / _LOG2E).to(scores.keys.dtype)
        if self.added is not None:
            assert scores.values is not None
            values = self.added.gradient.to(scores.values.dtype)
        parameters = zip(self.d_parameters, scores.parameters, strict=True)
        own = [total.to(whole.dtype) for total, whole in parameters]
        return (*found, table, queries, keys, values, *own)
