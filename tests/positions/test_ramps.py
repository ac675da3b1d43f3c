"""Rescalings that interpolate slow pairs and keep fast ones, with a ramp between them."""

import math
from typing import Any

import pytest
import torch

from pipeline.positions.extensions.yarn import correction_range
from tests.oracles import rotary as oracle
from tests.positions.turning import SIZES, assert_close, extended, rope, speeds


@pytest.mark.parametrize(("width", "trained"), SIZES)
@pytest.mark.parametrize(
    ("name", "chosen", "numbers"),
    [
        ("ntk_by_parts", {"scale": 16.0}, (16.0, 1.0, 32.0)),
        ("ntk_by_parts", {"scale": 4.0, "alpha": 0.5, "beta": 2.0}, (4.0, 0.5, 2.0)),
        ("llama3", {}, (8.0, 1.0, 4.0)),
        ("yarn", {"form": "paper", "scale": 8.0}, (8.0, 1.0, 32.0)),
    ],
)
def test_ramps_over_turns_equal_the_paper_in_loops(
    width: int, trained: int, name: str, chosen: dict[str, Any], numbers: tuple[float, ...]
) -> None:
    found = speeds(extended(name, rope(width, trained), **chosen))
    scale, low, high = numbers
    assert_close(found, oracle.by_parts_speeds(width, 10000.0, trained, scale, low, high))


def test_llama3_keeps_short_wavelengths_and_stretches_long_ones() -> None:
    """The published model: below 2048 tokens, and from 8192 on."""
    trained = rope(128, 8192, base=500000.0)
    before, after = speeds(trained), speeds(extended("llama3", trained))
    wavelength = math.tau / before
    assert torch.equal(after[wavelength < 2048], before[wavelength < 2048])
    assert torch.equal(after[wavelength > 8192], before[wavelength > 8192] / 8.0)
    between = (wavelength > 2048) & (wavelength < 8192)
    assert int(between.sum()) == 6
    assert bool(((after < before) & (after > before / 8.0))[between].all())


@pytest.mark.parametrize(
    ("width", "trained", "pairs"), [(128, 4096, (20, 46)), (64, 1024, (5, 18)), (64, 512, (3, 16))]
)
def test_yarn_has_the_ranges_of_the_authors_code(
    width: int, trained: int, pairs: tuple[int, int]
) -> None:
    assert correction_range(width, 10000.0, trained, 1.0, 32.0) == pairs
    before = speeds(rope(width, trained))
    after = speeds(extended("yarn", rope(width, trained), scale=8.0))
    low, high = pairs
    assert torch.equal(after[: low + 1], before[: low + 1])
    assert bool((after[low + 1 :] < before[low + 1 :]).all())
    assert torch.equal(after[high:], before[high:] / 8.0)
    assert bool((after[:high] > before[:high] / 8.0).all())


@pytest.mark.parametrize(("width", "trained"), SIZES)
@pytest.mark.parametrize("scale", [1.5, 8.0, 32.0])
def test_yarn_equals_the_authors_code_in_loops(width: int, trained: int, scale: float) -> None:
    found = speeds(extended("yarn", rope(width, trained), scale=scale))
    assert_close(found, oracle.yarn_speeds(width, 10000.0, trained, scale))


def test_yarn_without_a_ramp_keeps_all_pairs_or_divides_all_but_the_fastest() -> None:
    """Where all of them turn more than 32 times in training, or none turns once."""
    often, seldom = rope(64, 1024, base=2.0), rope(64, 4)
    assert torch.equal(speeds(extended("yarn", often)), speeds(often))
    found, trained = speeds(extended("yarn", seldom)), speeds(seldom)
    assert torch.equal(found[1:], trained[1:] / 4.0) and found[0] == trained[0]


def test_yarn_in_code_and_in_print_differ() -> None:
    code, paper = (
        speeds(extended("yarn", rope(128, 4096), form=form, scale=8.0))
        for form in ("code", "paper")
    )
    assert (code / paper).max().item() == pytest.approx(2.305, abs=5e-4)
