"""How far back a decaying bias lets a query look, and which heads to compute together.

In base 2 a score is at most |q_i| |k_j| + b[i-j], and the greatest of a row at least that of the
query with its own key. Where the first is 64 below the second, a weight is less than 2^-64 of the
row's largest: all of them together are far below the last digit of fp32, and their tiles need not
be computed. ALiBi's steep heads thus cost a band, whatever the length.

Legend: B batch, h heads, G = B h slices, S sequence, E width, N entries of a table, R row blocks.
"""

import math
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline.positions.scores import Scores

NOTHING = 64.0


def reaches(q: Tensor, k: Tensor, unit: float, table: Tensor, rows: int) -> Tensor:
    """q, k [G,S,E] with scores q . k unit in base 2, table [G,N] in base 2 -> [G,R] tokens that the
    queries of each block of `rows` see, themselves included; S where nothing is out of sight."""
    length, entries = q.shape[1], table.shape[1]
    short = -length % rows
    own = torch.linalg.vecdot(q, k).mul_(unit).add_(table[:, :1])
    least = F.pad(own, (0, short), value=math.inf).unflatten(-1, (-1, rows)).amin(-1)
    norms = torch.linalg.vector_norm(q, dim=-1).mul_(unit)
    most = F.pad(norms, (0, short)).unflatten(-1, (-1, rows)).amax(-1)
    most *= torch.linalg.vector_norm(k, dim=-1).amax(-1, keepdim=True)
    # the largest bias at a distance or beyond never rises
    later = table.flip(-1).cummax(-1).values.flip(-1)
    seen = torch.searchsorted(-later.contiguous(), -(least - most - NOTHING), right=True)
    return torch.where(seen == entries, length, seen)


def of_heads(scores: Scores, heads: list[int]) -> Scores:
    """The scores of some heads: products of one pair, and a table by distance."""
    ((q, k),), table = scores.pairs, scores.table
    assert table is not None
    return replace(scores, pairs=((q[:, heads], k[:, heads]),), table=table[heads])


def head_groups(scores: Scores, v: Tensor) -> list[list[int]]:
    """Which heads to compute together: v [B,h,S,d] -> lists of heads.

    Heads that look about equally far, as many as there are threads, if some bias falls far enough
    to leave tiles out; otherwise all at once.
    """
    heads = v.shape[1]
    together = [list(range(heads))]
    if scores.table is None or not scores.tabular or v.device.type != "cpu":
        return together
    last = scores.table.detach().float()
    fall = last[:, 0] - last.amin(-1)
    if bool((fall < 2 * NOTHING).all()):
        return together
    order = fall.argsort().tolist()
    size = torch.get_num_threads()
    return [order[start : start + size] for start in range(0, heads, size)]
