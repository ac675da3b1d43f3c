"""The weights that the probes see are those the model computes with: attention made of them, in its
place, leaves every state of the decoder as it is."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from pipeline.evaluate.extended import extend_decoder
from pipeline.evaluate.probes.weights import Attend, attention_wrapped, row_scores
from pipeline.model.decoder import Decoder
from pipeline.model.exchange import Exchange
from pipeline.model.plan import as_tested
from pipeline.positions import registry
from pipeline.positions.scores import Scores
from tests.distributed.toy import scattered, toy_config
from tests.oracles.attention import dense_scores
from tests.positions.cases import CASES, build, named, random_qkv, scores_of
from tests.positions.extension_cases import PAIRS

MODIFIED: dict[str, dict[str, Any]] = {
    "window": {"attention_window": 9},
    "blockwise": {"attention_mask": "blockwise", "mask_tokens": 5},
    "ssmax": {"score_scale": "ssmax"},
    "log_n": {"score_scale": "log_n"},
    "key": {"qk_norm": "key", "qk_bias": True},
    "cosine": {"qk_norm": "cosine"},
    "some layers": {"no_position_every": 2},
    "dropped": {"drop_position_after": 1},
}
IDS = [
    ("shifted", "sinusoidal"), ("randomized", "alibi"), ("augmented", "rope"), ("pose", "rope"),
    ("segments", "alibi"),
]  # fmt: skip


def decoder_of(
    position: str,
    chosen: dict[str, Any] | None = None,
    *,
    extension: str = "none",
    ids: str = "consecutive",
    **model: Any,
) -> Decoder:
    """Of two layers with every weight random, as it is tested."""
    config = toy_config(position)
    config.position |= chosen or {}
    config.model = replace(config.model, **model)
    config.position_ids = {"name": ids, **registry.ids_settings(ids)}
    config.extension = {"name": extension, **registry.extension_settings(extension)}
    torch.manual_seed(4)
    decoder = scattered(Decoder(as_tested(config))).eval()
    extend_decoder(decoder, config)
    decoder.position_ids.read_vocabulary([b"." if n % 9 == 0 else b"a" for n in range(50)])
    return decoder


def from_weights(layer: int, attention: Attend) -> Attend:
    """Attention by the rows of all queries that the probes would see."""

    def attend(scores: Scores, v: Tensor) -> Tensor:
        weights = row_scores(scores, v, range(v.shape[2])).softmax(-1)
        mixed = weights @ v
        if scores.values is not None:
            i = torch.arange(v.shape[2])
            distance = (i[:, None] - i).clamp(0, scores.values.shape[1] - 1)
            mixed += torch.einsum("bhij,hije->bhie", weights, scores.values[:, distance])
        return mixed

    return attend


def moved(decoder: Decoder, wrap: Callable[[int, Attend], Attend], length: int = 37) -> float:
    """The largest change of a state after the last layer, as a share of the largest state."""
    draw = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, 50, (1, min(length, decoder.position.max_length or length)),
                           generator=draw)  # fmt: skip
    call = (tokens, decoder.test_ids(tokens.numpy()), Exchange())
    consecutive = decoder.position_ids.tests_consecutive
    with torch.no_grad():
        own = decoder.hidden(*call, consecutive)
        with attention_wrapped(decoder, wrap):
            other = decoder.hidden(*call, consecutive)
        assert torch.equal(decoder.hidden(*call, consecutive), own)
    return float((own - other).abs().max() / own.abs().max())


@pytest.mark.parametrize(("name", "chosen"), CASES, ids=named)
def test_attention_of_every_encoding_is_made_of_its_weights(
    name: str, chosen: dict[str, Any]
) -> None:
    assert moved(decoder_of(name, chosen), from_weights) < 1e-4


@pytest.mark.parametrize("name", ["none", "rope", "t5", "cope", "shaw", "fox", "dape"])
@pytest.mark.parametrize("modifier", MODIFIED)
def test_and_under_every_modifier(name: str, modifier: str) -> None:
    model = MODIFIED[modifier]
    if name == "none" and ("no_position_every" in model or "drop_position_after" in model):
        model = {"qk_bias": True}
    assert moved(decoder_of(name, **model), from_weights) < 1e-4


@pytest.mark.parametrize(("extension", "name"), PAIRS)
def test_and_under_every_extension(extension: str, name: str) -> None:
    assert moved(decoder_of(name, extension=extension), from_weights) < 1e-4


@pytest.mark.parametrize(("ids", "name"), IDS)
def test_and_with_other_position_ids(ids: str, name: str) -> None:
    assert moved(decoder_of(name, ids=ids), from_weights) < 1e-4


def test_looking_on_changes_nothing_and_every_layer_is_seen() -> None:
    seen = []

    def look(layer: int, attention: Attend) -> Attend:
        seen.append(layer)
        return attention

    assert moved(decoder_of("t5", no_position_every=2), look) == 0.0
    assert seen == [0, 1]


@pytest.mark.parametrize(("name", "chosen"), CASES, ids=named)
def test_rows_are_those_of_the_dense_oracle(name: str, chosen: dict[str, Any]) -> None:
    """Of some queries, of two sequences at once, in a window."""
    q, k, v = random_qkv(24)
    queries = [0, 7, 8, 23]
    with torch.no_grad():
        scores = scores_of(build(name, **chosen), q, k, window=15)
        found = row_scores(scores, v, queries)
        expected = dense_scores(scores)[:, :, queries]
    assert torch.equal(found.isneginf(), expected.isneginf())
    assert bool((found[..., 0, 1:] == -torch.inf).all() and (found[..., 3, 9:] > -torch.inf).all())
    seen = ~found.isneginf()
    assert (found[seen] - expected[seen]).abs().max() < 1e-4
