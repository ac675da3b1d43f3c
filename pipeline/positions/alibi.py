"""ALiBi: S_ij = q_i . k_j / sqrt(d) - m_h (i - j), m_h = 2^(-8 (h + 1) / H) for H a power of two.

Press, Smith, Lewis 2022, arXiv 2108.12409, section 3. For other H, the paper's rule: the slopes of
the power of two P below H, then every other slope of 2P, from the first, until H are found.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline.positions.base import Facts, Position, Site

_DIGIT = 256  # bf16 holds every whole number up to it


def slopes(heads: int) -> list[float]:
    """The H slopes in the order of the heads; fp64 numbers, exact powers of two where H is one."""
    power = 1 << (heads.bit_length() - 1)
    own = [2.0 ** (-8.0 * (h + 1) / power) for h in range(power)]
    return own + [2.0 ** (-4.0 * (2 * h + 1) / power) for h in range(heads - power)]


class AlibiPosition(Position):
    """Attention with linear biases; fixed slopes, no parameters."""

    facts = Facts(
        source="Press et al. 2022, arXiv 2108.12409",
        formula="S_ij = q_i.k_j/sqrt(d) - m_h(i-j), m_h = 2^(-8(h+1)/H)",
        family="bias",
        shift_invariant=True,
        attention_paths=("tile", "fold", "flex"),
        real_positions=True,
    )

    def bias(self, ids_q: Tensor, ids_k: Tensor, site: Site) -> Tensor:
        """ids_q [I], ids_k [J] -> -m_h (i - j) [h,I,J] fp32; the distance is an integer."""
        every = slopes(self.shape.heads)
        held = torch.tensor([every[h] for h in site.heads], device=ids_q.device)
        return -held[:, None, None] * (ids_q[:, None] - ids_k).float()

    def folds(self, precision: torch.dtype, length: int) -> bool:
        """In bf16 only: fp32 would need the scores' last digits, which m_h j swallows."""
        return precision == torch.bfloat16 and length <= 2 * _DIGIT**2

    def fold(self, q: Tensor, k: Tensor, ids: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        """q, k [B,h,S,d] -> [B,h,S,d+8]: m_h j as products of digits that bf16 holds exactly.

        -m_h i is the same for all keys of a query, and drops out. The key's position is counted
        from the middle, j = 256 a + b; m_h sqrt(d), against the scale, is two bf16 numbers.
        """
        every = torch.tensor(slopes(self.shape.heads), device=q.device, dtype=torch.float64)
        slope = every[site.held] * self.shape.head_width**0.5
        coarse = slope.to(q.dtype)
        fine = (slope - coarse.double()).to(q.dtype)
        digits = torch.stack([_DIGIT * coarse, _DIGIT * fine, coarse, fine], dim=-1)
        columns = digits[None, :, None].expand(*q.shape[:3], -1)
        j = ids - ids[:, :1] - site.length // 2
        high = torch.div(j, _DIGIT, rounding_mode="floor")
        low = j - _DIGIT * high
        rows = torch.stack([high, high, low, low], dim=-1)[:, None].to(k.dtype)
        rows = rows.expand(k.shape[0], k.shape[1], -1, -1)
        # the fused kernels want a width that is a multiple of 8
        return F.pad(torch.cat([q, columns], -1), (0, 4)), F.pad(torch.cat([k, rows], -1), (0, 4))
