"""Counts of parameters and of keys and values, against tensors that exist."""

from dataclasses import replace

import pytest
import torch

from pipeline.model.accounting import cache_bytes, parameters_by_part
from pipeline.model.decoder import Decoder
from pipeline.positions import registry
from tests.distributed.toy import toy_config


@pytest.mark.parametrize("position", registry.names())
def test_parts_are_those_of_the_built_decoder(position: str) -> None:
    """Against formulas of the sizes, and the encoding's own tensors."""
    config = toy_config(position)
    with torch.device("meta"):
        decoder = Decoder(config)
    model, parts = config.model, parameters_by_part(decoder)
    assert parts == {
        "embedding": config.data.vocab * model.width,
        "attention": model.layers * 4 * model.width**2,
        "feed-forward": model.layers * 3 * model.width * model.mlp_width,
        "norms": (2 * model.layers + 1) * model.width,
        "head": 0,
        "position": sum(p.numel() for p in decoder.position.parameters()),
    }
    assert sum(parts.values()) == sum(p.numel() for p in decoder.parameters())


def test_a_head_of_its_own_and_biases_have_their_parts() -> None:
    config = toy_config("none")
    plain = parameters_by_part(Decoder(config))
    config.model = replace(config.model, tied_embeddings=False, qk_bias=True)
    more = parameters_by_part(Decoder(config))
    model = config.model
    assert more["head"] == config.data.vocab * model.width
    assert more["attention"] - plain["attention"] == 2 * model.layers * model.width
    assert more["position"] == plain["position"] == 0


@pytest.mark.parametrize(
    ("position", "keys", "gates"), [("rope", 1, 0), ("pope", 2, 0), ("rerope", 2, 0), ("fox", 1, 1)]
)
def test_keys_and_values_are_what_attention_reads(position: str, keys: int, gates: int) -> None:
    """K of `keys` times the head width and V, of 2 layers with 4 heads of 8; gates in fp32."""
    config = toy_config(position)
    decoder = Decoder(config)
    numbers = 2 * 4 * 8 * 100
    plain, added = cache_bytes(decoder, config, 100, 2)
    assert plain == 2 * numbers * 2
    assert added == (keys - 1) * numbers * 2 + gates * 2 * 4 * 100 * 4


def test_a_window_keeps_its_tokens() -> None:
    config = toy_config("rope")
    config.model.attention_window = 7
    decoder = Decoder(config)
    assert cache_bytes(decoder, config, 100, 4) == cache_bytes(decoder, config, 7, 4)
    assert cache_bytes(decoder, config, 5, 4)[0] * 7 == cache_bytes(decoder, config, 7, 4)[0] * 5
