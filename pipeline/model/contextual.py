"""The contextual path: positions that count the keys a query's own scores let through.

s_ij = q_i . k_j scale, g_ij = sigmoid(s_ij), p_ij = min(sum_{l=j..i} g_il, N - 1), and with w the
part of p_ij after the point, S_ij = s_ij + (1 - w) z_i[floor p_ij] + w z_i[ceil p_ij], z_i = E q_i.

A row's p need its keys from the query back, and so tiles of a row block run from the diagonal to
the left with the sums so far. Once these have reached N - 1 in every row, all keys further left
have p = N - 1: a number added to the row, and no gates. With D_ij the gradient by S_ij, that by
g_il is the sum of D_ij (z_i[ceil] - z_i[floor]) over the keys j <= l, which needs the row from the
left: of each row block the backward pass first goes left, and keeps a sum per row and tile, then
right. Gates and p are fp64, from the product of q and k on: the gradient by p jumps where p is
whole, and in fp32 rounding alone would decide on which side of it a key is.

Golovneva, Wang, Weston, Sukhbaatar 2024, arXiv 2405.18719, section 4. Legend: G = B h slices, S
sequence, d width of v, E width of q and k, N entries of the table, I query rows and J key columns
of one tile, B batch.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from pipeline.model.kernel import Gradients, Wanted
from pipeline.model.tile_scores import LOG2E, slices
from pipeline.positions.scores import Scores

ROWS, COLUMNS = 256, 512


class Counted(NamedTuple):
    """A tile whose rows are not full: s [G,I,J] in base 2 and its gates, p fp64, and the sums
    [G,I,1] fp64 of the gates from the tile's left end on; None if these are full."""

    product: Tensor
    gates: Tensor
    p: Tensor
    sums: Tensor | None


class Count(NamedTuple):
    """p of a tile: the whole numbers around it [G,I,J], and the part after the point, fp32."""

    low: Tensor
    high: Tensor
    part: Tensor

    @staticmethod
    def of(p: Tensor) -> "Count":
        """p [G,I,J] fp64."""
        low = p.floor()
        return Count(low.long(), p.ceil().long(), (p - low).float())

    def read(self, levels: Tensor) -> Tensor:
        """levels [G,I,N] -> their value at p, [G,I,J]."""
        return torch.lerp(levels.gather(-1, self.low), levels.gather(-1, self.high), self.part)

    def steepness(self, levels: Tensor) -> Tensor:
        """levels [G,I,N] -> the derivative of `read` by p; 0 at a whole p, as N - 1 is."""
        return levels.gather(-1, self.high) - levels.gather(-1, self.low)

    def spread(self, grad: Tensor, d_levels: Tensor) -> None:
        """Add the gradient [G,I,J] of what `read` gave to that of the levels."""
        high = grad * self.part
        d_levels.scatter_add_(-1, self.high, high).scatter_add_(-1, self.low, grad - high)


class ContextualKernel:
    """See `pipeline.model.kernel.Kernel`; its rows must be whole."""

    def forward(self, scores: Scores, v: Tensor) -> tuple[Tensor, Tensor]:
        """v [B,h,S,d] -> out [B,h,S,d], lse [B,h,S] fp32."""
        return ContextualPass(scores, v).forward()

    def backward(
        self, scores: Scores, v: Tensor, out: Tensor, lse: Tensor, d_out: Tensor, wanted: Wanted
    ) -> tuple[Tensor, Gradients]:
        """Gradients of v and of `scores.tensors()`."""
        return ContextualPass(scores, v).backward(out, lse, d_out)


class ContextualPass:
    """One pass over the tiles of one layer."""

    def __init__(self, scores: Scores, v: Tensor) -> None:
        assert scores.context is not None
        more = (scores.bias, scores.select, scores.transform, scores.decay_k, *scores.by_distance)
        assert all(part is None for part in more), "no other term has been thought of with it"
        ((q, k),) = scores.pairs
        self.scores, self.v = scores, v
        self.batch, _, self.length, _ = v.shape
        self.q, self.k, self.values = slices(q), slices(k), slices(v)
        with torch.enable_grad():
            self.table = scores.context()
        heads = self.table.detach().float().expand(v.shape[1], -1, -1)
        self.entries = heads.repeat(self.batch, 1, 1)
        self.last = self.entries.shape[1] - 1

    def blocks(self) -> Iterator[tuple[slice, list[slice]]]:
        """Row blocks, each with its tiles' columns from the diagonal back."""
        for i0 in range(0, self.length, ROWS):
            i1 = min(self.length, i0 + ROWS)
            first = max(0, i0 - (self.scores.window or self.length) + 1)
            ends = range(i1, first, -COLUMNS)
            yield slice(i0, i1), [slice(max(first, end - COLUMNS), end) for end in ends]

    def _seen(self, rows: slice, columns: slice) -> Tensor | None:
        """Where queries see keys, [1,I,J] or [h,I,J]; None = everywhere."""
        scores, device = self.scores, self.k.device
        window = scores.window or self.length
        past, near = columns.stop <= rows.start + 1, rows.stop - columns.start <= window
        if past and near and scores.allowed is None:
            return None
        i = torch.arange(rows.start, rows.stop, device=device)[:, None]
        distance = i - torch.arange(columns.start, columns.stop, device=device)
        seen = ((distance >= 0) & (distance < window))[None]
        if scores.allowed is not None:
            seen = seen & scores.allowed(scores.ids_q[rows], scores.ids_k[columns])
        return seen

    def _products(self, rows: slice, columns: slice, precision: torch.dtype) -> Tensor:
        """s of a tile, [G,I,J]; minus infinity where a query does not see a key."""
        q = self.q[:, rows].to(precision) * self.scores.scale
        product = torch.bmm(q, self.k[:, columns].transpose(1, 2).to(precision))
        seen = self._seen(rows, columns)
        if seen is not None:
            product.unflatten(0, (self.batch, -1)).masked_fill_(~seen, -math.inf)
        return product

    def _levels(self, rows: slice) -> Tensor:
        """z of a row block in base 2, [G,I,N]."""
        return torch.bmm(self.q[:, rows], self.entries.transpose(1, 2)).mul_(LOG2E)

    def _start(self, rows: slice) -> Tensor | None:
        """The sums to the right of the first tile."""
        return self.q.new_zeros(len(self.q), rows.stop - rows.start, 1, dtype=torch.float64)

    def _counted(self, rows: slice, columns: slice, before: Tensor) -> Counted:
        """The tile, given the sums to its right [G,I,1]."""
        product = self._products(rows, columns, torch.float64)
        gates = torch.sigmoid(product)
        sums = gates.flip(-1).cumsum(-1).flip(-1).add_(before)
        after = sums[..., :1].clone()
        full = not after.is_meta and bool((after >= self.last).all())
        p = sums.clamp_(max=self.last)
        return Counted(product.mul_(LOG2E).float(), gates.float(), p, None if full else after)

    def _full(self, rows: slice, columns: slice) -> Tensor:
        """s in base 2 of a tile whose rows are full."""
        return self._products(rows, columns, self.q.dtype).mul_(LOG2E)

    def whole_rows(self, rows: slice) -> Tensor:
        """S of a row block and all keys up to its end in base 2, in one tile [G,I,J]."""
        before = self._start(rows)
        assert before is not None
        product, _, p, _ = self._counted(rows, slice(0, rows.stop), before)
        return product.add_(Count.of(p).read(self._levels(rows)))

    def forward(self) -> tuple[Tensor, Tensor]:
        """out [B,h,S,d] and lse [B,h,S]."""
        out, lse = torch.empty_like(self.values), self.values.new_empty(*self.values.shape[:2], 1)
        for rows, tiles in self.blocks():
            levels, sums = self._levels(rows), self._start(rows)
            best = self.values.new_full(levels[..., :1].shape, -math.inf)
            mass, mixed = torch.zeros_like(best), torch.zeros_like(self.values[:, rows])
            for columns in tiles:
                if sums is None:
                    weight = self._full(rows, columns).add_(levels[..., -1:])
                else:
                    weight, _, p, sums = self._counted(rows, columns, sums)
                    weight.add_(Count.of(p).read(levels))
                top = torch.maximum(best, weight.amax(-1, keepdim=True))
                weight.sub_(top).exp2_()
                kept = (best - top).exp2_()
                mass.mul_(kept).add_(weight.sum(-1, keepdim=True))
                mixed.mul_(kept).baddbmm_(weight, self.values[:, columns])
                best = top
            lse[:, rows] = best.add_(mass.log2()).div_(LOG2E)
            out[:, rows] = mixed.div_(mass)
        shape = self.v.shape
        return out.view(shape).to(self.v.dtype), lse.view(shape[:3])

    def sums(self, rows: slice, tiles: list[slice]) -> list[Tensor | None]:
        """Of each tile the sums to its right, [G,I,1]; None where they are full."""
        found = [self._start(rows)]
        for columns in tiles[:-1]:
            before = found[-1]
            found.append(None if before is None else self._counted(rows, columns, before).sums)
        return found

    def backward(self, out: Tensor, lse: Tensor, d_out: Tensor) -> tuple[Tensor, Gradients]:
        """out, d_out [B,h,S,d], lse [B,h,S] -> gradients of v and of `scores.tensors()`."""
        slope, lse = slices(d_out), lse.reshape(-1, self.length, 1) * LOG2E
        # sum_j P_ij dP_ij = out_i . dout_i, the term softmax's backward subtracts from every dP_ij
        pull = (slope * slices(out)).sum(-1, keepdim=True)
        d_values, self.d_q, self.d_k, self.d_entries = map(
            torch.zeros_like, (self.values, self.q, self.k, self.entries)
        )
        for rows, tiles in self.blocks():
            levels = self._levels(rows)
            d_levels = torch.zeros_like(levels)
            carried = torch.zeros_like(pull[:, rows])
            sums = self.sums(rows, tiles)
            for columns, before in zip(reversed(tiles), reversed(sums), strict=True):
                if before is None:
                    weight = self._full(rows, columns).add_(levels[..., -1:])
                else:
                    weight, gates, p, _ = self._counted(rows, columns, before)
                    count = Count.of(p)
                    weight.add_(count.read(levels))
                weight.sub_(lse[:, rows]).exp2_()
                d_values[:, columns].baddbmm_(weight.transpose(1, 2), slope[:, rows])
                d_score = torch.bmm(slope[:, rows], self.values[:, columns].transpose(1, 2))
                d_score.sub_(pull[:, rows]).mul_(weight)
                if before is None:
                    d_levels[..., -1:] += d_score.sum(-1, keepdim=True)
                else:
                    count.spread(d_score, d_levels)
                    d_gates = (d_score * count.steepness(levels)).div_(LOG2E).cumsum(-1)
                    d_gates += carried
                    carried = d_gates[..., -1:].clone()
                    d_score.addcmul_(d_gates, gates * (1.0 - gates))
                self._collect(d_score, rows, columns)
            self._collect_levels(d_levels, rows)
        return d_values.view(self.v.shape).to(self.v.dtype), self._gradients()

    def _collect(self, d_product: Tensor, rows: slice, columns: slice) -> None:
        """Add what the gradient by natural s [G,I,J] brings to q and k."""
        self.d_q[:, rows].baddbmm_(d_product, self.k[:, columns], alpha=self.scores.scale)
        across = d_product.transpose(1, 2)
        self.d_k[:, columns].baddbmm_(across, self.q[:, rows], alpha=self.scores.scale)

    def _collect_levels(self, d_levels: Tensor, rows: slice) -> None:
        """Add what the gradient by natural z [G,I,N] brings to q and E."""
        self.d_q[:, rows].baddbmm_(d_levels, self.entries)
        across = d_levels.transpose(1, 2)
        self.d_entries.baddbmm_(across, self.q[:, rows])

    def _gradients(self) -> Gradients:
        """In the order of `Scores.tensors()`."""
        scores = self.scores
        ((q, k),) = scores.pairs
        per_head = self.d_entries.unflatten(0, (self.batch, -1)).sum(0)
        pull = per_head.sum_to_size(self.table.shape).to(self.table.dtype)
        own: tuple[Tensor | None, ...] = ()
        if self.table.requires_grad:
            own = torch.autograd.grad(self.table, scores.parameters, pull, allow_unused=True)
        both = (d.view(x.shape).to(x.dtype) for d, x in ((self.d_q, q), (self.d_k, k)))
        return (*both, *(None for _ in scores.vectors), *own)
