"""The feed-forward part, W_out swiglu(W_gate_up RMSNorm(x)), whole or in tiles of tokens.

In tiles, only x is kept for the backward pass, which makes the hidden layer of each tile again:
exact, and the hidden layer of all tokens never exists. The idea is TiledMLP's of DeepSpeed (Arctic
Long Sequence Training, Bekman et al. 2025, arXiv 2506.13996), whose own code a model that knows
nothing of ranks cannot import. Legend: B batch, T tokens, N = B T, D width, M hidden width.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from pipeline.model.projection import RMS_NORM, SWIGLU, projection, projection_pull

TILE = 4096


def linear_weight(inputs: int, outputs: int, scale: float = 1.0) -> nn.Parameter:
    """The weight [outputs, inputs] of a projection without bias, ~ N(0, scale / sqrt(inputs))."""
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(layer.weight, 0.0, scale * inputs**-0.5)
    return nn.Parameter(layer.weight)


class FeedForward(nn.Module):
    """SwiGLU of the normalised stream; it owns all its weights, see `projection`."""

    def __init__(self, width: int, mlp_width: int, layers: int, tiled: bool) -> None:
        super().__init__()
        self.tiled = tiled
        self.gain = nn.Parameter(torch.ones(width))
        self.gate_up = linear_weight(width, 2 * mlp_width)
        self.out = linear_weight(mlp_width, width, (2 * layers) ** -0.5)

    def forward(self, x: Tensor) -> Tensor:
        """x [B,T,D] -> [B,T,D]."""
        if self.tiled:
            tokens: Tensor = _Tiles.apply(x.flatten(0, 1), self.gain, self.gate_up, self.out)
            return tokens.view_as(x)
        return projection(SWIGLU, self.out, projection(RMS_NORM, self.gate_up, x, self.gain))


class _Tiles(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, gate_up: Tensor, out: Tensor) -> Tensor:
        ctx.save_for_backward(x, gain, gate_up, out)
        result = torch.empty_like(x)
        for tile, part in zip(x.split(TILE), result.split(TILE), strict=True):
            hidden = projection(RMS_NORM, gate_up, tile, gain)
            part.copy_(projection(SWIGLU, out, hidden))
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        x, *weights = ctx.saved_tensors
        gain, gate_up, out = weights
        d_x = torch.empty_like(x)
        # fp32 at least, or bf16 would round the sum once a tile
        wide = torch.promote_types(x.dtype, torch.float32)
        totals = [torch.zeros_like(weight, dtype=wide) for weight in weights]
        tiles = (x.split(TILE), grad.split(TILE), d_x.split(TILE))
        for tile, pull, part in zip(*tiles, strict=True):
            hidden = projection(RMS_NORM, gate_up, tile, gain)
            d_out, (d_hidden,) = projection_pull(SWIGLU, pull, out, hidden)
            d_gate_up, (d_tile, d_gain) = projection_pull(RMS_NORM, d_hidden, gate_up, tile, gain)
            part.copy_(d_tile)
            for total, share in zip(totals, (d_gain, d_gate_up, d_out), strict=True):
                total += share
        return d_x, *(t.to(w.dtype) for t, w in zip(totals, weights, strict=True))
