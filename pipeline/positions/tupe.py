"""TUPE: S_ij = (q_i . k_j + (p_i U_Q) . (p_j U_K)) / sqrt(2d), + b_h[bucket(i - j)] with `relative`
(TUPE-R; without, TUPE-A); with `untied`, what positions add to column 0 is t_h instead.

Ke, He, Liu 2021, arXiv 2006.15595, section 3. p [train_length,D] passes a layer norm with
gain and shift, as in the authors' code; U_Q, U_K [D,D] are shared by all layers; p, U, b ~
N(0, 0.02). Buckets are T5's causal ones. The paper unties position 0, its [CLS], with two numbers
per head: one where it is the query, one where it is the key. In a causal model its query sees
itself alone, so that the first can have no effect and is not here; the second, t, starts at zero.
Position 0 is that with id 0, the first token of a sequence. Not defined beyond train_length.

What positions add rides as columns of q and k, in one product with them: p U, and for t a column
that is 1 for the key at 0 alone. b is a table by distance, which that column takes back at key 0.
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.errors import ConfigError
from pipeline.positions.base import Facts, Position, Shape, Site
from pipeline.positions.scores import Scores
from pipeline.positions.t5 import MOST_DISTANCE, bucket_edges

BUCKETS, MAX_DISTANCE = 32, 128
# torch leaves its fused kernel at other widths
COLUMNS = 8


class TupePosition(Position):
    """Positions attend to positions by projections of their own; the first is set apart."""

    facts = Facts(
        source="Ke et al. 2021, arXiv 2006.15595",
        formula="S_ij = (q_i.k_j + p_i U_Q.p_j U_K)/sqrt(2d) [+ b_h[bucket(i-j)]]; column 0: t_h",
        family="bias",
        shift_invariant=False,
        attention_paths=("sdpa", "tile", "flex"),
        extra_parameters="(train_length + 2) * width + 2 * width**2 + (heads if untied else 0) "
        "+ (buckets * heads if relative else 0)",
        max_length="train_length",
    )

    def __init__(
        self,
        shape: Shape,
        *,
        relative: bool = False,
        untied: bool = True,
        buckets: int = BUCKETS,
        max_distance: int = MAX_DISTANCE,
    ) -> None:
        super().__init__(shape)
        _check(relative, buckets, max_distance)
        self.relative, self.untied, width = relative, untied, shape.width
        self.table = nn.Parameter(torch.empty(shape.train_length, width).normal_(0.0, 0.02))
        self.gain, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.query_projection = nn.Parameter(torch.empty(width, width).normal_(0.0, 0.02))
        self.key_projection = nn.Parameter(torch.empty(width, width).normal_(0.0, 0.02))
        if untied:
            self.first = nn.Parameter(torch.zeros(shape.heads))
        if relative:
            edges = bucket_edges(buckets, max_distance)
            # the first distance of every bucket but the first
            self.starts = [*range(1, buckets // 2), *edges]
            self.buckets = nn.Parameter(torch.empty(buckets, shape.heads).normal_(0.0, 0.02))

    @property
    def max_length(self) -> int | None:
        """The number of rows in the table."""
        return self.shape.train_length

    @property
    def scale(self) -> float:
        """1/sqrt(2d): a sum of two products."""
        return float((2 * self.shape.head_width) ** -0.5)

    @property
    def constant_from(self) -> int | None:
        """With `relative`, the first distance of the last bucket."""
        return self.starts[-1] if self.relative else None

    def rotate(self, q: Tensor, k: Tensor, ids: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        """q, k [B,h,S,d], ids [B,S] or [1,S] -> [B,h,S,E], E >= 2d a multiple of 8."""
        shape = (self.shape.width,)
        rows = F.layer_norm(
            self.table[ids].float(), shape, self.gain.float(), self.shift.float()
        ).to(q.dtype)
        own_q, own_k = (
            self._projected(rows, u, site) for u in (self.query_projection, self.key_projection)
        )
        queries, keys = [own_q], [own_k]
        if self.untied:
            at_first = (ids == 0)[:, None, :, None]
            queries.append(self._first_column(ids, site).to(q.dtype))
            keys = [
                own_k.masked_fill(at_first, 0.0),
                at_first.expand_as(own_k[..., :1]).to(k.dtype),
            ]
        return _joined(q, queries), _joined(k, keys)

    def _projected(self, rows: Tensor, u: Tensor, site: Site) -> Tensor:
        """rows [B,S,D] or [1,S,D], u [D,D] -> of the held heads, [B,h,S,d], each by itself."""
        own = u.unflatten(0, (self.shape.heads, -1))[site.held].to(rows.dtype)
        return rows[:, None] @ own.transpose(1, 2)

    def _first_column(self, ids: Tensor, site: Site) -> Tensor:
        """ids [B,S] -> what is added to the score of key 0, before the scale, [B,h,S,1] fp32."""
        own = self.first[site.held].float()[:, None, None].expand(-1, *ids.shape)
        if self.relative:
            own = own - self._by_distance(ids, site)
        return (own / self.scale).transpose(0, 1).unsqueeze(-1)

    def _by_distance(self, distance: Tensor, site: Site) -> Tensor:
        """Integer distances [...], >= 0 -> b [h,...] fp32."""
        starts = torch.tensor(self.starts, device=distance.device)
        bucket = torch.bucketize(distance, starts, right=True)
        return self.buckets[:, site.held].float()[bucket].movedim(-1, 0)

    def bias(self, ids_q: Tensor, ids_k: Tensor, site: Site) -> Tensor | None:
        """ids_q [I], ids_k [J] -> b_h[bucket(i - j)] [h,I,J] fp32; where j > i, bucket 0."""
        if not self.relative:
            return None
        return self._by_distance((ids_q[:, None] - ids_k).clamp(min=0), site)

    def adjust(self, scores: Scores, ids: Tensor, site: Site) -> Scores:
        """b alone depends on distances, and is a table where ids are consecutive."""
        if self.relative and not site.consecutive:
            return scores
        table = self._distance_table(site, ids.device)
        return replace(scores, table=table, bias=None, parameters=())


def _check(relative: bool, buckets: int, max_distance: int) -> None:
    """Refuse buckets that make no sense, or have no effect.

    Raises:
        ConfigError: they do.
    """
    chosen = f"position.buckets={buckets}, position.max_distance={max_distance}"
    if not relative and (buckets, max_distance) != (BUCKETS, MAX_DISTANCE):
        raise ConfigError(
            f"{chosen}: no effect without position.relative=true; set that, or leave "
            f"them at {BUCKETS} and {MAX_DISTANCE}"
        )
    if buckets < 2 or buckets % 2 or not buckets // 2 < max_distance <= MOST_DISTANCE:
        raise ConfigError(
            f"{chosen}: buckets must be even and at least 2, and max_distance above "
            f"half of them and at most {MOST_DISTANCE} (the authors: {BUCKETS} and {MAX_DISTANCE})"
        )


def _joined(x: Tensor, columns: list[Tensor]) -> Tensor:
    """x [B,h,S,d] and columns [B or 1,h,S,any], side by side and then zeros, [B,h,S,E]."""
    wide = torch.cat([x, *(c.expand(len(x), -1, -1, -1) for c in columns)], dim=-1)
    return F.pad(wide, (0, -wide.shape[-1] % COLUMNS))
