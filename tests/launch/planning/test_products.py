"""What an encoding multiplies is counted as torch counts the built decoder, real tensors in it."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from pipeline.config.schema import Config
from pipeline.evaluate import extended
from pipeline.launch.planning import products
from pipeline.launch.planning.products import PERIOD, added_flops, at_most, parabola
from pipeline.launch.planning.trace import by_path
from pipeline.model.decoder import Decoder
from pipeline.model.flops import attention_flops, step_flops
from pipeline.positions.registry import names
from tests.bench.counting import IN_PLACE
from tests.distributed.toy import toy_config

# encodings whose work depends on values: what is planned is the most that they multiply
BOUNDED = {"alibi", "cope", "fire", "kerple", "rerope", "sandwich", "t5"}
# of them those that leave something out in a toy too; the others only where biases fall far
LESS = {"fire": 2.1, "rerope": 1.15}


def config_of(position: str, length: int, **model: Any) -> Config:
    config = toy_config(position)
    config.train_length, config.eval_lengths = length, [length]
    config.model = replace(config.model, tiled_mlp=False, **model)
    return config


def planned(config: Config) -> int:
    whole = step_flops(config.model, config.data.vocab, config.train_length)
    return whole + added_flops(config, "cpu")


def counted(config: Config) -> int:
    """By torch, which sees nothing of the fused kernel of CPUs, and past and future of the same
    attention computed openly: the causal half lies in the middle."""
    path = extended.tested_path(config, "cpu", config.train_length)
    found = _counted(config, SDPBackend.FLASH_ATTENTION)
    if path == "sdpa":
        return (found + _counted(config, SDPBackend.MATH)) // 2
    if path == "far_near":
        # the far part, in the fused kernel, is causal attention of the tokens beyond the band
        far = config.train_length - (Decoder(config).position.constant_from or 0)
        found += config.model.layers * attention_flops(config.model, far)
    return found


def _counted(config: Config, kernel: SDPBackend) -> int:
    decoder, counter = Decoder(config), FlopCounterMode(display=False, custom_mapping=IN_PLACE)
    tokens = torch.zeros(1, config.train_length, dtype=torch.int64)
    ids = torch.arange(config.train_length)[None]
    with sdpa_kernel(kernel), counter:
        decoder(tokens, tokens, ids).sum().backward()
    return int(counter.get_total_flops())


@pytest.mark.parametrize("position", names())
def test_flops_of_every_encoding_are_those_that_torch_counts(position: str) -> None:
    """Three layers, which are planned from one and two; without tiles also from 16 to 48 tokens."""
    config = config_of(position, 300, layers=3)
    ours, torchs = planned(config), counted(config)
    assert torchs < 1.02 * ours
    assert ours < LESS.get(position, 1.02) * torchs


@pytest.mark.slow
@pytest.mark.parametrize("position", sorted({*names()} - BOUNDED))
def test_long_sequences_have_the_flops_that_torch_counts(position: str) -> None:
    """Planned from a fourth, half and three quarters of the length."""
    length = 4 * PERIOD + 77
    config = config_of(position, length, layers=1, width=16, heads=2)
    assert planned(config) == pytest.approx(counted(config), rel=0.02)


@pytest.mark.parametrize(
    ("position", "device", "model"),
    [
        ("alibi", "cpu", {}),
        ("xlnet", "cpu", {}),
        ("cope", "cpu", {}),
        ("rope", "cpu", {"attention_window": 2200}),
        ("shaw", "cuda", {}),
        ("t5", "cuda", {}),
        ("tupe", "cpu", {}),
    ],
)
def test_the_parabola_is_exact(position: str, device: str, model: dict[str, Any]) -> None:
    """At a length it was not put through, whatever the path; windows and bands near and far."""
    length = 6 * PERIOD + 600
    config = config_of(position, length, layers=1, **model)
    path = extended.tested_path(config, device, length)
    lengths = products._shorter(by_path(config, path), path, length)
    assert len(lengths) == 3 and max(lengths) < length
    itself = products._counted(by_path(config, path), length, 1, dropped=False)
    assert added_flops(config, device) == itself


def test_a_window_that_ends_in_the_last_tiles_is_nearly_none() -> None:
    length = 4 * PERIOD + 600
    config = config_of("rope", length, layers=1, attention_window=length - PERIOD + 100)
    config = by_path(config, "tile")
    whole = step_flops(config.model, config.data.vocab, length)
    itself = products._counted(config, length, 1, dropped=False)
    assert added_flops(config, "cpu") + whole == pytest.approx(itself + whole, rel=0.02)


def test_a_parabola_goes_through_its_points() -> None:
    points = [(n, 3 * n * n + 5 * n + 7) for n in (2, 10, 11)]
    assert parabola(points, 100) == 30507


def test_what_saves_memory_multiplies_no_more() -> None:
    """Nor does what is without the encoding: layers, or all of them from a step on."""
    config = config_of("shaw", 300, layers=4)
    whole = added_flops(config, "cpu")
    saving = replace(config.model, activation_checkpointing=True, tiled_mlp=True)
    assert added_flops(replace(config, model=saving), "cpu") == whole > 0
    skipping = replace(config, model=replace(config.model, no_position_every=2))
    assert added_flops(skipping, "cpu") == whole // 2
    dropping = replace(config, model=replace(config.model, drop_position_after=5))
    assert added_flops(dropping, "cpu") == whole
    assert added_flops(dropping, "cpu", dropped=True) == 0


@pytest.mark.parametrize("position", names())
def test_it_is_said_where_a_run_may_multiply_less(position: str) -> None:
    config = config_of(position, 300)
    path = extended.tested_path(config, "cpu", 300)
    with torch.device("meta"):
        built = Decoder(config).position
    assert at_most(built, config, path) == (position in BOUNDED)


def test_a_mask_may_leave_tiles_out() -> None:
    config = config_of("rope", 300, attention_mask="blockwise", mask_tokens=100)
    with torch.device("meta"):
        built = Decoder(config).position
    assert at_most(built, config, extended.tested_path(config, "cpu", 300))
