"""xPos (LeX): RoPE whose pairs fade with distance:
S_ij = Re sum_t (q_t k_t*) exp(i (i - j) w_t) z_t^((i - j)/b) / sqrt(d), w_t = base^(-2t/d),
z_t = (2t/d + gamma) / (1 + gamma), b = scale_base.

Sun, Dong, Patra, Ma, Huang, Benhaim, Chaudhary, Song, Wei 2023, arXiv 2212.10554, section 3, whose
z_t^n has no b; b = 512 is that of the authors' code. Fast pairs fade most; gamma to infinity is
RoPE. The paper tests it with blockwise causal attention, which is a mask of its own.

q_i is multiplied by z_t^((i - c)/b) and k_j by its inverse. Every centre c gives the same scores if
it is the same for all: the middle of the whole sequence, which all ranks know, leaves the widest
range of lengths. Of a key after its query, which is masked only later, the product is z_t^(-S/b):
beyond `max_length` it would overflow fp32, whose range bf16 shares.
"""

import math

import torch
from torch import Tensor

from pipeline.errors import ConfigError
from pipeline.positions.base import Facts, Shape, Site
from pipeline.positions.rope import RotaryPosition

# fp32 ends at 2^128; the rest is left to q and k themselves and to their gradients
_LARGEST = 2.0**96


class ExtrapolatablePosition(RotaryPosition):
    """Rotary position embedding with a decay per pair."""

    facts = Facts(
        source="Sun et al. 2023, arXiv 2212.10554",
        formula="S_ij = Re sum_t (q_t k_t*) e^{i(i-j)w_t} z_t^{(i-j)/b}/sqrt(d), "
        "z_t = (2t/d + gamma)/(1 + gamma)",
        family="rotation",
        shift_invariant=True,
        attention_paths=("sdpa", "tile", "flex"),
        real_positions=True,
        max_length=27195,
    )

    def __init__(
        self,
        shape: Shape,
        *,
        gamma: float = 0.4,
        scale_base: float = 512.0,
        base: float = 10000.0,
    ) -> None:
        super().__init__(shape, base=base)
        for key, value, usual in (("gamma", gamma, 0.4), ("scale_base", scale_base, 512)):
            if not 0.0 < value < math.inf:
                raise ConfigError(f"position.{key}={value}: must be above 0 (the authors: {usual})")
        self.gamma, self.scale_base = gamma, scale_base
        if self.max_length < shape.train_length:
            raise ConfigError(
                f"position.scale_base={scale_base}, position.gamma={gamma}: they let scores fade "
                f"so fast that fp32 holds sequences of {self.max_length} tokens only, fewer than "
                f"train_length={shape.train_length}; raise either"
            )

    @property
    def max_length(self) -> int:
        """Tokens S at which z_0^(-S/b), the largest factor of all, is still far from overflow."""
        return int(self.scale_base * math.log(_LARGEST) / math.log1p(1.0 / self.gamma))

    def rotate(self, q: Tensor, k: Tensor, ids: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        """q, k [B,h,S,d], ids [B,S] or [1,S] -> q, k turned, q shrunk and k grown; in fp32."""
        pairs = torch.arange(self.turned // 2, device=q.device, dtype=torch.float64)
        decay = torch.log((2.0 * pairs / self.turned + self.gamma) / (1.0 + self.gamma))
        steps = (ids[:, None, :, None].double() - site.length // 2) / self.scale_base
        size = torch.exp(steps * decay).repeat_interleave(2, -1)
        wide_q, wide_k = super().rotate(q.float(), k.float(), ids, site)
        return (wide_q * size.float()).to(q.dtype), (wide_k / size.float()).to(k.dtype)
