"""An attention kernel is a pair of functions, forward and backward; here they meet autograd.

Both speak of partial attention: `lse` is the logarithm of the sum a row was divided by, so that
parts of a row computed apart can be merged, and a part's gradient taken from the whole row's
output. Milakov and Gimelshein 2018, arXiv 1805.02867; Dao et al. 2022, arXiv 2205.14135.
"""

from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pipeline.positions.scores import Scores

Gradients = tuple[Tensor | None, ...]
Wanted = tuple[bool, ...]


class Kernel(Protocol):
    """Causal attention under given scores. B batch, h heads, S tokens, d width of v."""

    def forward(self, scores: Scores, v: Tensor) -> tuple[Tensor, Tensor]:
        """v [B,h,S,d] -> out [B,h,S,d] in the precision of v, lse [B,h,S] fp32 (natural)."""

    def backward(
        self, scores: Scores, v: Tensor, out: Tensor, lse: Tensor, d_out: Tensor, wanted: Wanted
    ) -> tuple[Tensor, Gradients]:
        """Gradients of v and of `scores.tensors()`.

        `out` and `lse` are those of whole rows, of which this kernel's keys may be a part.
        `wanted` says of each tensor whether its gradient is needed; None may stand for the others.
        """


def run(kernel: Kernel, scores: Scores, v: Tensor) -> Tensor:
    """Attention by `kernel`: v [B,h,S,d] -> [B,h,S,d], differentiable in v and `scores`."""
    out: Tensor = _Run.apply(kernel, scores, v, *scores.tensors())
    return out


def merge(out: Tensor, lse: Tensor, more: Tensor, more_lse: Tensor) -> tuple[Tensor, Tensor]:
    """Two parts of the same rows, [...,S,d] and [...,S] each, as one."""
    both = torch.logaddexp(lse, more_lse)
    mixed = out.float() * (lse - both).exp().unsqueeze(-1)
    mixed += more.float() * (more_lse - both).exp().unsqueeze(-1)
    return mixed.to(out.dtype), both


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, kernel: Kernel, scores: Scores, v: Tensor, *tensors: Tensor | None
    ) -> Tensor:
        out, lse = kernel.forward(scores, v)
        # parameters are held by their module: under ZeRO-3 a saved one would be empty
        kept = len(tensors) - len(scores.parameters)
        ctx.save_for_backward(v, out, lse, *tensors[:kept])
        ctx.kernel, ctx.parameters = kernel, scores.parameters
        ctx.scores = scores.with_tensors((None,) * len(tensors))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        v, out, lse, *tensors = ctx.saved_tensors
        scores = ctx.scores.with_tensors((*tensors, *ctx.parameters))
        wanted = ctx.needs_input_grad[3:]
        d_v, gradients = ctx.kernel.backward(scores, v, out, lse, d_out, wanted)
        return None, None, d_v, *gradients
