"""Tiles whose weights are nothing in fp32 are left out, and no others."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from pipeline.model import reach
from pipeline.model.distance import Tile
from pipeline.model.kernel import run
from pipeline.model.tile import TileKernel, TilePass
from pipeline.positions.scores import Scores
from tests.oracles.attention import dense

LENGTH, ROWS = 900, 256
SLOPES = torch.tensor([0.01, 2.0, 0.25, 0.7, 0.1])


def scores_of(table: Tensor, size: float = 1.0, **more: Any) -> tuple[Scores, Tensor, Tensor]:
    torch.manual_seed(0)
    heads, length = table.shape[0], LENGTH
    q, k, v, pull = torch.randn(4, 2, heads, length, 8)
    ids = torch.arange(length)
    pair = ((size * q).requires_grad_(), (size * k).requires_grad_())
    scores = Scores((pair,), 8**-0.5, ids, ids, table=table.clone().requires_grad_(), **more)
    return scores, v.requires_grad_(), pull


def falling() -> Tensor:
    return -SLOPES[:, None] * torch.arange(LENGTH)


def rising_again() -> Tensor:
    """Falls steeply, and comes back for the last third."""
    table = falling()
    table[:, 600:] = 3.0
    return table


@pytest.mark.parametrize("table", [falling(), rising_again()], ids=["falling", "rising again"])
@pytest.mark.parametrize("size", [0.1, 1.0, 3.0])
def test_what_is_out_of_reach_weighs_nothing(table: Tensor, size: float) -> None:
    scores, _, _ = scores_of(table, size)
    ((q, k),) = scores.pairs
    q, k = (x.detach()[0].double() for x in (q, k))
    unit = 8**-0.5 * math.log2(math.e)
    seen = reach.reaches(q, k, unit, table.double() * math.log2(math.e), ROWS)
    distance = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
    weights = q @ k.transpose(1, 2) * 8**-0.5 + table.double()[:, distance.clamp(min=0)]
    weights = weights.masked_fill(distance < 0, -math.inf).softmax(-1)
    beyond = distance >= seen.repeat_interleave(ROWS, dim=1)[:, :LENGTH, None]
    assert float((weights * beyond).sum(-1).max()) < 2.0**-50
    falls = float(table[0, -1]) < 0
    assert (int(seen[1].max()) < LENGTH) == falls  # the head of slope 2


@pytest.mark.parametrize(
    ("table", "more"),
    [
        (falling(), {}),
        (rising_again(), {}),
        (falling(), {"window": 300}),
        (falling()[:, :400], {"constant_from": 399}),
    ],
    ids=["falling", "rising again", "window", "constant"],
)
def test_heads_in_groups_equal_the_dense_computation(table: Tensor, more: dict[str, Any]) -> None:
    """Output, and the gradients of q, k, v and of the table."""
    scores, v, pull = scores_of(table, **more)
    groups = reach.head_groups(scores, v)
    assert sorted(head for group in groups for head in group) == list(range(5))
    assert len(groups) > 1
    out = run(TileKernel(), scores, v)
    (out * pull).sum().backward()
    tensors = [t for t in (*scores.tensors(), v) if t is not None]
    found = [t.grad for t in tensors]
    exact = scores.with_tensors(
        tuple(None if t is None else t.detach().double().requires_grad_() for t in scores.tensors())
    )
    wide = v.detach().double().requires_grad_()
    expected = dense(exact, wide)
    (expected * pull.double()).sum().backward()
    assert (out - expected).abs().max() < 1e-5
    slow = [t for t in (*exact.tensors(), wide) if t is not None]
    for own, reference in zip(found, slow, strict=True):
        assert own is not None and reference.grad is not None
        assert (own - reference.grad).abs().max() <= 1e-5 * reference.grad.abs().max()


def test_a_steep_head_costs_a_band() -> None:
    """Of the tiles of 900 tokens it computes those near the diagonal; a flat one computes all."""

    def work(head: int) -> int:
        scores, v, _ = scores_of(falling())
        one = TilePass(reach.of_heads(scores, [head]), v[:, [head]])
        tiles: list[Tile] = [tile for row in one.tiles() for tile, _ in row]
        return sum((t.i1 - t.i0) * (t.j1 - t.j0) for t in tiles)

    every = sum((min(i + ROWS, LENGTH) - i) * min(i + ROWS, LENGTH) for i in range(0, LENGTH, ROWS))
    assert work(0) == every
    assert work(1) < LENGTH * (ROWS + 100)


def test_flat_heads_stay_together() -> None:
    scores, v, _ = scores_of(0.01 * falling())
    assert reach.head_groups(scores, v) == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize("case", ["a far key is long", "near keys are opposite"])
def test_no_row_loses_what_it_looks_at(case: str) -> None:
    """Rows that look past a steep bias, though others of their block do not."""
    table = -0.25 * torch.arange(LENGTH)[None]
    scores, v, _ = scores_of(table, 0.1)
    ((q, k),) = scores.pairs
    with torch.no_grad():
        q[..., 0] = 8.0
        if case == "a far key is long":
            q[:, :, ::100, 0] = 0.1
            k[:, :, 40, 0] = 80.0
        else:
            k[..., 0] = 80.0
            k[:, :, 300:-1, 0] = -80.0
    out = run(TileKernel(), scores, v)
    assert (out - dense(scores, v)).abs().max() < 1e-4
