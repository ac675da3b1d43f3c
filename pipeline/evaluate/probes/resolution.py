"""How well attention tells distances apart: the attention resolution of each layer and head.

    R(s) = sum_n e^{s[n]} (e^{s[n]} - e^{s[n+1]}) / (sum_n e^{s[n]})^2,   n = 0 .. N

Sun et al. 2022, arXiv 2212.10554, section 2: s[n] is the expected score of a query and the key n
tokens before it. It is large where scores fall with distance, 0 where they are flat, and negative
where they rise.

Here s[n] is the mean, over the sampled queries of all documents, of what softmax is taken of: the
model's own scores with scale, bias and temperature in them. A number that is added to the whole row
of a query changes no weight; as every s[n] is a mean over the same queries, it does not change R
either. So that they are the same, n + 1 ends where the first of the sampled queries has its first
token: no s[n] is left to the later queries alone. Both sums end at N, one before the last s that is
known. A distance that a mask hides from any of these queries has s[n] = minus infinity, the mean of
a score that can be that: it adds nothing. R depends on N, and means over few queries leave noise in
s, which raises it: compare R at the same length and number of queries only.
"""

from typing import Any

import torch
from torch import Tensor

Row = dict[str, Any]


def resolution(scores: Tensor) -> Tensor:
    """s [...,N+2] at distances 0 to N + 1 -> R [...], fp64; s[0] is finite."""
    size = (scores.double() - scores.double().amax(-1, keepdim=True)).exp()
    here, next_one = size[..., :-1], size[..., 1:]
    return (here * (here - next_one)).sum(-1) / here.sum(-1).square()


class AttentionResolution:
    """Sums of scores by distance over the queries of every document at one length."""

    def __init__(self, layers: int, heads: int, first_query: int) -> None:
        """`first_query`, at least 1, is the place of the first of the sampled queries."""
        self.known = first_query + 1
        self.sums = torch.zeros(layers, heads, self.known, dtype=torch.float64)
        self.seen = torch.zeros(layers, dtype=torch.int64)

    def add(self, layer: int, scores: Tensor, queries: Tensor) -> None:
        """scores [h,I,S] of the queries at places [I], minus infinity where a key is not seen."""
        distance = torch.arange(self.known, device=scores.device)
        keys = (queries[:, None] - distance).expand(len(scores), -1, -1)
        self.sums[layer] += scores.gather(-1, keys).double().sum(1).cpu()
        self.seen[layer] += len(queries)

    def rows(self) -> list[Row]:
        """One per layer and head, `distances` = N + 1; R is None if a score was no number."""
        found = resolution(self.sums / self.seen[:, None, None])
        return [
            {
                "probe": "resolution",
                "layer": layer,
                "head": head,
                "distances": self.known - 1,
                "resolution": value if abs(value) < float("inf") else None,
            }
            for layer, heads in enumerate(found.tolist())
            for head, value in enumerate(heads)
        ]
