"""Learned absolute positions: h0_i = sqrt(D) (E[x_i] + P[i]), P [train_length, D] ~ N(0, 0.02).

Gehring et al. 2017 (ConvS2S), arXiv 1705.03122, section 3.1; Radford et al. 2019 (GPT-2) for the
initial spread. The sqrt(D) is the decoder's input scale (`pipeline.model.decoder`), by which both
tables are multiplied. Not defined beyond its table: no wrap, no clamp.
"""

import torch
from torch import Tensor, nn

from pipeline.positions.base import Facts, Position, Shape


class LearnedPosition(Position):
    """One trained row per position of the training sequence."""

    facts = Facts(
        source="Gehring et al. 2017, arXiv 1705.03122",
        formula="h0_i = sqrt(D)(E[x_i] + P[i])",
        family="input embedding",
        shift_invariant=False,
        attention_paths=("sdpa", "tile", "flex"),
        extra_parameters="train_length * width",
        max_length="train_length",
    )

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.table = nn.Parameter(torch.empty(shape.train_length, shape.width).normal_(0.0, 0.02))

    @property
    def max_length(self) -> int | None:
        """The number of rows in the table."""
        return self.shape.train_length

    def embed(self, x: Tensor, ids: Tensor, tokens: Tensor) -> Tensor:
        """x [B,T,D], ids [B,T] or [1,T] -> x + sqrt(D) P[ids]."""
        return x + self.shape.width**0.5 * self.table[ids].to(x.dtype)
