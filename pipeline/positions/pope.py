"""PoPE: content gives magnitudes, position gives phases:
S_ij = sum_c m(q_ic) m(k_jc) cos((i - j) w_c - p_hc) / sqrt(d), m = softplus, w_c = base^(-c/d),
c = 0 .. d - 1, with a phase p per head, layer and dimension, clamped to [-2 pi, 0].

Gopalakrishnan, Csordas, Schmidhuber, Mozer 2025, arXiv 2509.10534. Queries and keys are 2d wide,
(m cos, m sin), and values d. The paper gives the score as a bare product; its 1/sqrt is taken with
the d of the projections, not 2d, as in x-transformers and as everywhere here. p starts at 0, the
upper end; a phase that a step takes beyond an end stays there, for the clamp has no gradient there.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.positions.base import Facts, Shape, Site
from pipeline.positions.rope import RotaryPosition


class PolarPosition(RotaryPosition):
    """Rotary position embedding of magnitudes, every one at a speed of its own."""

    facts = Facts(
        source="Gopalakrishnan et al. 2025, arXiv 2509.10534",
        formula="S_ij = sum_c m(q_ic) m(k_jc) cos((i-j)w_c - p_hc)/sqrt(d), m = softplus",
        family="rotation",
        shift_invariant=True,
        attention_paths=("sdpa", "tile", "flex"),
        extra_parameters="layers * width",
        real_positions=True,
    )

    def __init__(self, shape: Shape, *, base: float = 10000.0) -> None:
        super().__init__(shape, base=base)
        self.phase = nn.Parameter(torch.zeros(shape.layers, shape.heads, shape.head_width))

    @property
    def turned(self) -> int:
        """2d: each of the d magnitudes turns in a plane."""
        return 2 * self.shape.head_width

    def rotate(self, q: Tensor, k: Tensor, ids: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        """q, k [B,h,S,d], ids [B,S] or [1,S] -> q, k [B,h,S,2d]. Angles fp64, products fp32."""
        angles = self.angles(ids, site)
        size = torch.full_like(angles, self.magnitude(site.length))
        turn = torch.polar(size, angles).to(torch.complex64)
        phase = self.phase[site.layer, site.held, None].float().clamp(-math.tau, 0.0)
        wide_q = F.softplus(q.float()) * turn
        wide_k = F.softplus(k.float()) * torch.polar(torch.ones_like(phase), phase) * turn
        flat = (torch.view_as_real(x).flatten(-2) for x in (wide_q, wide_k))
        q, k = (x.to(q.dtype) for x in flat)
        return q, k
