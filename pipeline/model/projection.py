"""y = W f(x) for a cheap map f: the backward pass keeps x alone and makes f(x) again.

RMSNorm and SwiGLU cost a thousandth of the product they feed, but their results, kept, would be
most of what a block keeps. Legend: I inputs, O outputs of the projection, M hidden width of the
feed-forward part; `...` any leading sizes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

EPSILON = 1e-6


@dataclass(frozen=True)
class Map:
    """A map f of one or more tensors, and its derivative.

    `value(*inputs)` is f [...,I]; `pull(gradient of f, *inputs)` is f again, and the gradients of
    the inputs.
    """

    value: Callable[..., Tensor]
    pull: Callable[..., tuple[Tensor, tuple[Tensor, ...]]]


def rms_norm(x: Tensor, gain: Tensor) -> Tensor:
    """x / sqrt(mean(x^2) + 1e-6) * gain over the last dimension, in fp32 at least, in x's dtype.

    Zhang and Sennrich 2019, arXiv 1910.07467.
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    return F.rms_norm(x.to(wide), gain.shape, gain.to(wide), EPSILON).to(x.dtype)


def _rms_norm_pull(grad: Tensor, x: Tensor, gain: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """With r = 1 / sqrt(mean(x^2) + 1e-6), u = r x, p = grad * gain: dx = r (p - u mean(p u))."""
    dtype, wide = x.dtype, torch.promote_types(x.dtype, torch.float32)
    x, grad = x.to(wide), grad.to(wide)
    scale = torch.linalg.vecdot(x, x).div_(x.shape[-1]).add_(EPSILON).rsqrt_().unsqueeze(-1)
    unit, pull = x * scale, grad * gain
    d_gain = (grad * unit).flatten(0, -2).sum(0)
    along = torch.linalg.vecdot(pull, unit).div_(-x.shape[-1]).unsqueeze(-1)
    d_x = pull.addcmul_(unit, along).mul_(scale)
    return unit.mul_(gain).to(dtype), (d_x.to(dtype), d_gain.to(gain.dtype))


def swiglu(gate_up: Tensor) -> Tensor:
    """silu(gate) * up: [...,2M], gate first -> [...,M]. Shazeer 2020, arXiv 2002.05202."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate).mul_(up)


def _swiglu_pull(grad: Tensor, gate_up: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """dup = grad silu(gate), dgate = grad up silu'(gate)."""
    (gate, up), d_gate_up = gate_up.chunk(2, dim=-1), torch.empty_like(gate_up)
    d_gate, d_up = d_gate_up.chunk(2, dim=-1)
    silu = F.silu(gate)
    torch.mul(grad, silu, out=d_up)
    torch.ops.aten.silu_backward.grad_input(grad * up, gate, grad_input=d_gate)
    return silu.mul_(up), (d_gate_up,)


RMS_NORM = Map(rms_norm, _rms_norm_pull)
SWIGLU = Map(swiglu, _swiglu_pull)


def projection(mapping: Map, weight: Tensor, *inputs: Tensor) -> Tensor:
    """weight [O,I], inputs of `mapping` -> W f(inputs) [...,O]; gradients for all tensors.

    The module whose forward calls this has to own `weight`: ZeRO-3 gathers it around that module.
    """
    out: Tensor = _Projection.apply(mapping, weight, *inputs)
    return out


def projection_pull(
    mapping: Map, grad: Tensor, weight: Tensor, *inputs: Tensor
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """grad [...,O] of W f(inputs) -> the gradient of `weight`, and those of the inputs."""
    mapped, gradients = mapping.pull(grad @ weight, *inputs)
    return grad.flatten(0, -2).T @ mapped.flatten(0, -2), gradients


class _Projection(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, mapping: Map, weight: Tensor, *inputs: Tensor) -> Tensor:
        ctx.mapping = mapping
        ctx.save_for_backward(weight, *inputs)
        return F.linear(mapping.value(*inputs), weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        d_weight, gradients = projection_pull(ctx.mapping, grad, *ctx.saved_tensors)
        return None, d_weight, *gradients
