"""The tile path: attention with a bias by distance, forward and backward in tiles.

S_ij = q_i . k_j / sqrt(d) + table[h, i - j] for j <= i; out_i = sum_j softmax_j(S_ij) v_j.

Legend: G = B h slices, S sequence, d head width, I query rows and J key columns of one tile, B
batch. Two choices make it as fast as the arithmetic allows. Query rows are reversed, r = S - 1 - i:
then the bias of a tile, a function of r + j, is a Hankel view (strides 1, 1) of one 2S vector, with
no copy, and minus infinity beyond distance 0 in that vector is the causal mask. Scores are in base
2: exp2 of a very negative number is fast where exp is not. Online softmax as in Milakov and
Gimelshein 2018, arXiv 1805.02867; recomputed backward as in Dao et al. 2022, arXiv 2205.14135.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

ROWS, COLUMNS = 256, 512
_LOG2E = math.log2(math.e)


def tiled_attention(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
    """q, k, v [B,h,S,d], table [h,S] fp32 by distance -> [B,h,S,d]; gradients for all four."""
    out: Tensor = _Tiled.apply(q, k, v, table)
    return out


def _hankel(table: Tensor, batch: int) -> Tensor:
    """table [h,S] -> [B h, 2S]: entry r + j holds the bias of row r, column j in base 2, and minus
    infinity where j > i."""
    ahead = torch.full_like(table, -math.inf)
    return torch.cat([table.flip(-1) * _LOG2E, ahead], dim=-1).repeat(batch, 1)


def _tiles(length: int) -> Iterator[tuple[int, int, list[tuple[int, int]]]]:
    """Query ranges [i0, i1) with the key ranges [j0, j1) that their last row can see."""
    for i0 in range(0, length, ROWS):
        i1 = min(length, i0 + ROWS)
        yield i0, i1, [(j0, min(i1, j0 + COLUMNS)) for j0 in range(0, i1, COLUMNS)]


def _scores(hankel: Tensor, q: Tensor, k: Tensor, start: int) -> Tensor:
    """Scores of one tile in base 2: q [G,I,d] scaled, k [G,J,d], `start` = least r + j."""
    bias = hankel.as_strided(
        (q.shape[0], q.shape[1], k.shape[1]),
        (hankel.shape[1], 1, 1),
        hankel.storage_offset() + start,
    )
    return torch.baddbmm(bias, q, k.transpose(1, 2))


def _slices(x: Tensor) -> Tensor:
    """[B,h,S,d] -> [G,S,d] fp32."""
    return x.reshape(-1, *x.shape[2:]).float()


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
        batch, _, length, width = q.shape
        rows = _slices(q).flip(1) * (_LOG2E / math.sqrt(width))
        keys, values, hankel = _slices(k), _slices(v), _hankel(table.float(), batch)
        out, lse = torch.empty_like(values), values.new_empty(*values.shape[:2], 1)
        for i0, i1, columns in _tiles(length):
            here = slice(length - i1, length - i0)
            best = values.new_full((values.shape[0], i1 - i0, 1), -math.inf)
            mass, mixed = torch.zeros_like(best), torch.zeros_like(values[:, i0:i1])
            for j0, j1 in columns:
                tile = _scores(hankel, rows[:, here], keys[:, j0:j1], length - i1 + j0)
                top = torch.maximum(best, tile.amax(-1, keepdim=True))
                tile.sub_(top).exp2_()
                kept = (best - top).exp2_()
                mass.mul_(kept).add_(tile.sum(-1, keepdim=True))
                mixed.mul_(kept).baddbmm_(tile, values[:, j0:j1])
                best = top
            out[:, here] = mixed.div_(mass)
            lse[:, here] = best.add_(mass.log2_())
        result = out.flip(1).view_as(v).to(v.dtype)
        ctx.save_for_backward(q, k, v, table, result, lse)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        q, k, v, table, result, lse = ctx.saved_tensors
        batch, heads, length, width = q.shape
        scale = 1.0 / math.sqrt(width)
        rows, keys, values = _slices(q).flip(1), _slices(k), _slices(v)
        hankel, slope = _hankel(table.float(), batch), _slices(grad).flip(1)
        # sum_j P_ij dP_ij = out_i . dout_i, the term softmax's backward subtracts from every dP_ij
        pull = (slope * _slices(result).flip(1)).sum(-1, keepdim=True)
        d_rows, d_keys, d_values = (torch.zeros_like(x) for x in (rows, keys, values))
        d_hankel = torch.zeros_like(hankel) if ctx.needs_input_grad[3] else None
        for i0, i1, columns in _tiles(length):
            here = slice(length - i1, length - i0)
            scaled = rows[:, here] * (scale * _LOG2E)
            for j0, j1 in columns:
                start = length - i1 + j0
                weight = _scores(hankel, scaled, keys[:, j0:j1], start)
                weight.sub_(lse[:, here]).exp2_()
                d_values[:, j0:j1].baddbmm_(weight.transpose(1, 2), slope[:, here])
                d_tile = torch.bmm(slope[:, here], values[:, j0:j1].transpose(1, 2))
                d_tile.sub_(pull[:, here]).mul_(weight)
                d_rows[:, here].baddbmm_(d_tile, keys[:, j0:j1], alpha=scale)
                d_keys[:, j0:j1].baddbmm_(d_tile.transpose(1, 2), rows[:, here], alpha=scale)
                if d_hankel is not None:
                    d_hankel[:, start : start + (i1 - i0) + (j1 - j0)] += _antidiagonals(d_tile)
        d_table = None
        if d_hankel is not None:
            d_table = d_hankel[:, :length].flip(-1).view(batch, heads, length).sum(0)
        return (
            d_rows.flip(1).view_as(q).to(q.dtype),
            d_keys.view_as(k).to(k.dtype),
            d_values.view_as(v).to(v.dtype),
            d_table,
        )


def _antidiagonals(tile: Tensor) -> Tensor:
    """Sums over r + j = const: [G,I,J] -> [G,I+J], the last entry zero.

    Row r is written into a zero buffer shifted by r, then columns are summed.
    """
    slices, rows, columns = tile.shape
    wide = tile.new_zeros(slices, rows, rows + columns)
    skew = wide.as_strided(tile.shape, (rows * (rows + columns), rows + columns + 1, 1))
    skew.copy_(tile)
    return wide.sum(1)
