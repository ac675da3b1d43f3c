"""The contextual kernel against the dense definition, and what it may not lose on the way."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from pipeline.errors import ConfigError
from pipeline.model import contextual
from pipeline.model.attention import attention, part_kernel
from pipeline.model.contextual import COLUMNS, ROWS, ContextualKernel, ContextualPass
from pipeline.model.kernel import run
from pipeline.positions.scores import Pairwise, Scores
from tests.oracles.attention import dense

BATCH, HEADS, WIDTH = 2, 3, 8


def striped(ids_q: Tensor, ids_k: Tensor) -> Tensor:
    """Every head sees other keys, and each query itself."""
    heads = torch.arange(HEADS)[:, None, None]
    distance = ids_q[:, None] - ids_k
    return (distance % (heads + 2) == 0) | (distance < 3)


def drawn(length: int, entries: int, tables: int = 1, **more: Any) -> tuple[Scores, Tensor, Tensor]:
    """Scores with the table as their one parameter, values, and the table; fp64 that holds fp32
    numbers, since gradients jump where p is whole."""
    torch.manual_seed(0)

    def view(*shape: int) -> Tensor:
        return torch.randn(shape).double().transpose(1, 2)

    q, k, v = (view(BATCH, length, HEADS, WIDTH) for _ in range(3))
    table = torch.randn(tables, entries, WIDTH).double()
    ids = torch.arange(length)
    scores = Scores(((q, k),), WIDTH**-0.5, ids, ids, parameters=(table,), **more)
    return scores, v, table


def results(how: Any, scores: Scores, v: Tensor, precision: torch.dtype) -> list[Tensor]:
    """The output, and the gradients of v, q, k and the table."""
    given = (v, *scores.tensors())
    leaves = [None if x is None else x.to(precision).requires_grad_() for x in given]
    used = scores.with_tensors(tuple(leaves[1:]))
    used = replace(used, context=lambda: used.parameters[0])
    assert leaves[0] is not None
    out = how(used, leaves[0])
    torch.manual_seed(1)
    (out * torch.randn_like(v).to(precision)).sum().backward()
    return [out, *(x.grad for x in leaves if x is not None and x.grad is not None)]


def compare(scores: Scores, v: Tensor) -> None:
    fast = results(lambda s, x: run(ContextualKernel(), s, x), scores, v, torch.float32)
    slow = results(dense, scores, v, torch.float64)
    assert len(fast) == 5
    for found, expected in zip(fast, slow, strict=True):
        size = max(float(expected.detach().abs().max()), 1.0)
        assert (found - expected).abs().max() <= 1e-5 * size


@pytest.mark.parametrize("length", [1, 2, 255, 256, 257, 511, 512, 513, 800])
@pytest.mark.parametrize("entries", [2, 60, 2000])
def test_it_equals_the_definition_at_every_edge(length: int, entries: int) -> None:
    """Rows that are full at once, in the second tile, and never."""
    scores, v, _ = drawn(length, entries)
    compare(scores, v)


@pytest.mark.parametrize(("length", "window"), [(700, 2), (700, 100), (700, 555), (770, 600)])
@pytest.mark.parametrize("allowed", [None, striped])
def test_what_a_query_does_not_see_counts_nothing(
    length: int, window: int, allowed: Pairwise | None
) -> None:
    """The last: two rows, whose second tile is beyond the diagonal and ends outside the window."""
    scores, v, _ = drawn(length, 90, window=window, allowed=allowed)
    compare(scores, v)


def test_rows_fill_at_their_own_pace() -> None:
    """Gates of 0.99 in three of four rows, of 0.01 in the others, which are not full at the end."""
    scores, v, _ = drawn(1100, 20)
    ((q, k),) = scores.pairs
    k[..., 0] = 3.0
    q[..., 0], q[:, :, ::4, 0] = 4.0, -4.0
    compare(scores, v)


def test_a_window_of_one_token_reads_it() -> None:
    scores, v, table = drawn(300, 5, window=1)
    assert torch.equal(attention(replace(scores, context=lambda: table), v), v.float().double())


def test_every_head_may_have_a_table() -> None:
    scores, v, _ = drawn(300, 9, tables=HEADS, allowed=striped)
    compare(scores, v)


def test_full_rows_cost_no_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 positions are full after some 130 keys: only a row block's first tiles are counted."""
    seen: list[Tensor] = []
    whole = contextual.Count.of

    def counted(p: Tensor) -> contextual.Count:
        seen.append(p)
        return whole(p)

    monkeypatch.setattr(contextual.Count, "of", counted)
    scores, v, table = drawn(4 * COLUMNS, 64)
    run(ContextualKernel(), replace(scores, context=lambda: table), v)
    assert 0 < len(seen) <= 2 * 4 * COLUMNS // ROWS


def test_gates_of_one_are_distances() -> None:
    """p = i - j + 1, so that e is a table of vectors by distance, read by the scaled query."""
    length = 300
    scores, v, table = drawn(length, length + 1)
    ((q, _),) = scores.pairs
    level = torch.zeros_like(q)
    # 60 for all pairs: sigmoid is 1 in fp32, and softmax does not see it
    level[..., 0] = (60.0 / scores.scale) ** 0.5
    read = q.clone()
    read[..., 0] = level[..., 0]
    own = replace(scores, pairs=((read, level),), context=lambda: table)
    by_distance = replace(
        scores,
        pairs=((torch.zeros_like(q), level),),
        queries=read / scores.scale,
        keys=table[:, 1:].expand(HEADS, -1, -1),
    )
    out = attention(own.with_tensors((read.float(), level.float(), *own.tensors()[2:])), v.float())
    assert (out - dense(by_distance, v)).abs().max() < 1e-4


def test_an_empty_table_is_nothing() -> None:
    scores, v, table = drawn(300, 20)
    single = scores.with_tensors(tuple(None if t is None else t.float() for t in scores.tensors()))
    empty = replace(single, context=lambda: torch.zeros_like(table).float())
    plain = attention(single, v.float(), "sdpa")
    assert (attention(empty, v.float()) - plain).abs().max() < 1e-6


def test_sums_of_65536_gates_are_exact() -> None:
    """To the last digits of fp64; carried in fp32 they would be off by 0.02."""
    length = 65_536
    torch.manual_seed(0)
    q, k = torch.randn(2, 1, 1, length, WIDTH)
    ids, table = torch.arange(length), torch.zeros(1, length, WIDTH)
    scores = Scores(((q, k),), WIDTH**-0.5, ids, ids, context=lambda: table)
    done = ContextualPass(scores, q)
    rows, tiles = list(done.blocks())[-1]
    last = done.sums(rows, tiles)[-1]
    assert last is not None
    logits = q[0, 0, rows].double() @ k[0, 0, tiles[-2].start :].double().T * WIDTH**-0.5
    seen = ids[tiles[-2].start :] <= ids[rows, None]
    expected = (torch.sigmoid(logits) * seen).sum(-1)
    assert expected.min() > 30_000
    assert (last[0, :, 0] - expected).abs().max() < 1e-8


def test_memory_is_linear() -> None:
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
    ids, table = torch.arange(length), torch.randn(1, 3000, 16, requires_grad=True)
    # one row's levels are read in whole: 256 x 3000
    scores = Scores(((q, k),), 0.25, ids, ids, parameters=(table,), context=lambda: table)
    with Watch():
        attention(scores, v).sum().backward()
    assert 0 < largest <= ROWS * 3000 < length * length / 16


def test_no_other_path_serves_it_and_it_serves_no_other() -> None:
    scores, v, table = drawn(9, 4)
    counted = replace(scores, context=lambda: table)
    for path in ("tile", "sdpa", "flex", "far_near", "fold"):
        with pytest.raises(ConfigError, match=f"'{path}' does not serve.*use auto, contextual"):
            attention(counted, v, path)
    with pytest.raises(ConfigError, match="'contextual' does not serve.*use auto, tile, sdpa"):
        attention(scores, v, "contextual")
    with pytest.raises(AssertionError, match="a part of the keys"):
        part_kernel(counted)
    with pytest.raises(AssertionError, match="no other term"):
        attention(replace(counted, table=torch.zeros(HEADS, 9)), v)


def test_a_bf16_model_counts_in_fp32() -> None:
    """Off by the rounding of the output and no more."""
    scores, v, table = drawn(300, 40)
    cast = [None if t is None else t.bfloat16() for t in (v, *scores.tensors())]
    small = replace(scores.with_tensors(tuple(cast[1:])), context=lambda: table.bfloat16())
    assert cast[0] is not None
    out = attention(small, cast[0])
    exact = dense(small, cast[0])
    assert out.dtype == torch.bfloat16
    assert bool(((out.double() - exact).abs() <= 2**-8 * exact.abs() + 1e-5).all())
