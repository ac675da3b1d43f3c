"""The terms of scores beside products and tables, each by itself against its dense definition: in
one piece, and in a ring."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from pipeline.model.tile import TileKernel
from pipeline.positions.scores import Scores
from tests.oracles.attention import dense
from tests.parallel.test_ring import ring

BATCH, HEADS, WIDTH = 2, 3, 8
LENGTHS = (1, 2, 257, 700)


@dataclass
class Case:
    """Scores and values, the gradient that comes back, and how far from exact a result may be."""

    scores: Scores
    v: Tensor
    pull: Tensor
    error: float = 1e-5


def plain(length: int) -> Case:
    q, k, v, pull = torch.randn(4, BATCH, HEADS, length, WIDTH)
    ids = torch.arange(length)
    return Case(Scores(pairs=((q, k),), scale=WIDTH**-0.5, ids_q=ids, ids_k=ids), v, pull)


def with_key_table(length: int, clip: int | None) -> Case:
    case = plain(length)
    table = torch.randn(HEADS, length if clip is None else clip + 1, WIDTH)
    return replace(case, scores=replace(case.scores, key_table=table, constant_from=clip))


def with_both_tables(length: int, clip: int | None) -> Case:
    """Read by queries and by keys, as in disentangled attention."""
    case = with_key_table(length, clip)
    assert case.scores.key_table is not None
    keys = torch.randn_like(case.scores.key_table)
    queries = torch.randn_like(case.scores.pairs[0][0])
    return replace(case, scores=replace(case.scores, keys=keys, queries=queries))


def with_decay(length: int, start: float = 0.0, jump: float = 0.0) -> Case:
    """Sums of gates of order one from `start` on, and of `jump` at every seventieth token: in the
    hundred thousands, neighbours differ in the sixth digit."""
    case = plain(length)
    steps = torch.randn(BATCH, HEADS, length, dtype=torch.float64)
    steps[..., ::70] += jump
    c = steps.cumsum(-1) + start
    return replace(case, scores=replace(case.scores, decay_q=c.clone(), decay_k=c))


def with_allowed(length: int, allowed: Callable[[Tensor, Tensor], Tensor]) -> Case:
    case = plain(length)
    return replace(case, scores=replace(case.scores, allowed=allowed))


def block(ids_q: Tensor, ids_k: Tensor) -> Tensor:
    """Blocks of 90 tokens see themselves: most tiles see nothing."""
    return (ids_q[:, None] // 90 == ids_k // 90)[None]


def neighbours(ids_q: Tensor, ids_k: Tensor) -> Tensor:
    """A token sees itself and the one before, but the last of 700, which sees all."""
    return ((ids_q[:, None] - ids_k <= 1) | (ids_q[:, None] == 699))[None]


def per_head(ids_q: Tensor, ids_k: Tensor) -> Tensor:
    """Head 0 sees every third token, 1 the first ten and itself, 2 all."""
    distance = ids_q[:, None] - ids_k
    first = (ids_k < 10).expand_as(distance) | (distance == 0)
    return torch.stack([distance % 3 == 0, first, torch.ones_like(first)])


class Mix:
    """tanh of all heads' scores mixed, with a shift that grows with the distance."""

    def __init__(self) -> None:
        self.inner, self.outer = (
            (torch.randn(HEADS, HEADS) * 0.3).requires_grad_() for _ in range(2)
        )
        self.slope = (torch.randn(HEADS) * 0.001).requires_grad_()

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        return self.inner, self.outer, self.slope

    def __call__(self, scores: Tensor, ids_q: Tensor, ids_k: Tensor) -> Tensor:
        inner, outer, slope = (p.to(scores.dtype) for p in self.parameters)
        hidden = torch.tanh(torch.einsum("bhij,gh->bgij", scores, inner))
        away = slope[:, None, None] * (ids_q[:, None] - ids_k)
        return scores + torch.einsum("bhij,gh->bgij", hidden, outer) + away


def with_transform(length: int) -> Case:
    case, mix = plain(length), Mix()
    return replace(case, scores=replace(case.scores, transform=mix, parameters=mix.parameters))


def with_everything(length: int) -> Case:
    case, mix = with_both_tables(length, 40), Mix()
    # gates that leave scores of order one, which fp32 knows to 1e-7
    c = (torch.randn(BATCH, HEADS, length).double() * 0.1).cumsum(-1)
    scores = replace(case.scores, decay_q=c.clone(), decay_k=c, allowed=per_head, window=300)
    return replace(case, scores=replace(scores, transform=mix, parameters=mix.parameters))


CASES: dict[str, Callable[[int], Case]] = {
    "whole key table": lambda length: with_key_table(length, None),
    "clipped key table": lambda length: with_key_table(length, 5),
    "key table of one": lambda length: with_key_table(length, 0),
    "long key table": lambda length: with_key_table(length, 300),
    "both tables": lambda length: with_both_tables(length, 40),
    "decay": with_decay,
    "far decay": lambda length: with_decay(length, start=-2e5),
    "steep decay": lambda length: with_decay(length, jump=-2e4),
    "block mask": lambda length: with_allowed(length, block),
    "neighbours": lambda length: with_allowed(length, neighbours),
    "a mask per head": lambda length: with_allowed(length, per_head),
    "transform": with_transform,
    "everything": with_everything,
}


def exact(case: Case) -> list[Tensor | None]:
    """out, and the gradients of v and of all tensors, densely and in fp64."""
    tensors = [
        None if t is None else t.detach().double().clone().requires_grad_()
        for t in case.scores.tensors()
    ]
    scores, v = case.scores.with_tensors(tuple(tensors)), case.v.double().requires_grad_()
    if isinstance(scores.transform, Mix):
        mix = Mix()
        mix.inner, mix.outer, mix.slope = scores.parameters
        scores = replace(scores, transform=mix)
    out = dense(scores, v)
    wanted = [t for t in (v, *tensors) if t is not None]
    found = iter(torch.autograd.grad(out, wanted, case.pull.double()))
    return [out.detach(), *(None if t is None else next(found) for t in (v, *tensors))]


def check(found: list[Tensor | None], case: Case) -> None:
    """Each against the exact one, on the scale of its largest entry; of one that is nought, on that
    of the largest of all."""
    expected = exact(case)
    largest = max(float(x.abs().max()) for x in expected[1:] if x is not None)
    names = ("out", "v", "q", "k", "table", "queries", "keys", "key_table", "values", "decay")
    assert len(found) == len(expected)
    for place, (own, true) in enumerate(zip(found, expected, strict=True)):
        name = names[place] if place < len(names) else "parameter"
        assert (own is None) == (true is None), name
        if own is not None and true is not None:
            size = float(true.abs().max())
            limit = case.error * (size if size > 1e-6 * largest else largest)
            assert float((own - true).abs().max()) <= limit, name


def made(name: str, length: int) -> Case:
    torch.manual_seed(length)
    return CASES[name](length)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", CASES)
def test_a_term_equals_its_dense_definition(name: str, length: int) -> None:
    case, kernel = made(name, length), TileKernel()
    out, lse = kernel.forward(case.scores, case.v)
    wanted = tuple(t is not None for t in case.scores.tensors())
    d_v, found = kernel.backward(case.scores, case.v, out, lse, case.pull, wanted)
    check([out, d_v, *found], case)


@pytest.mark.parametrize("stations", [2, 3])
@pytest.mark.parametrize("name", CASES)
def test_a_term_in_a_ring_equals_its_dense_definition(name: str, stations: int) -> None:
    for length in (stations, 257):
        case = made(name, length)
        check(ring(case.scores, case.v, case.pull, stations), case)
