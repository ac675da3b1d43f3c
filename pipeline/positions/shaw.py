"""Shaw: S_ij = q_i . (k_j + K[min(i - j, clip)]) / sqrt(d), and the output of query i is
sum_j softmax_j(S_ij) (v_j + V[min(i - j, clip)]).

Shaw, Uszkoreit, Vaswani 2018, arXiv 1803.02155, equations 3 and 4, with the clip 16 of the paper's
base model. K, V [clip + 1, d] per layer, one table for all heads, Glorot uniform, as in
tensor2tensor; of its 2 clip + 1 rows a causal model reads those with i - j >= 0.
"""

import torch
from torch import Tensor, nn

from pipeline.errors import ConfigError
from pipeline.positions.base import Facts, Position, Shape, Site


class ShawPosition(Position):
    """Learned vectors by clipped distance, added to keys and to values."""

    facts = Facts(
        source="Shaw et al. 2018, arXiv 1803.02155",
        formula="S_ij = q_i.(k_j + K[min(i-j, clip)])/sqrt(d), values v_j + V[min(i-j, clip)]",
        family="relative vectors",
        shift_invariant=True,
        attention_paths=("tile", "far_near"),
        extra_parameters="2 * (clip + 1) * width // heads * layers",
    )

    def __init__(self, shape: Shape, *, clip: int = 16) -> None:
        super().__init__(shape)
        if not 1 <= clip <= 2**20:
            raise ConfigError(f"position.clip={clip}: must be 1 to {2**20} (the paper: 16)")
        self.clip = clip
        size = (shape.layers, clip + 1, shape.head_width)
        spread = (6.0 / (2 * clip + 1 + shape.head_width)) ** 0.5
        self.keys = nn.Parameter(torch.empty(size).uniform_(-spread, spread))
        self.values = nn.Parameter(torch.empty(size).uniform_(-spread, spread))

    @property
    def constant_from(self) -> int:
        """The clip."""
        return self.clip

    def relative_keys(self, q: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        """q [B,h,S,d] -> q and K [h,clip+1,d]."""
        return q, self.keys[site.layer].expand(len(site.heads), -1, -1)

    def relative_values(self, site: Site) -> Tensor:
        """V [h,clip+1,d]."""
        return self.values[site.layer].expand(len(site.heads), -1, -1)
