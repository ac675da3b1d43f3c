"""The scores of one tile, and their way back: from the gradient of a tile's scores to that of every
tensor they are made of.

Scores are in base 2 (exp2 of a very negative number is fast where exp is not) and fp32. Rows are
reversed (`pipeline.model.distance` says why); minus infinity beyond distance 0 in the vector of
biases is the causal mask, and beyond the window the mask of the window.

Legend: G = B h slices, S sequence, E width of q and k, d width of v, I query rows and J key
columns of one tile, B batch.
"""

import math

import torch
from torch import Tensor

from pipeline.model.distance import DistanceTable, Spread, Tile, fold_tail, hankel, hankel_view
from pipeline.model.kernel import Gradients, Wanted
from pipeline.positions.scores import Scores

LOG2E = math.log2(math.e)


def slices(x: Tensor) -> Tensor:
    """[B,h,S,E] -> [G,S,E] fp32."""
    return x.reshape(-1, *x.shape[2:]).float()


def _optional(x: Tensor | None) -> Tensor | None:
    """[B,h,S] -> [G,S], in its own precision."""
    return None if x is None else x.flatten(0, 1)


class TileScores:
    """All tiles of one layer; no tile has more than `rows` rows or `columns` columns."""

    def __init__(self, scores: Scores, v: Tensor, rows: int, columns: int) -> None:
        """v [B,h,S,d] gives sizes and device only."""
        self.scores = scores
        self.batch, self.heads, self.length, _ = v.shape
        self.size = (self.batch, self.length, rows + columns)
        assert scores.table is None or scores.transform is None
        table = scores.table
        if table is not None:
            table = table.float().repeat(self.batch, 1) * LOG2E
        self.table = table
        unit = scores.scale * LOG2E
        self.pairs = [(slices(q).flip(1) * unit, slices(k)) for q, k in scores.pairs]
        self.bias = hankel(table, self.length, scores.window, self.pairs[0][0])
        self.relative: DistanceTable | None = None
        if scores.keys is not None:
            assert scores.queries is not None
            self.relative = DistanceTable(scores.keys, *self.size)
            self.queries = slices(scores.queries).flip(1) * unit
        self.crossed: DistanceTable | None = None
        if scores.key_table is not None:
            self.crossed = DistanceTable(scores.key_table, *self.size)
        self.decay_q, self.decay_k = _optional(scores.decay_q), _optional(scores.decay_k)
        if self.decay_q is not None:
            self.decay_q = self.decay_q.flip(1)
        self.ids_q = scores.ids_q.flip(0)

    def ids(self, tile: Tile) -> tuple[Tensor, Tensor]:
        """Positions of a tile's queries [I] and keys [J]."""
        return self.ids_q[tile.rows], self.scores.ids_k[tile.columns]

    def allowed(self, tile: Tile) -> Tensor | None:
        """Where a tile's queries see its keys, [h,I,J] or [1,I,J]; None = wherever it is causal."""
        return None if self.scores.allowed is None else self.scores.allowed(*self.ids(tile))

    def branches(self, tile: Tile) -> list[tuple[int, Tensor | None]]:
        """The branches that a tile needs, each with where it holds, [I,J]; None = everywhere."""
        if self.scores.select is None:
            return [(0, None)]
        chosen = self.scores.select(*self.ids(tile))
        # on the meta device there are no values to look at
        least, most = (0, len(self.pairs) - 1) if chosen.is_meta else map(int, chosen.aminmax())
        if least == most:
            return [(least, None)]
        return [(b, chosen == b) for b in range(least, most + 1)]

    def _sum(self, tile: Tile) -> Tensor:
        """All terms of S, [G,I,J]; masks are in it unless there is a transform."""
        if self.scores.transform is None:
            bias = hankel_view(self.bias, tile, self.batch * self.heads)
        else:
            bias = self.bias.new_zeros(())
        score: Tensor | None = None
        for branch, where in self.branches(tile):
            q, k = self.pairs[branch]
            own = torch.baddbmm(bias, q[:, tile.rows], k[:, tile.columns].transpose(1, 2))
            score = own if score is None else torch.where(where, own, score)  # type: ignore
        assert score is not None
        if self.relative is not None:
            score.add_(self.relative.product(self.queries[:, tile.rows], tile))
        if self.crossed is not None:
            keys = self.pairs[0][1][:, tile.columns]
            product = self.crossed.product(keys, tile).transpose(1, 2)
            score.add_(product, alpha=self.scores.scale * LOG2E)
        if self.decay_k is not None:
            assert self.decay_q is not None
            score.add_(self._decayed(tile))
        if self.scores.bias is not None:
            bias = self.scores.bias(*self.ids(tile))
            score.unflatten(0, (self.batch, -1)).add_(bias, alpha=LOG2E)
        return score

    def _decayed(self, tile: Tile) -> Tensor:
        """c_i - c_j of a tile in base 2, [G,I,J] fp32.

        From a query of the tile on, and in two fp32 numbers each: the sums themselves grow beyond
        fp32's digits, and so may their differences from any one of them, where their differences
        from each other matter.
        """
        assert self.decay_q is not None and self.decay_k is not None
        c_q = self.decay_q[:, tile.rows]
        c_k = (self.decay_k[:, tile.columns] - c_q[:, -1:]) * LOG2E
        c_q = (c_q - c_q[:, -1:]) * LOG2E
        (high_q, low_q), (high_k, low_k) = (
            (c.float(), (c - c.float()).float()) for c in (c_q, c_k)
        )
        decayed = high_q.unsqueeze(2) - high_k.unsqueeze(1)
        return decayed.add_(low_q.unsqueeze(2)).sub_(low_k.unsqueeze(1))

    def _transformed(self, raw: Tensor, tile: Tile) -> Tensor:
        """raw [B,h,I,J], natural -> t(raw)."""
        assert self.scores.transform is not None
        return self.scores.transform(raw, *self.ids(tile))

    def __call__(self, tile: Tile, allowed: Tensor | None = None) -> Tensor:
        """Scores of one tile, [G,I,J]; minus infinity where `allowed`, of that tile, is false."""
        score = self._sum(tile)
        if self.scores.transform is not None:
            raw = score.div_(LOG2E).unflatten(0, (self.batch, -1))
            score = self._transformed(raw, tile).flatten(0, 1) * LOG2E
            score.add_(hankel_view(self.bias, tile, len(score)))
        if allowed is not None:
            score.unflatten(0, (self.batch, -1)).masked_fill_(~allowed, -math.inf)
        return score

    def start(self, wanted: Wanted) -> None:
        """Begin to collect gradients; `wanted` as in `pipeline.model.kernel.Kernel.backward`."""
        zeros, scores = torch.zeros_like, self.scores
        self.d_pairs = [(zeros(q), zeros(k)) for q, k in self.pairs]
        self.d_bias = zeros(self.bias) if wanted[2 * len(self.pairs)] else None
        self.d_queries = zeros(self.queries) if self.relative is not None else None
        self.d_decay = zeros(self.decay_k) if self.decay_k is not None else None
        # fp32, or bf16 would round the sum once a tile
        self.d_parameters = [zeros(p, dtype=torch.float32) for p in scores.parameters]

    def collect(self, d_score: Tensor, tile: Tile) -> None:
        """Add what one tile's gradient by natural scores [G,I,J] brings to every tensor."""
        if self.scores.transform is not None:
            d_score = self._pull_transform(d_score, tile)
        spread, scale = Spread(d_score), self.scores.scale
        here, there = tile.rows, tile.columns
        for branch, where in self.branches(tile):
            own = d_score if where is None else d_score * where
            q, k = self.pairs[branch]
            d_q, d_k = self.d_pairs[branch]
            d_q[:, here].baddbmm_(own, k[:, there], alpha=scale)
            # q was multiplied by scale and log2(e) at the start
            d_k[:, there].baddbmm_(own.transpose(1, 2), q[:, here], alpha=1 / LOG2E)
        if self.d_bias is not None:
            start = tile.length - tile.i1 + tile.j0
            self.d_bias[:, start : start + tile.span] += spread.wide.sum(1)
        if self.relative is not None:
            assert self.d_queries is not None
            self.d_queries[:, here].add_(self.relative.mix(spread, tile), alpha=scale)
            self.relative.collect(spread, self.queries[:, here], tile)
        if self.crossed is not None:
            across, keys = Spread(d_score.transpose(1, 2)), self.pairs[0][1][:, there]
            self.d_pairs[0][1][:, there].add_(self.crossed.mix(across, tile), alpha=scale)
            self.crossed.collect(across, keys, tile)
        if self.d_decay is not None:
            self.d_decay[:, there] -= d_score.sum(1)
        if self.scores.bias is not None and self.d_parameters:
            with torch.enable_grad():
                bias = self.scores.bias(*self.ids(tile))
            d_bias = d_score.unflatten(0, (self.batch, -1)).sum(0)
            self._add_parameters(self._grad(bias, self.scores.parameters, d_bias))

    def _pull_transform(self, d_score: Tensor, tile: Tile) -> Tensor:
        """Gradient by t(S) -> gradient by S; that of the parameters is collected."""
        raw = self._sum(tile).div_(LOG2E).unflatten(0, (self.batch, -1)).requires_grad_()
        with torch.enable_grad():
            mapped = self._transformed(raw, tile)
        pull = d_score.unflatten(0, (self.batch, -1))
        found = self._grad(mapped, (raw, *self.scores.parameters), pull)
        self._add_parameters(found[1:])
        assert found[0] is not None
        return found[0].flatten(0, 1)

    def _grad(self, y: Tensor, x: tuple[Tensor, ...], pull: Tensor) -> tuple[Tensor | None, ...]:
        found: tuple[Tensor | None, ...] = torch.autograd.grad(y, x, pull, allow_unused=True)
        return found

    def _add_parameters(self, found: tuple[Tensor | None, ...]) -> None:
        for total, part in zip(self.d_parameters, found, strict=True):
            if part is not None:
                total += part

    def gradients(self) -> Gradients:
        """What was collected, in the order of `Scores.tensors()`."""
        scores, found = self.scores, []
        for (q, k), (d_q, d_k) in zip(scores.pairs, self.d_pairs, strict=True):
            found += [d_q.flip(1).view(q.shape).to(q.dtype), d_k.view(k.shape).to(k.dtype)]
        table = queries = keys = key_table = decay = None
        if self.d_bias is not None:
            assert scores.table is not None
            by_distance = self.d_bias[:, : self.length].flip(-1)
            by_distance = by_distance.view(self.batch, self.heads, self.length).sum(0)
            table = fold_tail(by_distance, scores.table.shape[1])
        if self.relative is not None:
            assert scores.queries is not None and scores.keys is not None
            assert self.d_queries is not None
            queries = self.d_queries.flip(1).view(scores.queries.shape).to(scores.queries.dtype)
            keys = (self.relative.gradient / LOG2E).to(scores.keys.dtype)
        if self.crossed is not None:
            assert scores.key_table is not None
            key_table = (self.crossed.gradient * scores.scale).to(scores.key_table.dtype)
        if self.d_decay is not None:
            decay = self.d_decay.view(self.batch, self.heads, self.length)
        parameters = zip(self.d_parameters, scores.parameters, strict=True)
        own = [total.to(whole.dtype) for total, whole in parameters]
        return (*found, table, queries, keys, key_table, None, decay, *own)
