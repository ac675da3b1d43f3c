"""The decoder against its fp64 oracle, what it keeps for the backward pass, its initial weights."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pipeline.errors import CheckpointError
from pipeline.evaluate.score import Scorer
from pipeline.evaluate.windows import Window
from pipeline.model import mlp
from pipeline.model.decoder import Decoder, load_weights, parameter_counts
from pipeline.model.exchange import Exchange
from pipeline.model.plan import as_tested
from pipeline.parallel.mesh import Mesh
from pipeline.positions import registry
from pipeline.training.start import build_decoder
from tests.distributed.toy import oracle_of, scattered, toy_config
from tests.oracles.decoder import OracleDecoder


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("position", registry.names())
def test_loss_equals_an_fp64_recomputation(position: str, tied: bool) -> None:
    """The whole decoder, written a second time in fp64; weights far from their start."""
    config = toy_config(position)
    config.model.tied_embeddings = tied
    decoder = scattered(Decoder(config))
    tokens = torch.randint(0, 50, (2, 22), generator=torch.Generator().manual_seed(4))
    nats = decoder(tokens[:, :-1], tokens[:, 1:], torch.arange(21)[None])
    oracle = oracle_of(config, decoder)
    expected = torch.stack([oracle.nats(row[:-1], row[1:]) for row in tokens])
    assert (nats - expected).abs().max() < 1e-5
    assert float(expected.std()) > 0.3, "the weights must matter"


def kept_storages(decoder: Decoder, rows: int = 4) -> tuple[torch.Tensor, dict[int, int]]:
    """The loss of `rows` sequences of 21 tokens, and what its graph keeps besides parameters:
    bytes of every storage once, by address."""
    tokens = torch.randint(0, 50, (rows, 22), generator=torch.Generator().manual_seed(4))
    own = {p.untyped_storage().data_ptr() for p in decoder.parameters()}
    kept: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor.detach())  # held, so that no address is used twice
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = decoder(tokens[:, :-1], tokens[:, 1:], torch.arange(21)[None]).sum()
    storages = [tensor.untyped_storage() for tensor in kept]
    return loss, {s.data_ptr(): s.nbytes() for s in storages if s.data_ptr() not in own}


@pytest.mark.parametrize("position", ["rope", "t5"])
def test_recomputation_gives_the_same_and_keeps_less(
    position: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpointed blocks, bit for bit; a tiled feed-forward part, to the rounding of sums."""
    monkeypatch.setattr(mlp, "TILE", 16)
    config = toy_config(position)
    config.model.layers = 8
    kept, results = {}, {}
    for switches in itertools.product((False, True), repeat=2):
        config.model.activation_checkpointing, config.model.tiled_mlp = switches
        decoder = build_decoder(config)
        loss, storages = kept_storages(decoder)
        loss.backward()
        kept[switches] = sum(storages.values())
        gradients = [p.grad for p in decoder.parameters() if p.grad is not None]
        results[switches] = [loss.detach(), *gradients]
    for (checkpointing, tiled), result in results.items():
        plain = results[False, tiled]
        assert all(torch.equal(a, b) for a, b in zip(result, plain, strict=True))
        for a, b in zip(results[checkpointing, False], result, strict=True):
            assert (a - b).abs().max() <= 1e-5 * b.abs().max()
    hidden_layers = 4 * (4 * 21) * config.model.layers * 2 * config.model.mlp_width
    assert kept[False, False] - kept[False, True] == hidden_layers
    assert kept[True, False] == kept[True, True] < 0.3 * kept[False, False]


def test_a_rope_block_keeps_what_its_backward_pass_needs_and_no_more() -> None:
    """Per token: two inputs, q, k, v and the attention output of width D each, gate and up of the
    feed-forward part, one fp32 logsumexp per head; and of all rows together, the angles."""
    config, rows = toy_config("rope"), 3
    model = config.model
    kept = []
    for model.layers in (1, 2):
        kept.append(sum(kept_storages(build_decoder(config), rows)[1].values()))
    floats = 6 * model.width + 2 * model.mlp_width + model.heads
    angles = 2 * model.head_width // 2
    assert kept[1] - kept[0] == 4 * 21 * (rows * floats + angles)


def test_all_other_weights_start_equal_under_every_encoding() -> None:
    starts = [dict(build_decoder(toy_config(p)).named_parameters()) for p in registry.names()]
    shared = {n: w for n, w in starts[0].items() if not n.startswith("position.")}
    for name, weight in shared.items():
        assert all(torch.equal(weight, other[name]) for other in starts[1:]), name


def test_initial_weights_depend_on_the_seed_alone() -> None:
    config = toy_config("t5")
    first = build_decoder(config).state_dict()
    torch.rand(1000)
    second = build_decoder(config).state_dict()
    config.seed += 1
    other = build_decoder(config).state_dict()
    assert all(torch.equal(first[n], second[n]) for n in first)
    assert not torch.equal(first["embedding.weight"], other["embedding.weight"])


def test_tied_table_counts_once() -> None:
    tied, free = toy_config("learned"), toy_config("learned")
    free.model.tied_embeddings = False
    table = 50 * 32
    assert parameter_counts(Decoder(free))[0] - parameter_counts(Decoder(tied))[0] == table
    assert parameter_counts(Decoder(tied))[1] == 21 * 32


def test_weights_of_another_model_are_refused() -> None:
    decoder, other = Decoder(toy_config("rope")), Decoder(toy_config("learned"))
    with pytest.raises(CheckpointError, match=r"position\.table"):
        load_weights(decoder, dict(other.named_parameters()))


class Skipping(OracleDecoder):
    """Every n-th layer has the scores of no encoding."""

    def __init__(self, every: int, *own: Any) -> None:
        super().__init__(*own)
        self.every, self.trained = every, self.name

    def _attention(self, q: Tensor, k: Tensor, v: Tensor, layer: int, normed: Tensor) -> Tensor:
        self.name = "none" if (layer + 1) % self.every == 0 else self.trained
        mixed = super()._attention(q, k, v, layer, normed)
        self.name = self.trained
        return mixed


@pytest.mark.parametrize("name", ["rope", "transformer_xl", "shaw"])
def test_every_nth_layer_goes_without_position(name: str) -> None:
    config = toy_config(name)
    config.model.layers, config.model.no_position_every = 4, 3
    decoder = scattered(Decoder(config))
    assert [decoder.position_of(layer) is decoder.bare for layer in range(4)] == [
        False, False, True, False,
    ]  # fmt: skip
    tokens = torch.randint(0, 50, (22,), generator=torch.Generator().manual_seed(4))
    nats = decoder(tokens[None, :-1], tokens[None, 1:], torch.arange(21)[None])[0]
    settings = {k: v for k, v in config.position.items() if k != "name"}
    own = (dict(decoder.named_parameters()), name, settings, 4, 4, config.train_length)
    every, skipping = OracleDecoder(*own), Skipping(3, *own)
    assert (nats - skipping.nats(tokens[:-1], tokens[1:])).abs().max() < 1e-5
    assert (nats - every.nats(tokens[:-1], tokens[1:])).abs().max() > 1e-2


def test_a_dropped_encoding_is_no_encoding_and_before_that_it_is_itself() -> None:
    config, plain = toy_config("rope"), toy_config("rope")
    config.model.drop_position_after = 3
    decoder, kept, bare = scattered(Decoder(config)), Decoder(plain), Decoder(toy_config("none"))
    for other in (kept, bare):
        load_weights(other, dict(decoder.named_parameters()))
    tokens = torch.randint(0, 50, (2, 22), generator=torch.Generator().manual_seed(4))
    shown = (tokens[:, :-1], tokens[:, 1:], torch.arange(21)[None])
    with torch.no_grad():
        for step, same in ((0, kept), (2, kept), (3, bare), (100, bare), (1, kept)):
            decoder.at_step(step)
            assert torch.equal(decoder(*shown), same(*shown)), f"step {step}"
        assert not torch.equal(kept(*shown), bare(*shown))
        tested = Decoder(as_tested(config))
        load_weights(tested, dict(decoder.named_parameters()))
        assert torch.equal(tested(*shown), bare(*shown))
    assert config.model.drop_position_after == 3


def test_evaluations_test_without_the_groups_of_training_and_leave_training_as_it_was() -> None:
    config = toy_config("rope")
    config.model.attention_mask, config.model.mask_tokens = "shifted_groups", 4
    decoder, plain = scattered(Decoder(config)), Decoder(toy_config("rope"))
    tested = Decoder(as_tested(config))
    documents = (torch.randint(0, 50, (60,), generator=torch.Generator().manual_seed(4)).numpy(),)
    windows = [Window(0, 0, 40, 40)]
    losses = []
    for other in (plain, tested):
        load_weights(other, dict(decoder.named_parameters()))
    for own in (decoder, tested, plain):
        scorer = Scorer(own, Mesh(), Exchange(), torch.device("cpu"), 64)
        losses.append(scorer.score(windows, documents))
        assert own.training
    assert np.array_equal(losses[0], losses[2]) and np.array_equal(losses[1], losses[2])
    tokens = torch.from_numpy(documents[0])[None, :21]
    shown = (tokens, tokens, torch.arange(21)[None])
    assert (decoder(*shown) - plain(*shown)).abs().max() > 1e-2
    assert torch.equal(tested(*shown), plain(*shown))
