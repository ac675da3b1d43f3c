"""Sandwich: S_ij = q_i . k_j / sqrt(d) + sum_{t < w/2} cos((i - j) 10000^(-2t/w)) / ratio_h,
ratio_h = 8 (h + 1) / H, w = `dimensions`: the dot product p_i . p_j of sinusoidal rows, per head.

Chi, Fan, Rudnicky, Ramadge 2023, arXiv 2212.10356. Not monotone in the distance.
"""

import torch
from torch import Tensor

from pipeline.errors import ConfigError
from pipeline.positions.base import Facts, Position, Shape, Site


class SandwichPosition(Position):
    """A fixed, oscillating decay; no parameters."""

    facts = Facts(
        source="Chi et al. 2023, arXiv 2212.10356",
        formula="S_ij = q_i.k_j/sqrt(d) + sum_t cos((i-j) 10000^(-2t/w))/ratio_h",
        family="bias",
        shift_invariant=True,
        attention_paths=("tile", "flex"),
        real_positions=True,
    )

    def __init__(self, shape: Shape, *, dimensions: int = 128) -> None:
        super().__init__(shape)
        if dimensions < 2 or dimensions % 2:
            raise ConfigError(
                f"position.dimensions={dimensions}: must be even and at least 2 (the paper: 128)"
            )
        self.dimensions = dimensions

    def bias(self, ids_q: Tensor, ids_k: Tensor, site: Site) -> Tensor:
        """ids_q [I], ids_k [J] -> [h,I,J] fp32; angles fp64."""
        waves = torch.arange(self.dimensions // 2, device=ids_q.device, dtype=torch.float64)
        speeds = 10000.0 ** (-2.0 * waves / self.dimensions)
        distance = (ids_q[:, None] - ids_k)[..., None]
        total = (distance * speeds).cos().sum(-1)
        ratios = [8.0 * (h + 1) / self.shape.heads for h in site.heads]
        held = torch.tensor(ratios, device=ids_q.device, dtype=torch.float64)
        return (total / held[:, None, None]).float()
