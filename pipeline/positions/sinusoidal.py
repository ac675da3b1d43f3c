"""Sinusoidal positions: h0_i = sqrt(D) E[x_i] + P[i],
P[i, 2t] = sin(i 10000^(-2t/D)), P[i, 2t+1] = cos(i 10000^(-2t/D)), t = 0 .. D/2 - 1.

Vaswani et al. 2017, arXiv 1706.03762, sections 3.4 and 3.5: the paper's exponent -2t/D with
interleaved sine and cosine, not the [sin | cos] halves with exponent -t/(D/2 - 1) of
tensor2tensor. The sqrt(D) is the decoder's input scale (`pipeline.model.decoder`).
"""

import torch
from torch import Tensor

from pipeline.errors import ConfigError
from pipeline.positions.base import Facts, Position, Shape


class SinusoidalPosition(Position):
    """Fixed waves added to the input; defined at every position."""

    facts = Facts(
        source="Vaswani et al. 2017, arXiv 1706.03762",
        formula="h0_i = sqrt(D)E[x_i] + [sin(i w_t), cos(i w_t)], w_t = 10000^(-2t/D)",
        family="input embedding",
        shift_invariant=False,
        attention_paths=("sdpa", "tile", "flex"),
        real_positions=True,
    )

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        if shape.width % 2:
            raise ConfigError(
                f"model.width={shape.width}: sinusoidal positions pair a sine with a cosine, so "
                "the width must be even"
            )

    def embed(self, x: Tensor, ids: Tensor, tokens: Tensor) -> Tensor:
        """x [B,T,D], ids [B,T] or [1,T] -> x + P[ids]; angles in fp64, exact for any integer id."""
        pairs = torch.arange(self.shape.width // 2, device=x.device, dtype=torch.float64)
        angles = ids[..., None].double() * 10000.0 ** (-2.0 * pairs / self.shape.width)
        waves = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)
        return x + waves.to(x.dtype)
