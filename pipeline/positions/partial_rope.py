"""Rotary embedding of a share p of the head: with m = floor(p d/2),
S_ij = Re sum_t (q_t k_t*) exp(i (i - j) w_t) / sqrt(d), t = 0 .. d/2 - 1, where
w_t = base^(-2t/d) for t < m, else 0 (proportional: p-RoPE), or
w_t = base^(-2t/2m) for t < m, else 0 (partial).

Proportional: Barbero, Vitvitskiy, Perivolaropoulos, Pascanu, Velickovic 2024, arXiv 2410.06205: of
the whole spectrum the fastest m speeds are kept. Partial: the rotary_pct of GPT-J and GPT-NeoX: the
first 2m dimensions have a whole spectrum of their own. p = 1 is RoPE, p = 0 no encoding at all.
"""

import math

import torch
from torch import Tensor

from pipeline.errors import ConfigError
from pipeline.positions.base import Facts, Shape, Site
from pipeline.positions.rope import RotaryPosition

PROPORTIONAL, PARTIAL = FORMS = ("proportional", "partial")


class PartialRotaryPosition(RotaryPosition):
    """Rotary position embedding of some pairs; the others carry content alone."""

    facts = Facts(
        source="Barbero et al. 2024, arXiv 2410.06205; GPT-NeoX's rotary_pct",
        formula="S_ij = Re sum_t (q_t k_t*) e^{i(i-j)w_t}/sqrt(d), w_t = 0 for t >= floor(p d/2)",
        family="rotation",
        shift_invariant=True,
        attention_paths=("sdpa", "tile", "flex"),
        real_positions=True,
    )

    def __init__(
        self,
        shape: Shape,
        *,
        form: str = PROPORTIONAL,
        share: float = 0.75,
        base: float = 10000.0,
    ) -> None:
        if form not in FORMS:
            raise ConfigError(f"position.form={form!r}: must be one of {', '.join(FORMS)}")
        if 0.0 < share <= 1.0 and share * shape.head_width < 2.0 - 1e-9:
            raise ConfigError(
                f"position.share={share}: turns no pair of the {shape.head_width} dimensions of a "
                f"head; use at least {2.0 / shape.head_width:.3g}, or 0, which is no encoding"
            )
        if not 0.0 <= share <= 1.0:
            raise ConfigError(
                f"position.share={share}: must be 0 (nothing turns) to 1 (rope); the paper: 0.75"
            )
        # 0.57 * 100 is 56.99.. in floating point
        self._kept = math.floor(share * shape.head_width / 2 + 1e-9)
        self._partial = form == PARTIAL
        super().__init__(shape, base=base)

    @property
    def turned(self) -> int:
        """All d; in the partial form 2 floor(p d/2), the first ones."""
        return 2 * self._kept if self._partial else super().turned

    def speeds(self, device: torch.device, length: int) -> Tensor:
        """w_t [turned/2] fp64, the slow ones of the proportional form 0."""
        speeds = super().speeds(device, length)
        return speeds.where(torch.arange(len(speeds), device=device) < self._kept, 0.0)

    def rotate(self, q: Tensor, k: Tensor, ids: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        """q, k [B,h,S,d], ids [B,S] or [1,S] -> q, k, the first `turned` dimensions rotated."""
        if not self._kept:
            return q, k
        if not self._partial:
            return super().rotate(q, k, ids, site)
        turned = super().rotate(q[..., : self.turned], k[..., : self.turned], ids, site)
        still = (x[..., self.turned :] for x in (q, k))
        q, k = (torch.cat(parts, -1) for parts in zip(turned, still, strict=True))
        return q, k
