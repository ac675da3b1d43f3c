"""Causal attention from its definition, in fp64; nothing of the project is used.

`attention` in loops, for encodings written out pair by pair; `dense` as one matrix of scores, for
whatever the fields of `pipeline.positions.scores.Scores` say.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Score = Callable[[Tensor, Tensor, int, int, int], Tensor]
Value = Callable[[int, int, int], Tensor]
Row = Callable[[Tensor, Tensor, int, int, Sequence[Any]], Tensor]


@dataclass(frozen=True)
class RowScore:
    """A score that needs more than its own q and k: `row(q, k, head, i, ids)` gives S_i0 ... S_ii
    from q, k [H,S,d] and positions [S] of a whole sequence."""

    row: Row

    def __call__(self, q: Tensor, k: Tensor, head: int, i: int, j: int) -> Tensor:
        """Not from q_i and k_j alone."""
        raise NotImplementedError


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    score: Score,
    value: Value | None = None,
    ids: Sequence[Any] | None = None,
) -> Tensor:
    """q, k, v [B,H,S,d] fp64 -> [B,H,S,d]; `score(q_i, k_j, head, i, j)` is the whole S_ij, asked
    at positions `ids`, which are 0 to S - 1 unless given, and `value(head, i, j)` [d] what query i
    adds to the value of key j."""
    batch, heads, length, _ = q.shape
    at = range(length) if ids is None else ids
    out = []
    for b in range(batch):
        for h in range(heads):
            for i in range(length):
                if isinstance(score, RowScore):
                    scores = score.row(q[b], k[b], h, i, at)
                else:
                    pairs = ((k[b, h, j], at[j]) for j in range(i + 1))
                    scores = torch.stack([score(q[b, h, i], k_j, h, at[i], j) for k_j, j in pairs])
                weights = (scores - scores.max()).exp()
                read = v[b, h, : i + 1]
                if value is not None:
                    read = read + torch.stack([value(h, i, j) for j in range(i + 1)])
                out.append((weights / weights.sum()) @ read)
    return torch.stack(out).view(batch, heads, length, -1)


def plain_score(q: Tensor, k: Tensor, head: int, i: int, j: int) -> Tensor:
    """q_i . k_j / sqrt(d)."""
    return (q * k).sum() / math.sqrt(len(q))


def dense_scores(scores: Any) -> Tensor:
    """Every S_ij, [B,h,S,S] fp64; what a query must not see is minus infinity."""
    ids_q, ids_k = scores.ids_q, scores.ids_k
    distance = ids_q[:, None] - ids_k
    total = torch.zeros((), dtype=torch.float64)
    for branch, (q, k) in enumerate(scores.pairs):
        products = q.double() @ k.double().mT
        if scores.select is None:
            total = products
        else:
            total = torch.where(scores.select(ids_q, ids_k) == branch, products, total)
    if scores.keys is not None:
        rows = _at(scores.keys, distance)
        total = total + torch.einsum("bhie,hije->bhij", scores.queries.double(), rows)
    if scores.key_table is not None:
        rows, ((_, k),) = _at(scores.key_table, distance), scores.pairs
        total = total + torch.einsum("bhje,hije->bhij", k.double(), rows)
    total = total * scores.scale
    if scores.table is not None:
        total = total + _at(scores.table, distance)
    if scores.bias is not None:
        total = total + scores.bias(ids_q, ids_k).double()
    if scores.decay_k is not None:
        total = total + scores.decay_q[..., None] - scores.decay_k[..., None, :]
    if scores.transform is not None:
        total = scores.transform(total, ids_q, ids_k)
    i = torch.arange(len(ids_q))
    unseen = i[:, None] < i
    if scores.allowed is not None:
        unseen = unseen | ~scores.allowed(ids_q, ids_k)
    if scores.window is not None:
        unseen = unseen | (distance >= scores.window)
    total = total.masked_fill(unseen, -math.inf)
    if scores.context is not None:
        ((q, _),) = scores.pairs
        total = total + _contextual(total, q.double(), scores.context().double())
    return total


def _contextual(logits: Tensor, q: Tensor, table: Tensor) -> Tensor:
    """logits [B,h,S,S], q [B,h,S,d], table [h or 1,N,d] -> q_i . E[p_ij] between whole p."""
    counts = torch.sigmoid(logits).flip(-1).cumsum(-1).flip(-1).clamp(max=table.shape[1] - 1)
    levels = q @ table.mT
    low, high = (levels.gather(-1, p.long()) for p in (counts.floor(), counts.ceil()))
    share = counts - counts.detach().floor()
    return low * (1.0 - share) + high * share


def dense(scores: Any, v: Tensor) -> Tensor:
    """v [B,h,S,d] -> attention under these scores, [B,h,S,d] fp64."""
    weights = dense_scores(scores).softmax(-1)
    out = weights @ v.double()
    if scores.values is not None:
        rows = _at(scores.values, scores.ids_q[:, None] - scores.ids_k)
        out = out + torch.einsum("bhij,hije->bhie", weights, rows)
    return out


def _at(table: Tensor, distance: Tensor) -> Tensor:
    """table [h,N] or [h,N,E], distance [I,J] -> [h,I,J(,E)], entry min(distance, N - 1)."""
    return table.double()[:, distance.clamp(0, table.shape[1] - 1)]
