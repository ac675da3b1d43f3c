"""T5 relative bias: S_ij = q_i . k_j / sqrt(d) + b_h[bucket(i - j)], with nb buckets of which
e = nb/2 are exact: bucket(n) = n for n < e, else
min(nb - 1, e + floor((nb - e) ln(n/e) / ln(m/e))), m = max_distance. b [nb, H] ~ N(0, 0.02) is
shared by all layers.

Raffel et al. 2020, arXiv 1910.10683, section 2.1 (causal form). T5 has no 1/sqrt(d); it is kept
here, so that encodings differ in the bias alone.
"""

import torch
from torch import Tensor, nn

from pipeline.errors import ConfigError
from pipeline.positions.base import Facts, Position, Shape, Site

MOST_DISTANCE = 2**20


def bucket_edges(buckets: int, max_distance: int) -> list[int]:
    """The first distance of each bucket after the exact ones, by integer arithmetic.

    Bucket e + k starts at the least n with (n/e)^(nb-e) >= (m/e)^k, which is compared as integers:
    a logarithm at an exact power would depend on the device.
    """
    exact = buckets // 2
    rest = buckets - exact
    edges, n = [], exact
    for k in range(rest):
        while n**rest * exact**k < exact**rest * max_distance**k:
            n += 1
        edges.append(n)
    return edges


class T5Position(Position):
    """Learned bias per head and bucket of distance."""

    facts = Facts(
        source="Raffel et al. 2020, arXiv 1910.10683",
        formula="S_ij = q_i.k_j/sqrt(d) + b_h[bucket(i-j)]",
        family="bias",
        shift_invariant=True,
        attention_paths=("tile", "far_near", "flex"),
        extra_parameters="buckets * heads",
    )

    def __init__(self, shape: Shape, *, buckets: int = 32, max_distance: int = 128) -> None:
        super().__init__(shape)
        if buckets < 2 or buckets % 2:
            raise ConfigError(f"position.buckets={buckets}: must be even and at least 2 (T5: 32)")
        if not buckets // 2 < max_distance <= MOST_DISTANCE:
            raise ConfigError(
                f"position.max_distance={max_distance}: must be above buckets/2 = {buckets // 2} "
                f"and at most {MOST_DISTANCE} "
                "(T5: 128)"
            )
        self.buckets, self.edges = buckets, bucket_edges(buckets, max_distance)
        self.table = nn.Parameter(torch.empty(buckets, shape.heads).normal_(0.0, 0.02))

    @property
    def constant_from(self) -> int:
        """The first distance of the last bucket."""
        return self.edges[-1]

    def bucket(self, distance: Tensor) -> Tensor:
        """Integer distances, any shape, >= 0 -> bucket numbers in 0 .. buckets - 1."""
        exact = self.buckets // 2
        later = torch.tensor(self.edges[1:], device=distance.device)
        return torch.where(
            distance < exact, distance, exact + torch.bucketize(distance, later, right=True)
        )

    def bias(self, ids_q: Tensor, ids_k: Tensor, site: Site) -> Tensor:
        """ids_q [I], ids_k [J] -> b_h[bucket(i - j)] [h,I,J] fp32.

        Keys after the query get bucket 0; the causal mask removes them.
        """
        distance = (ids_q[:, None] - ids_k).clamp(min=0)
        held = self.table[:, site.held].float()
        return held[self.bucket(distance)].permute(2, 0, 1)
