"""Which layers of a trained decoder an extension changes."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from pipeline.config.schema import Config
from pipeline.errors import ConfigError
from pipeline.evaluate import extended
from pipeline.evaluate.score import Scorer
from pipeline.evaluate.suite import LengthStep, plan
from pipeline.model.attention import choose
from pipeline.model.decoder import Decoder
from pipeline.model.exchange import Exchange
from pipeline.model.plan import as_tested
from pipeline.parallel.mesh import Mesh
from pipeline.positions import registry
from tests.distributed.toy import scattered, toy_config
from tests.evaluate.test_score import toy_documents
from tests.positions.cases import SHAPE, random_qkv, scores_of

LENGTH = 42


def config_of(extension: str, settings: dict[str, Any], **model: Any) -> Config:
    config = toy_config("rope")
    config.model = replace(config.model, **model)
    config.extension = {"name": extension, **registry.extension_settings(extension), **settings}
    return as_tested(config)


def decoder_of(config: Config, extend: bool) -> Decoder:
    torch.manual_seed(4)
    decoder = scattered(Decoder(config))
    if extend:
        extended.extend_decoder(decoder, config)
    return decoder


def hidden(decoder: Decoder) -> Tensor:
    tokens = torch.randint(0, 50, (1, LENGTH), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return decoder.hidden(tokens, torch.arange(LENGTH)[None], Exchange())


def test_no_extension_leaves_the_decoder() -> None:
    config = config_of("none", {})
    decoder = decoder_of(config, extend=False)
    before = decoder.position
    extended.extend_decoder(decoder, config)
    assert decoder.position is before


@pytest.mark.parametrize(
    ("extension", "settings", "bare_too"),
    [("window", {"window_share": 0.2}, True), ("interpolation", {"scale": 2.0}, False)],
)
def test_layers_without_an_encoding_are_changed_if_the_extension_fits_none(
    extension: str, settings: dict[str, Any], bare_too: bool
) -> None:
    """Layer 0 has the encoding, layer 1 has none."""
    config = config_of(extension, settings, no_position_every=2)
    decoder, plain = decoder_of(config, extend=True), decoder_of(config, extend=False)
    assert type(decoder.position_of(0)) is not type(plain.position_of(0))
    changed = type(decoder.position_of(1)) is not type(plain.position_of(1))
    assert changed == bare_too
    assert (hidden(decoder) - hidden(plain)).abs().max() > 1e-3
    if bare_too:
        # seen by what the last layer alone does
        decoder.position = plain.position
        assert (hidden(decoder) - hidden(plain)).abs().max() > 1e-3


def test_a_dropped_encoding_can_be_tested_under_a_temperature() -> None:
    """As Gelberg et al. do: all layers go without the encoding, and are changed."""
    config = config_of("temperature", {"coefficient": 0.4}, drop_position_after=1)
    decoder, plain = decoder_of(config, extend=True), decoder_of(config, extend=False)
    assert decoder.dropped and (hidden(decoder) - hidden(plain)).abs().max() > 1e-3
    assert extended.tested_path(config, "cpu", LENGTH) == "sdpa"


def test_an_extension_of_rotations_is_refused_where_they_were_dropped() -> None:
    config = config_of("interpolation", {}, drop_position_after=1)
    with pytest.raises(ConfigError, match="does not fit a model whose training dropped"):
        decoder_of(config, extend=True)


@pytest.mark.parametrize("extension", ["log_n", "blockwise", "lm_infinite"])
def test_what_counts_tokens_is_refused_where_ids_number_something_else(extension: str) -> None:
    config = config_of(extension, {})
    config.position_ids = {"name": "randomized", "positions": 90}
    with pytest.raises(ConfigError, match=f"{extension} does not fit position_ids=randomized"):
        decoder_of(config, extend=True)


def test_a_mask_beside_that_of_the_model_is_refused() -> None:
    config = config_of("blockwise", {}, attention_mask="blockwise", mask_tokens=4)
    with pytest.raises(ConfigError, match="attention_mask=blockwise: the trained model has a mask"):
        decoder_of(config, extend=True)


PAIRS = [
    (name, extension)
    for name in ("kerple", "pope", "rope", "tener", "transformer_xl", "fox", "cope", "alibi")
    for extension in ("yarn", "window", "blockwise", "log_n", "temperature", "rerope")
    if registry.extension_fits(extension, registry.build({"name": name}, SHAPE))
]


@pytest.mark.parametrize(("name", "extension"), PAIRS)
def test_the_path_is_that_of_the_extended_encoding(name: str, extension: str) -> None:
    """Asked for without weights, as for a trained decoder that has them."""
    config = toy_config(name)
    config.extension = {"name": extension, **registry.extension_settings(extension)}
    config = as_tested(config)
    decoder = decoder_of(config, extend=True)
    q, k, _ = random_qkv(LENGTH)
    scores = scores_of(decoder.position, q, k)
    assert extended.tested_path(config, "cpu", LENGTH) == choose(scores, LENGTH, "cpu")


@pytest.mark.parametrize("extension", ["dynamic_ntk", "temperature", "log_n"])
def test_the_order_of_lengths_does_not_matter(extension: str) -> None:
    """What changes with the length of the sequence must not remember the sequences before."""
    config = config_of(extension, {})
    documents, scorer = (
        toy_documents(),
        Scorer(decoder_of(config, extend=True), Mesh(), Exchange(), torch.device("cpu"), 64),
    )
    steps = plan(config, documents)

    def losses(order: list[LengthStep]) -> dict[str, Any]:
        return {step.key: step.measure(config, scorer)[0]["loss"] for step in order}

    forward = losses(steps)
    assert forward == losses(steps[::-1]) == losses(steps[5:] + steps[:5])
    assert len(set(forward.values())) > len(config.eval_lengths)
