"""The feed-forward part in tiles equals the whole one, keeps its input alone, and holds no more."""

import pytest
import torch
from torch import Tensor

from pipeline.model import mlp
from pipeline.model.mlp import FeedForward
from tests.bench.counting import Largest

WIDTH, HIDDEN = 12, 20


def part(tiled: bool, dtype: torch.dtype = torch.float64) -> FeedForward:
    torch.manual_seed(0)
    made = FeedForward(WIDTH, HIDDEN, 2, tiled)
    with torch.no_grad():
        made.gain.normal_(1.0, 0.3)
    return made.to(dtype)


def run(made: FeedForward, x: Tensor, pull: Tensor) -> list[Tensor]:
    x = x.detach().requires_grad_()
    out = made(x)
    gradients = torch.autograd.grad(out, [x, *made.parameters()], pull)
    return [out.detach(), *gradients]


@pytest.fixture(autouse=True)
def tiles_of_eight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlp, "TILE", 8)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("length", [1, 7, 8, 9, 16, 21])
def test_tiles_equal_the_whole(length: int, batch: int) -> None:
    """Values and all four gradients; tiles run across sequences."""
    torch.manual_seed(1)
    x, pull = torch.randn(2, batch, length, WIDTH, dtype=torch.float64)
    results = zip(run(part(True), x, pull), run(part(False), x, pull), strict=True)
    for tiled, whole in results:
        assert tiled.shape == whole.shape
        assert (tiled - whole).abs().max() <= 1e-13 * max(float(whole.abs().max()), 1.0)


def test_a_gradient_that_is_one_number_expanded() -> None:
    x = torch.randn(1, 21, WIDTH, dtype=torch.float64)
    pull = torch.ones((), dtype=torch.float64).expand(x.shape)
    for tiled, whole in zip(run(part(True), x, pull), run(part(False), x, pull), strict=True):
        assert torch.allclose(tiled, whole, rtol=1e-12, atol=1e-12)


def test_bf16_sums_weight_gradients_in_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    """In tiles of one token, as exact as in one tile."""
    torch.manual_seed(1)
    x, pull = torch.randn(2, 1, 600, WIDTH).bfloat16().abs()
    exact = run(part(False), x.double(), pull.double())
    monkeypatch.setattr(mlp, "TILE", 1)
    rounded = part(True, torch.bfloat16)
    for ours, reference in zip(run(rounded, x, pull), exact, strict=True):
        assert ours.dtype == torch.bfloat16
        assert (ours - reference).abs().max() <= 2e-2 * reference.abs().max()


def test_only_the_input_is_kept_and_the_hidden_layer_is_never_whole() -> None:
    kept = []

    def pack(x: Tensor) -> Tensor:
        kept.append(x.untyped_storage().data_ptr())
        return x

    made, length = part(True), 400
    x = torch.randn(1, length, WIDTH, dtype=torch.float64, requires_grad=True)
    with Largest() as largest:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            out = made(x)
        out.sum().backward()
    assert set(kept) == {t.untyped_storage().data_ptr() for t in (x, *made.parameters())}
    assert largest.entries == length * WIDTH
