"""The far/near path, for scores that are plain but for tables by distance that end in a constant.

From distance W = `constant_from` = N - 1 on, the tables add c_i = b[W] + r_i . K[W] scale to the
whole far part of row i: a shift of its log-sum-exp. So the far part is plain causal attention of
q[W:] over k[:S-W], on the fused kernel; the near part, i - j < W, is the tile path with a window
of W; the two are merged by their log-sum-exps. V[W] is added to the far part's output.

The far constants' gradient needs no far tile: a whole row of the scores' gradient sums to zero, so
its far part is minus its near part. This is why the kernel must have all keys of a row: it serves
no ring. Legend: B batch, h heads, S tokens, d head width.
"""

from dataclasses import replace

from torch import Tensor

from pipeline.model.flash import flash, flash_backward
from pipeline.model.kernel import Gradients, Wanted, merge
from pipeline.model.tile import TileKernel, TilePass
from pipeline.positions.scores import Scores


def serves_far_near(scores: Scores) -> bool:
    """Whether the scores are products of one pair and tables that end in a constant."""
    other = (scores.bias, scores.window, scores.select, scores.key_table, scores.decay_k)
    more = (scores.allowed, scores.transform)
    plain = all(part is None for part in (*other, *more))
    return plain and scores.constant_from is not None and bool(scores.by_distance)


class FarNearKernel:
    """See `pipeline.model.kernel.Kernel`; its rows must be whole."""

    def _start(self, scores: Scores) -> int:
        """W, the least far distance."""
        assert scores.constant_from is not None
        return scores.constant_from

    def _shift(self, scores: Scores, start: int) -> Tensor | float:
        """c_i of the rows from `start` on, [B,h,S-W] or a number that broadcasts to it."""
        shift: Tensor | float = 0.0
        if scores.table is not None:
            shift = scores.table[:, -1:].float()
        if scores.keys is not None:
            assert scores.queries is not None
            far = scores.queries[:, :, start:].float() @ scores.keys[:, -1, :, None].float()
            shift = shift + far.squeeze(-1) * scores.scale
        return shift

    def _far(self, scores: Scores, v: Tensor, start: int) -> tuple[Tensor, Tensor, Tensor]:
        ((q, k),) = scores.pairs
        length = q.shape[2]
        return q[:, :, start:], k[:, :, : length - start], v[:, :, : length - start]

    def forward(self, scores: Scores, v: Tensor) -> tuple[Tensor, Tensor]:
        """v [B,h,S,d] -> out [B,h,S,d], lse [B,h,S] fp32."""
        start = self._start(scores)
        if not 0 < start < v.shape[2]:
            return TilePass(scores, v).forward()
        out, lse = TilePass(replace(scores, window=start), v).forward()
        far, far_lse = flash(*self._far(scores, v, start), scores.scale)
        far_lse = far_lse + self._shift(scores, start)
        if scores.values is not None:
            far = far + scores.values[:, -1:].to(far.dtype)
        merged, merged_lse = merge(out[:, :, start:], lse[..., start:], far, far_lse)
        out[:, :, start:], lse[..., start:] = merged, merged_lse
        return out, lse

    def backward(
        self, scores: Scores, v: Tensor, out: Tensor, lse: Tensor, d_out: Tensor, wanted: Wanted
    ) -> tuple[Tensor, Gradients]:
        """Gradients of v and of `scores.tensors()`."""
        start = self._start(scores)
        if not 0 < start < v.shape[2]:
            return TileKernel().backward(scores, v, out, lse, d_out, wanted)
        near = TilePass(replace(scores, window=start), v, sums=True)
        d_v = near.backward(out, lse, d_out, wanted)
        d_q, d_k, table, queries, keys, _, values, _ = near.gradients
        assert d_q is not None and d_k is not None
        slope, whole = d_out[:, :, start:], out[:, :, start:]
        if scores.values is not None:
            # the kernel takes dout . out from dout . v; what is due is from dout . (v + V[W])
            whole = whole - scores.values[:, -1:].to(whole.dtype)
        far_lse = lse[..., start:] - self._shift(scores, start)
        far = flash_backward(*self._far(scores, v, start), whole, far_lse, slope, scores.scale)
        d_q[:, :, start:] += far[0]
        d_k[:, :, :-start] += far[1]
        d_v[:, :, :-start] += far[2]
        rest = -near.row_sums[..., start:]
        if table is not None:
            table[:, -1] += rest.sum((0, 2))
        if keys is not None:
            assert queries is not None and scores.queries is not None and scores.keys is not None
            rest = rest.unsqueeze(-1) * scores.scale
            queries[:, :, start:] += (rest * scores.keys[:, -1:].float()).to(queries.dtype)
            keys[:, -1] += (rest * scores.queries[:, :, start:].float()).sum((0, 2)).to(keys.dtype)
        if values is not None:
            # sum_j over far keys of P_ij dout_i is what their values got, all together
            values[:, -1] += far[2].float().sum((0, 2)).to(values.dtype)
        return d_v, (d_q, d_k, table, queries, keys, None, values, None)
