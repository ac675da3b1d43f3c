"""RoPE: pair t of q_i and of k_j is rotated by the angle i w_t and j w_t, w_t = base^(-2t/d), so
S_ij = Re sum_t (q_t k_t*) exp(i (i - j) w_t) / sqrt(d), t = 0 .. d/2 - 1.

Su, Lu, Pan, Murtadha, Wen, Liu 2021, arXiv 2104.09864, equation 34; interleaved pairs (2t, 2t+1)
as in the paper. Values are not rotated; every layer rotates.
"""

import torch
from torch import Tensor

from pipeline.errors import ConfigError
from pipeline.positions.base import Facts, Position, Shape, Site


class RotaryPosition(Position):
    """Rotary position embedding of queries and keys."""

    facts = Facts(
        source="Su et al. 2021, arXiv 2104.09864",
        formula="S_ij = Re sum_t (q_t k_t*) e^{i(i-j)w_t}/sqrt(d), w_t = base^(-2t/d)",
        shift_invariant=True,
        attention_paths=("sdpa", "tile", "flex"),
    )

    def __init__(self, shape: Shape, *, base: float = 10000.0) -> None:
        super().__init__(shape)
        if shape.head_width % 2:
            raise ConfigError(
                f"model.width / model.heads = {shape.head_width}: rope rotates pairs, so the head "
                "width must be even"
            )
        if not base > 1.0:
            raise ConfigError(f"position.base={base}: must be above 1; the paper uses 10000")
        self.base = base

    def speeds(self, device: torch.device, length: int) -> Tensor:
        """w_t [d/2] fp64, in radians per token, for a sequence of `length` tokens."""
        pairs = torch.arange(self.shape.head_width // 2, device=device, dtype=torch.float64)
        return torch.pow(self.base, -2.0 * pairs / self.shape.head_width)

    def magnitude(self, length: int) -> float:
        """What q and k are multiplied by besides, each, in a sequence of `length` tokens."""
        return 1.0

    def rotate(self, q: Tensor, k: Tensor, ids: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        """q, k [B,h,S,d], ids [B,S] or [1,S] -> rotated q, k. Angles fp64, products fp32."""
        angles = ids[:, None, :, None].double() * self.speeds(q.device, site.length)
        size = torch.full_like(angles, self.magnitude(site.length))
        turn = torch.polar(size, angles).to(torch.complex64)
        return _turned(q, turn), _turned(k, turn)


def _turned(x: Tensor, turn: Tensor) -> Tensor:
    """x [B,h,S,d], turn [B,1,S,d/2] -> x with every pair (2t, 2t+1) turned, as the
    complex number x_2t + i x_2t+1. The backward pass keeps `turn` alone."""
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turn).flatten(-2).to(x.dtype)
