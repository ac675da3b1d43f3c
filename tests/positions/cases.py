"""The encodings as the battery builds them, and attention as a block asks for it."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from pipeline.model.attention import AUTO, attention
from pipeline.positions import registry
from pipeline.positions.base import Position, Shape, Site
from pipeline.positions.scores import Scores
from tests.oracles.encoding import Encoding

SHAPE = Shape(width=32, layers=2, heads=4, train_length=24, vocab=50)
NAMES = registry.names()
# settings that give an encoding another formula, or another mechanism
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("kerple", {"form": "power"}),
    ("transformer_xl", {"relative_width": "head"}),
    ("rope", {"layout": "halves"}),
    ("partial_rope", {"form": "partial"}),
    ("giraffe", {"basis": "truncated"}),
    ("cope", {"positions": 6}),
    ("deberta", {"form": "paper"}),
]
CASES: list[tuple[str, dict[str, Any]]] = [*((name, {}) for name in NAMES), *VARIANTS]
# a second layer, whose parameters are not those of the first
LAYER = 1


def named(value: Any) -> str | None:
    """Settings as part of a test's name."""
    return ",".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else None


def build(name: str, **settings: Any) -> Position:
    """With every parameter ~ N(0, 1/2), far from where training starts."""
    torch.manual_seed(3)
    position = registry.build({"name": name, **settings}, SHAPE)
    for parameter in position.parameters():
        torch.nn.init.normal_(parameter, 0.0, 0.5)
    return position


def random_qkv(length: int, heads: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v [2,h,S,d] as the block's exchange makes them: views, not contiguous."""
    torch.manual_seed(11)
    q, k, v = torch.randn(3, 2, length, heads, SHAPE.head_width).requires_grad_().transpose(2, 3)
    return q, k, v


def words(rows: int, length: int) -> Tensor:
    """Tokens [rows,S] out of 50."""
    draw = torch.Generator().manual_seed(13)
    return torch.randint(0, 50, (1, 70_000), generator=draw)[:, :length].expand(rows, -1)


def random_gates(position: Position, heads: range, length: int) -> Tensor | None:
    """Gate logits [1,h,S] of an encoding that has gates; a head's do not depend on the others."""
    if not position.has("gate_logits"):
        return None
    draw = torch.Generator().manual_seed(17)
    whole = torch.randn(1, 4, 1000, generator=draw)[:, heads.start : heads.stop, :length]
    return whole.clone().requires_grad_()


def attend(
    position: Position,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    heads: range = range(4),
    path: str = AUTO,
    window: int | None = None,
    gates: Tensor | None = None,
) -> Tensor:
    """As `pipeline.model.block` calls it: q, k, v [B,h,S,d], `gates` [1,h,S] -> [B,h,S,d]."""
    length = q.shape[2]
    ids, site = torch.arange(length)[None], Site(LAYER, heads, length)
    if gates is None:
        gates = random_gates(position, heads, length)
    pull = None if gates is None else gates.expand(len(q), -1, -1)
    own = partial(attention, path=path)
    out: Tensor = position("attend", own, q, k, v, ids, site, window, None, pull)
    return out


def scores_of(
    position: Position, q: Tensor, k: Tensor, window: int | None = None, start: int = 0
) -> Scores:
    """What attention reads of q, k [B,H,S,d] at positions from `start` on."""
    ids = torch.arange(start, start + q.shape[2])[None]
    site = Site(LAYER, range(q.shape[1]), start + q.shape[2])
    gates = random_gates(position, range(q.shape[1]), q.shape[2])
    pull = None if gates is None else gates.expand(len(q), -1, -1)
    found: Scores = position("scores", q, k, ids, site, window, None, pull)
    return found


def encoding(position: Position, name: str, length: int = 24, **settings: Any) -> Encoding:
    """What the slow oracle needs to know, its parameters and gates fp64 leaves."""
    parameters = {n: p.detach().double().requires_grad_() for n, p in position.named_parameters()}
    chosen = {**registry.default_settings(name), **settings}
    gates = random_gates(position, range(SHAPE.heads), length)
    own = None if gates is None else gates[0].detach().double().requires_grad_()
    return Encoding(parameters, chosen, SHAPE.heads, SHAPE.train_length, LAYER, own)


def check_gradients(pairs: list[tuple[Tensor | None, Tensor | None]]) -> None:
    """Each gradient against its reference, to 1e-5 of the reference's largest entry.

    One whose true value is zero, as of a number added to whole rows, is noise in both: 1e-5 of the
    largest entry of all.
    """
    largest = max(float(reference.abs().max()) for _, reference in pairs if reference is not None)
    for fast, reference in pairs:
        assert fast is not None and reference is not None
        size = float(reference.abs().max())
        error = float((fast - reference).abs().max())
        assert error <= 1e-5 * (size if size > 1e-6 * largest else largest)
