"""Projections that make their cheap map again: gradients in fp64, values as before, bytes kept."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline.model.projection import RMS_NORM, SWIGLU, Map, projection


def plain_norm(x: Tensor, gain: Tensor) -> Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * gain


def plain_swiglu(gate_up: Tensor) -> Tensor:
    gate, up = gate_up.chunk(2, -1)
    return gate * torch.sigmoid(gate) * up


CASES: list[tuple[Map, Callable[..., Tensor], list[tuple[int, ...]]]] = [
    (RMS_NORM, plain_norm, [(2, 3, 6), (6,)]),
    (SWIGLU, plain_swiglu, [(2, 3, 12)]),
]
BOTH = pytest.mark.parametrize(("mapping", "plain", "shapes"), CASES, ids=["norm", "swiglu"])


def inputs(shapes: list[tuple[int, ...]], dtype: torch.dtype = torch.float64) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape).to(dtype).requires_grad_() for shape in [(5, 6), *shapes]]


@BOTH
def test_gradients_by_finite_differences(
    mapping: Map, plain: Callable[..., Tensor], shapes: list[tuple[int, ...]]
) -> None:
    assert torch.autograd.gradcheck(lambda *x: projection(mapping, *x), inputs(shapes))


@BOTH
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_equals_plain_autograd(
    mapping: Map, plain: Callable[..., Tensor], shapes: list[tuple[int, ...]], dtype: torch.dtype
) -> None:
    fast = inputs(shapes, dtype)
    out = projection(mapping, *fast)
    slow = [x.detach().double().requires_grad_() for x in fast]
    expected = plain(*slow[1:]) @ slow[0].T
    pull = torch.randn(expected.shape).to(dtype)
    out.backward(pull)
    expected.backward(pull.double())
    limit = {torch.float64: 1e-13, torch.float32: 1e-6, torch.bfloat16: 2e-2}[dtype]
    pairs = [(out, expected), *((f.grad, s.grad) for f, s in zip(fast, slow, strict=True))]
    for ours, reference in pairs:
        assert ours is not None and reference is not None and ours.dtype == dtype
        assert (ours - reference).abs().max() <= limit * reference.abs().max()


@BOTH
def test_only_the_inputs_are_kept(
    mapping: Map, plain: Callable[..., Tensor], shapes: list[tuple[int, ...]]
) -> None:
    tensors, kept = inputs(shapes), []

    def pack(x: Tensor) -> Tensor:
        kept.append(x.data_ptr())
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        projection(mapping, *tensors)
    assert sorted(kept) == sorted(x.data_ptr() for x in tensors)


def test_bf16_is_normalised_in_fp32() -> None:
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    gain = torch.full((64,), 1.01).bfloat16()
    exact = F.rms_norm(x.float(), (64,), gain.float(), 1e-6)
    assert torch.equal(RMS_NORM.value(x, gain), exact.bfloat16())
