"""Causal attention from its definition, in loops and fp64; nothing of the project is used."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

Score = Callable[[Tensor, Tensor, int, int, int], Tensor]


def attention(q: Tensor, k: Tensor, v: Tensor, score: Score) -> Tensor:
    """q, k, v [B,H,S,d] fp64 -> [B,H,S,d]; `score(q_i, k_j, head, i, j)` is the whole S_ij."""
    batch, heads, length, _ = q.shape
    out = []
    for b in range(batch):
        for h in range(heads):
            for i in range(length):
                scores = torch.stack([score(q[b, h, i], k[b, h, j], h, i, j) for j in range(i + 1)])
                weights = (scores - scores.max()).exp()
                out.append((weights / weights.sum()) @ v[b, h, : i + 1])
    return torch.stack(out).view(batch, heads, length, -1)


def plain_score(q: Tensor, k: Tensor, head: int, i: int, j: int) -> Tensor:
    """q_i . k_j / sqrt(d)."""
    return (q * k).sum() / math.sqrt(len(q))
