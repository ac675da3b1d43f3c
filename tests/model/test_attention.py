"""The tile path against the definition, at every kind of edge."""

import math

import pytest
import torch
from torch import Tensor

from pipeline.model import tile
from pipeline.model.attention import attention


def definition(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
    """Dense fp64: the mask and the bias written out."""
    i = torch.arange(q.shape[2])
    distance = i[:, None] - i
    scores = q @ k.mT / math.sqrt(q.shape[-1]) + table[:, distance.clamp(min=0)]
    return scores.masked_fill(distance < 0, -math.inf).softmax(-1) @ v


def compare(length: int, batch: int, heads: int, steep: float = 0.0) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(batch, heads, length, 16, requires_grad=True) for _ in range(3))
    table = torch.randn(heads, length) - steep * torch.arange(length)
    table.requires_grad_()
    pull = torch.randn_like(q)
    out = attention(q, k, v, table)
    out.backward(pull)
    slow = [x.detach().double().requires_grad_() for x in (q, k, v, table)]
    expected = definition(*slow)
    expected.backward(pull.double())
    assert (out - expected).abs().max() <= 1e-5
    for fast, reference in zip((q, k, v, table), slow, strict=True):
        assert fast.grad is not None and reference.grad is not None
        size = max(float(reference.grad.abs().max()), 1.0)
        assert (fast.grad - reference.grad).abs().max() <= 1e-5 * size


@pytest.mark.parametrize("length", [1, 2, 31, 32, 33, 64, 97])
@pytest.mark.parametrize(("rows", "columns"), [(32, 24), (24, 32), (16, 16), (256, 512)])
def test_tiles_equal_the_definition(
    length: int, rows: int, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tile, "ROWS", rows)
    monkeypatch.setattr(tile, "COLUMNS", columns)
    compare(length, batch=2, heads=3)


def test_shipped_tiles_over_several_blocks() -> None:
    compare(1100, batch=1, heads=2)


def test_a_bias_that_underflows_stays_exact() -> None:
    compare(600, batch=1, heads=2, steep=2.0)


def test_memory_is_linear() -> None:
    """No tensor of the tile path, forward or backward, ever has S x S elements."""
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                largest = max(largest, out.untyped_storage().nbytes() // out.element_size())
            return out

    length = 4096
    q, k, v = (torch.randn(1, 1, length, 16, requires_grad=True) for _ in range(3))
    table = torch.zeros(1, length, requires_grad=True)
    with Watch():
        attention(q, k, v, table).sum().backward()
    # the largest: a skew buffer of one tile, rows x (rows + columns)
    assert largest <= tile.ROWS * (tile.ROWS + tile.COLUMNS) < length * length / 64
