"""ALiBi: S_ij = q_i . k_j / sqrt(d) - m_h (i - j), m_h = 2^(-8 (h + 1) / H) for H a power of two.

Press, Smith, Lewis 2022, arXiv 2108.12409, section 3. For other H, the paper's rule: the slopes of
the power of two P below H, then every other slope of 2P, from the first, until H are found.
"""

import torch
from torch import Tensor

from pipeline.positions.base import Facts, Position, Site


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
        shift_invariant=True,
        attention_path="tile",
    )

    def bias(self, ids_q: Tensor, ids_k: Tensor, site: Site) -> Tensor:
        """ids_q [I], ids_k [J] -> -m_h (i - j) [h,I,J] fp32; the distance is an integer."""
        every = slopes(self.shape.heads)
        held = torch.tensor([every[h] for h in site.heads], device=ids_q.device)
        return -held[:, None, None] * (ids_q[:, None] - ids_k).float()
