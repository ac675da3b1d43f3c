"""An encoding is its formula and its parameters: neither the precision that the process is set to
nor another instance beside it changes a number."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from pipeline.positions import registry
from pipeline.positions.base import Position, Shape, Site
from tests.positions.cases import CASES, LAYER, NAMES, SHAPE, named, words

every_case = pytest.mark.parametrize(("name", "chosen"), CASES, ids=named)
# far from where bf16 tells neighbours apart; the second is as far as tests of the encodings go
FAR = (16_384, 65_530)


def built(name: str, chosen: dict[str, Any], shape: Shape = SHAPE) -> Position:
    """The same parameters, in fp32, for the same shape."""
    position = registry.build({"name": name, **chosen}, shape).float()
    draw = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in position.parameters():
            drawn = torch.randn(parameter.shape, generator=draw, dtype=torch.float32)
            parameter.copy_(0.5 * drawn)
    return position


def starts(position: Position) -> list[int]:
    return [far if position.max_length is None else SHAPE.train_length - 3 for far in FAR]


def numbers(position: Position, start: int) -> list[Tensor]:
    """All that a model reads of an encoding for three tokens from `start` on."""
    shape, draw = position.shape, torch.Generator().manual_seed(5)
    size = (1, shape.heads, 3, shape.head_width)
    q, k = (torch.randn(size, generator=draw, dtype=torch.float32) for _ in range(2))
    x = torch.randn((1, 3, shape.width), generator=draw, dtype=torch.float32)
    gates = torch.randn(size[:3], generator=draw, dtype=torch.float32)
    pull = gates if position.has("gate_logits") else None
    ids, site = torch.arange(start, start + 3)[None], Site(LAYER, range(shape.heads), start + 3)
    with torch.no_grad():
        found = position("scores", q, k, ids, site, None, None, pull)
        rows = position("embed", x, ids, words(1, 3))
    return [rows, *(tensor for tensor in found.tensors() if tensor is not None)]


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    assert len(one) == len(other) > 0
    return all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(one, other, strict=True))


@every_case
def test_a_process_of_bf16_gives_the_same_numbers(name: str, chosen: dict[str, Any]) -> None:
    """It makes bf16 of what has no precision of its own, as some of DeepSpeed's initialisers do
    (deepspeedai/DeepSpeed 4932)."""
    exact = [numbers(built(name, chosen), start) for start in starts(built(name, chosen))]
    torch.set_default_dtype(torch.bfloat16)
    try:
        position = built(name, chosen)
        found = [numbers(position, start) for start in starts(position)]
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(same(a, b) for a, b in zip(exact, found, strict=True))


@every_case
def test_an_encoding_has_no_buffers_that_a_cast_could_round(
    name: str, chosen: dict[str, Any]
) -> None:
    assert not list(registry.build({"name": name, **chosen}, SHAPE).buffers())


@every_case
def test_instances_of_other_sizes_do_not_meddle(name: str, chosen: dict[str, Any]) -> None:
    """As a model of other heads and another length in the same process."""
    other_shape = replace(SHAPE, heads=2, train_length=48)
    position, other = built(name, chosen), built(name, chosen, other_shape)
    (start, *_), (other_start, *_) = starts(position), starts(other)
    before, beside = numbers(position, start), numbers(other, other_start)
    assert same(numbers(position, start), before)
    assert same(numbers(other, other_start), beside)
    alone = built(name, chosen, other_shape)
    assert same(numbers(alone, other_start), beside)


BASED = [n for n in NAMES if isinstance(registry.default_settings(n).get("base"), float)]


@pytest.mark.parametrize("name", BASED)
def test_instances_of_another_base_do_not_meddle(name: str) -> None:
    """A table kept for a shape and not for its base would be the other's."""
    instances = [built(name, chosen) for chosen in ({}, {"base": 500.0}, {})]
    start = starts(instances[0])[0]
    one, other, again = (numbers(position, start) for position in instances)
    assert same(one, again) and not same(one, other)
    assert same(numbers(instances[1], start), other)
    assert same(numbers(instances[0], start), one)
