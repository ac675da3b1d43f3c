"""The kernels of attention against the dense definition: every term, every kind of edge."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from pipeline.model.attention import attention
from pipeline.model.far_near import FarNearKernel
from pipeline.model.flash import FlashKernel
from pipeline.model.kernel import Kernel, run
from pipeline.model.tile import TileKernel
from pipeline.positions.scores import Pairwise, Scores
from tests.oracles.attention import dense

BATCH, HEADS, WIDTH = 2, 3, 8


def waves(parameter: Tensor) -> Pairwise:
    """A bias that is no function of the distance, with a parameter [HEADS]."""

    def bias(i: Tensor, j: Tensor) -> Tensor:
        angles = i[:, None] * 0.3 + j * 0.1
        return parameter[:, None, None] * angles.to(parameter.dtype).cos()

    return bias


def drawn(length: int, terms: dict[str, Any]) -> tuple[Scores, Tensor]:
    """fp64 scores with the asked-for terms, and values; inputs are views, as in the block.

    `terms`: entries = N; table, keys, values, bias: present; branches: how many; window; steep: how
    much the table falls per token; wide: width of q and k.
    """
    torch.manual_seed(0)

    def view(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64).transpose(1, 2)

    branches, wide = terms.get("branches", 1), terms.get("wide", WIDTH)
    entries = terms.get("entries", length)
    ids = torch.arange(length)
    falling = terms.get("steep", 0.0) * torch.arange(entries)

    def select(i: Tensor, j: Tensor) -> Tensor:
        distance = i[:, None] - j
        return (distance >= 7).long() + (distance >= 300).long() * (branches - 2)

    scores = Scores(
        pairs=tuple(
            (view(BATCH, length, HEADS, wide), view(BATCH, length, HEADS, wide))
            for _ in range(branches)
        ),
        scale=WIDTH**-0.5,
        ids_q=ids,
        ids_k=ids,
        constant_from=entries - 1 if "entries" in terms else None,
        table=torch.randn(HEADS, entries).double() - falling if "table" in terms else None,
        queries=view(BATCH, length, HEADS, 5) if "keys" in terms else None,
        keys=view(HEADS, 5, entries) if "keys" in terms else None,
        # one table for all heads, as of an encoding that shares it
        values=torch.randn(1, entries, WIDTH).double().expand(HEADS, -1, -1)
        if "values" in terms
        else None,
        parameters=(torch.randn(HEADS).double(),) if "bias" in terms else (),
        select=select if branches > 1 else None,
        window=terms.get("window"),
    )
    return scores, view(BATCH, length, HEADS, WIDTH)


def attended(
    how: Callable[[Scores, Tensor], Tensor], scores: Scores, v: Tensor, precision: torch.dtype
) -> Iterator[Tensor]:
    """The output, and the gradients of v and of every tensor of the scores."""
    leaves = [
        None if x is None else x.to(precision).requires_grad_() for x in (v, *scores.tensors())
    ]
    assert leaves[0] is not None
    used = scores.with_tensors(tuple(leaves[1:]))
    if used.parameters:
        used = replace(used, bias=waves(used.parameters[0]))
    out = how(used, leaves[0])
    torch.manual_seed(1)
    (out * torch.randn_like(v).to(precision)).sum().backward()
    yield out
    for leaf in leaves:
        if leaf is not None:
            assert leaf.grad is not None
            yield leaf.grad


def compare(kernel: Kernel, length: int, terms: dict[str, Any]) -> None:
    scores, v = drawn(length, terms)
    fast = attended(lambda s, x: run(kernel, s, x), scores, v, torch.float32)
    slow = attended(dense, scores, v, torch.float64)
    for found, expected in zip(fast, slow, strict=True):
        size = max(float(expected.detach().abs().max()), 1.0)
        assert (found - expected).abs().max() <= 1e-5 * size


def named(terms: Any) -> str | None:
    return ",".join(f"{k}={v}" for k, v in terms.items()) if isinstance(terms, dict) else None


EDGES = (1, 2, 255, 256, 257, 511, 512, 513, 700)
ALL = {"table": 1, "keys": 1, "values": 1, "bias": 1, "branches": 3, "entries": 9, "window": 355}


@pytest.mark.parametrize("length", EDGES)
@pytest.mark.parametrize("terms", [{"table": 1}, {"keys": 1, "values": 1}, ALL], ids=named)
def test_tiles_equal_the_definition_at_every_edge(length: int, terms: dict[str, Any]) -> None:
    compare(TileKernel(), length, terms)


@pytest.mark.parametrize("length", [1, 5, 257, 700])
@pytest.mark.parametrize(
    "terms",
    [
        {},
        {"table": 1, "entries": 6},
        {"table": 1, "steep": 2.0},
        {"keys": 1},
        {"keys": 1, "entries": 4},
        {"values": 1},
        {"values": 1, "entries": 300},
        {"bias": 1},
        {"branches": 2},
        {"branches": 3},
        {"window": 1},
        {"window": 5},
        {"window": 300, "table": 1, "keys": 1, "values": 1},
        {"wide": 13, "table": 1},
    ],
    ids=named,
)
def test_tiles_equal_the_definition_for_every_term(length: int, terms: dict[str, Any]) -> None:
    compare(TileKernel(), length, terms)


def test_tiles_that_are_wide_for_relative_vectors() -> None:
    compare(TileKernel(), 1100, {"keys": 1, "values": 1})


@pytest.mark.parametrize("length", [7, 257, 700])
@pytest.mark.parametrize("near", [1, 5, 6, 7, 300])
@pytest.mark.parametrize(
    "terms",
    [
        {"table": 1},
        {"keys": 1},
        {"values": 1},
        {"table": 1, "keys": 1, "values": 1},
        {"table": 1, "wide": 16},
    ],
    ids=named,
)
def test_far_and_near_equal_the_definition(length: int, near: int, terms: dict[str, Any]) -> None:
    """A near band of one token, of all but one, of all, and of more than there are."""
    compare(FarNearKernel(), length, {**terms, "entries": near + 1})


@pytest.mark.parametrize("length", [1, 257])
@pytest.mark.parametrize("terms", [{}, {"wide": 16}], ids=named)
def test_the_fused_kernel_equals_the_definition(length: int, terms: dict[str, Any]) -> None:
    compare(FlashKernel(), length, terms)


@pytest.mark.parametrize("path", ["tile", "far_near", "sdpa"])
def test_memory_is_linear(path: str) -> None:
    """No tensor, forward or backward, ever has S x S elements."""
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for made in out if isinstance(out, tuple) else (out,):
                if isinstance(made, torch.Tensor):
                    size = made.untyped_storage().nbytes() // made.element_size()
                    largest = max(largest, size)
            return out

    length = 4096
    q, k, v = (torch.randn(1, 1, length, 16, requires_grad=True) for _ in range(3))
    ids = torch.arange(length)
    scores = Scores(((q, k),), 0.25, ids, ids)
    if path != "sdpa":
        vectors = torch.randn(1, 40, 16, requires_grad=True)
        table = torch.zeros(1, 40, requires_grad=True)
        scores = replace(
            scores, constant_from=39, table=table, queries=q, keys=vectors, values=vectors
        )
    with Watch():
        attention(scores, v, path).sum().backward()
    # the largest: the skewed form of one tile, rows x (rows + columns)
    assert 0 < largest <= 128 * (128 + 1024) < length * length / 64
