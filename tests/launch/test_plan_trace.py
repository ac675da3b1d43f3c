"""What is traced without memory is what really happens: bytes alive, bytes sent."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.distributed._tools.mem_tracker import MemTracker

from pipeline.config.schema import Config
from pipeline.launch.planning.trace import MOST_HELD, MOST_TILED, Place, line, trace
from pipeline.model.decoder import Decoder
from pipeline.positions.registry import default_settings
from tests.distributed.toy import toy_config


def config_of(position: str, **model: Any) -> Config:
    config = toy_config(position)
    config.position = {"name": position, **default_settings(position)}
    config.train_length, config.eval_lengths = 2048, [64]
    config.model = replace(config.model, tiled_mlp=False, **model)
    return config


def really(config: Config, length: int) -> int:
    """The most bytes alive beyond the weights, of tensors that have memory."""
    decoder, tracker = Decoder(config), MemTracker()
    tokens = torch.randint(0, config.data.vocab, (1, length))
    labels, ids = tokens.clone(), torch.arange(length)[None]
    tracker.track_external(decoder)
    with tracker:
        decoder(tokens, labels, ids).sum().backward()
    found = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]
    return found["Total"] - 4 * sum(p.numel() for p in decoder.parameters())


@pytest.mark.parametrize("position", ["rope", "tupe", "t5", "shaw", "rerope", "fox"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_trace_is_the_memory_of_a_step(position: str, checkpointing: bool) -> None:
    """A fused kernel, one on folded products, tables, content, branches and gates."""
    config = config_of(position, activation_checkpointing=checkpointing)
    traced = trace(config, Place(2048, 1))
    assert traced.peak == really(config, 2048)


@pytest.mark.parametrize(("parts", "ring"), [(1, 1), (4, 1), (4, 2), (4, 4)])
def test_bytes_sent_are_those_of_the_formula(parts: int, ring: int) -> None:
    """That of tests/parallel/test_exchange.py, which counts them on real ranks."""
    config, length, rows = config_of("rope"), 64, 3
    traced = trace(config, Place(length, rows, parts, ring))
    shared, stripe = parts // ring, length // ring
    layers, width = config.model.layers, config.model.width
    traded = 0 if shared == 1 else 2 * 4 * rows * stripe // shared * width
    passed = 0 if ring == 1 else (3 * ring - 2) * 2 * rows * stripe * width // shared
    assert traced.all_to_all == 4 * layers * traded
    assert traced.ring == 4 * layers * passed


def test_a_rank_of_four_needs_a_fourth_and_what_it_exchanges() -> None:
    config = config_of("rope")
    whole, part = trace(config, Place(4096, 1)), trace(config, Place(4096, 1, 4))
    assert whole.peak / 4 < part.peak < whole.peak / 3


@pytest.mark.parametrize(
    ("position", "start", "vocab"),
    [("rope", MOST_HELD, 50), ("rope", MOST_HELD, 4000), ("shaw", MOST_TILED, 50)],
)
def test_long_sequences_lie_on_the_line(position: str, start: int, vocab: int) -> None:
    """Also where the logits of a large vocabulary are the most that short sequences need."""
    config, length = config_of(position), 2 * start
    config.data.vocab = vocab
    followed = line(config, Place(length, 1))
    assert followed.start == start
    assert followed.at(length).peak == pytest.approx(really(config, length), rel=0.01)
    assert followed.reaching(followed.at(length).peak) == pytest.approx(length, abs=1)


def test_gradients_are_as_the_engine_keeps_them() -> None:
    """Long lengths apart, all gradients are there at the end: widened, twice those of bf16."""
    config = config_of("none")
    config.trainer.precision = "bf16"
    numbers = sum(p.numel() for p in Decoder(config).parameters())
    base = trace(config, Place(2, 1, gradients="moved")).peak
    wide = trace(config, Place(2, 1, gradients="widened")).peak
    assert 3.5 * numbers < wide <= 4 * numbers + base
    assert trace(config, Place(2, 1, micro_batches=2, gradients="widened")).peak >= 4 * numbers


def test_the_path_is_that_of_the_group_planned_for() -> None:
    """Alone on a GPU t5 is computed far and near, in a ring in tiles, whatever is configured."""
    config, seen = config_of("t5"), []
    for ring in (1, 2):
        config.trainer.ring = ring
        seen.append([trace(config, Place(512, 1, 2, n, device="cuda")) for n in (1, 2)])
    assert seen[0] == seen[1]
    assert [one.ring > 0 for one in seen[0]] == [False, True]
