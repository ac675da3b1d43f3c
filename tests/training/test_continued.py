"""Training goes on from given weights, under an extension, however it is sharded."""

import functools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline.config.schema import Config
from pipeline.data.sequences import step_indices
from pipeline.errors import CheckpointError, ConfigError
from pipeline.evaluate.extended import extend_decoder
from pipeline.model.decoder import Decoder
from pipeline.model.exchange import Exchange
from pipeline.model.loss import IGNORED
from pipeline.training.optimizer import learning_rate
from pipeline.training.start import Start, build_decoder
from tests.distributed.ranks import run_ranks
from tests.distributed.toy import BATCH, LENGTH, STEPS, ToySequences, toy_config
from tests.oracles import positions as oracle
from tests.oracles.attention import attention
from tests.oracles.decoder import OracleDecoder
from tests.oracles.encoding import Encoding
from tests.oracles.extensions import DISTANCE, hierarchical_row, rotary_score
from tests.positions.cases import attend, build, random_qkv, scores_of
from tests.positions.extension_cases import LONG, PAIRS, extend, reached
from tests.training.continued_worker import (
    CASES,
    SCALED_TO,
    STEPS_BEFORE,
    continued_config,
    start_of,
)

Seen = tuple[list[float], dict[str, Tensor]]
every_case = pytest.mark.parametrize("case", CASES, ids=str)


def batch_of(config: Config, step: int) -> tuple[Tensor, Tensor]:
    """Tokens and labels [B,S] of a step of the continued run."""
    data = ToySequences()
    rows = step_indices(config.seed, STEPS_BEFORE + step, BATCH, len(data))
    return torch.from_numpy(data.tokens[rows, :-1]), torch.from_numpy(data.labels[rows])


@functools.cache
def plain(position: str, extension: str) -> Seen:
    """Losses and weights of one process of plain torch."""
    config = continued_config(position, extension, processes=1, sequence_parallel=1)
    config.model.tiled_mlp = False
    decoder, losses = build_decoder(config, start_of(config)), []
    for step in range(STEPS):
        tokens, labels = batch_of(config, step)
        hidden = decoder.hidden(tokens, torch.arange(LENGTH)[None], Exchange())
        logits = F.linear(hidden, decoder.head.weight)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
        decoder.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(decoder.parameters(), config.optimizer.gradient_clip)
        rate = learning_rate(step, config.trainer.max_steps, config.optimizer)
        with torch.no_grad():
            for parameter in decoder.parameters():
                assert parameter.grad is not None
                parameter.sub_(rate * parameter.grad)
        losses.append(float(loss.detach()))
    return losses, {n: p.detach() for n, p in decoder.named_parameters()}


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Any]:
    out: Path = tmp_path_factory.mktemp("continued") / "results.pt"
    run_ranks(2, "tests.training.continued_worker", str(out))
    results: dict[Any, Any] = torch.load(out, weights_only=True)
    return results


@pytest.mark.distributed
@every_case
def test_the_engine_begins_with_the_given_weights_bit_for_bit(
    case: tuple[str, str, int, int], sharded: dict[Any, Any]
) -> None:
    expected = start_of(continued_config(*case[:2])).weights
    assert sharded[case]["first"].keys() == expected.keys()
    for name, weight in expected.items():
        assert torch.equal(sharded[case]["first"][name].view_as(weight), weight), name


@pytest.mark.distributed
@every_case
def test_sharded_training_under_an_extension_equals_plain_torch(
    case: tuple[str, str, int, int], sharded: dict[Any, Any]
) -> None:
    """Losses and weights, and of the rows of short evaluations the extension."""
    losses, weights = plain(*case[:2])
    rows = [row for row in sharded[case]["rows"] if row["kind"] == "train"]
    assert [row["loss"] for row in rows] == pytest.approx(losses, abs=1e-5)
    tests = [row for row in sharded[case]["rows"] if row["kind"] == "evaluation"]
    assert tests and {row["extension"] for row in tests} == {case[1]}
    for name, weight in weights.items():
        error = (sharded[case]["weights"][name].view_as(weight) - weight).abs().max()
        assert error <= 1e-5 * weight.abs().max(), name


class ExtendedOracle(OracleDecoder):
    """Its rotations at the distances of `oracles.extensions.DISTANCE`."""

    extension = ""

    def _attention(self, q: Tensor, k: Tensor, v: Tensor, layer: int, normed: Tensor) -> Tensor:
        own = self.encodings[layer]
        if not self.extension:
            return super()._attention(q, k, v, layer, normed)
        score = rotary_score(self.extension, own, own.settings["base"])
        return attention(q[None], k[None], v[None], score)[0]


@pytest.mark.parametrize(
    ("position", "extension"), [("rope", "interpolation"), ("learned", "hierarchical")]
)
def test_the_first_loss_is_that_of_the_extended_encoding_in_fp64(
    position: str, extension: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = continued_config(position, extension)
    settings = config.extension
    monkeypatch.setitem(DISTANCE, "interpolation", lambda own, i, j: (i - j) / settings["scale"])

    def rows(x: Tensor, own: Encoding, tokens: Tensor) -> Tensor:
        table = own.parameters["table"]
        read = [hierarchical_row(table, i, settings["alpha"]) for i in range(x.shape[1])]
        return x + math.sqrt(x.shape[-1]) * torch.stack(read)

    if position == "learned":
        monkeypatch.setitem(oracle.INPUTS, "learned", rows)
    weights, model = start_of(config).weights, config.model
    own = {key: value for key, value in config.position.items() if key != "name"}
    slow = ExtendedOracle(weights, position, own, model.heads, model.layers, SCALED_TO)
    slow.extension = extension if position == "rope" else ""
    tokens, labels = batch_of(config, 0)
    nats = [slow.nats(one, asked.clamp(min=0)) for one, asked in zip(tokens, labels, strict=True)]
    expected = torch.stack(nats)[labels != IGNORED].mean()
    assert plain(position, extension)[0][0] == pytest.approx(float(expected), abs=1e-5)


@pytest.mark.parametrize(("kind", "name"), PAIRS)
def test_every_extension_can_be_trained_under(kind: str, name: str) -> None:
    """Gradients of queries, keys, values and parameters, by the path that is taken, are those of
    the trained parameters in the dense definition."""
    from tests.oracles.attention import dense

    position = extend(build(name), name, kind)
    length = reached(position, LONG)
    found = []
    for way in (attend, lambda p, q, k, v: dense(scores_of(p, q, k), v)):
        q, k, v = (x.detach().clone().requires_grad_() for x in random_qkv(length))
        position.zero_grad()
        mixed = way(position, q, k, v)
        mixed.mul(torch.linspace(-1.0, 1.0, mixed.numel()).view_as(mixed)).sum().backward()
        read = [p.grad.clone() for p in position.parameters() if p.grad is not None]
        found.append([q.grad, k.grad, v.grad, *read])
    assert len(found[0]) == len(found[1])
    for fast, slow in zip(*found, strict=True):
        assert fast is not None and slow is not None and bool(slow.isfinite().all())
        assert (fast - slow).abs().max() <= 2e-5 * max(1.0, float(slow.abs().max()))


def test_an_extension_shares_names_and_tensors_with_the_trained_encoding() -> None:
    config = continued_config("learned", "hierarchical")
    decoder = Decoder(config)
    before = dict(decoder.named_parameters())
    extend_decoder(decoder, config)
    after = dict(decoder.named_parameters())
    assert list(after) == list(before)
    assert all(after[name] is weight for name, weight in before.items())


def test_weights_and_extensions_of_another_model_are_refused() -> None:
    other = start_of(continued_config("learned", "hierarchical"))
    with pytest.raises(CheckpointError, match="of another model: position.table differ"):
        build_decoder(continued_config("rope", "yarn"), other)
    own = continued_config("learned", "hierarchical")
    own.extension = {"name": "yarn"}
    with pytest.raises(ConfigError, match="extension=yarn does not fit position=learned"):
        build_decoder(own, other)


def test_a_fresh_decoder_has_no_extension_and_weights_of_its_seed() -> None:
    config = toy_config("rope")
    torch.manual_seed(1)
    given = Start(dict(build_decoder(config).named_parameters()), 1)
    torch.manual_seed(2)
    fresh, copied = build_decoder(config), build_decoder(config, given)
    for one, other in zip(fresh.parameters(), copied.parameters(), strict=True):
        assert torch.equal(one, other)
    assert type(fresh.position).__name__ == "RotaryPosition"
