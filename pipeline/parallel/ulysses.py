"""Ulysses sequence parallelism: before attention every rank trades its tokens of all heads for all
tokens of its heads, afterwards back. Jacobs et al. 2023, arXiv 2309.14509, section 3.1.

Legend: B batch, T tokens held by this rank, S whole sequence, H all heads, h = H / P heads held by
this rank, E any width per head, P ranks in the sequence group.
"""

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from pipeline.errors import ConfigError
from pipeline.model.exchange import Exchange
from pipeline.parallel.shard import token_slice


class _Swap(torch.autograd.Function):
    """x [P,...] -> y [P,...], y[p] = part of rank p meant for this rank; its own transpose."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        y = torch.empty_like(x)
        dist.all_to_all_single(y, x, group=group)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        swapped: Tensor = _Swap.apply(grad.contiguous(), ctx.group)
        return swapped, None


class Ulysses(Exchange):
    """The exchange over one sequence group; head p of the world's H is never a local index.

    A sequence that P does not divide leaves the last ranks fewer tokens; only the exchange itself
    pads them, so that no padding token exists anywhere else.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.parts, self.part = dist.get_world_size(group), dist.get_rank(group)

    def heads(self, heads: int) -> range:
        """Global indices of the h heads this rank attends with."""
        if heads % self.parts:
            raise ConfigError(
                f"model.heads={heads} is not divisible by the {self.parts} ranks that share them "
                "(trainer.sequence_parallel / trainer.ring); every rank attends with as many heads"
            )
        held = heads // self.parts
        return range(self.part * held, (self.part + 1) * held)

    def tokens(self, length: int) -> slice:
        """The tokens this rank holds of a sequence of `length`."""
        return token_slice(length, self.parts, self.part)

    def to_heads(self, x: Tensor, length: int) -> Tensor:
        """x [B,T,H,E], `length` = S -> [B,S,h,E]."""
        size = -(-length // self.parts)
        x = F.pad(x, (0, 0, 0, 0, 0, size - x.shape[1]))
        x = x.unflatten(2, (self.parts, -1)).permute(2, 0, 1, 3, 4)
        swapped: Tensor = _Swap.apply(x.contiguous(), self.group)
        return swapped.transpose(0, 1).flatten(1, 2)[:, :length]

    def to_tokens(self, x: Tensor) -> Tensor:
        """x [B,S,h,E] -> [B,T,H,E]."""
        length = x.shape[1]
        size = -(-length // self.parts)
        x = F.pad(x, (0, 0, 0, 0, 0, size * self.parts - length))
        x = x.unflatten(1, (self.parts, size)).transpose(0, 1)
        swapped: Tensor = _Swap.apply(x.contiguous(), self.group)
        held = len(range(length)[self.tokens(length)])
        return swapped.permute(1, 2, 0, 3, 4).flatten(2, 3)[:, :held]
