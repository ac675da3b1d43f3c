"""Rotations, trained and rescaled, as the tests of them ask."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from pipeline.positions import registry
from pipeline.positions.base import Position, Site
from pipeline.positions.rope import RotaryPosition
from tests.positions.cases import LAYER, SHAPE, build, random_qkv

# widths of a head and training lengths
SIZES = [(128, 4096), (64, 1024), (64, 512), (32, 64), (8, 24)]


def extended(name: str, position: Position | None = None, **settings: Any) -> RotaryPosition:
    """An encoding, RoPE if not given, under this extension."""
    trained = position or build("rope")
    found = registry.extended(trained, "rope", {"name": name, **settings})
    assert isinstance(found, RotaryPosition)
    return found


def rope(width: int, trained: int, base: float = 10000.0) -> Position:
    """One head of this width."""
    shape = replace(SHAPE, width=width, heads=1, train_length=trained)
    return registry.build({"name": "rope", "base": base}, shape)


def speeds(position: Position, length: int = 24) -> Tensor:
    """In radians per token, in a sequence of so many tokens."""
    assert isinstance(position, RotaryPosition)
    return position.speeds(torch.device("cpu"), length)


def turned(position: Position, length: int = 96) -> tuple[Tensor, Tensor]:
    """q, k [2,4,S,8] rotated."""
    q, k, _ = (x.detach() for x in random_qkv(length))
    return position.rotate(q, k, torch.arange(length)[None], Site(LAYER, range(4), length))


def assert_close(found: Tensor, expected: list[float]) -> None:
    """To a rounding of fp64."""
    assert found.dtype == torch.float64
    assert found.tolist() == pytest.approx(expected, rel=1e-12)
