"""The decoder against its fp64 oracle, what it keeps for the backward pass, its initial weights."""

import itertools

import pytest
import torch

from pipeline.errors import CheckpointError
from pipeline.model import mlp
from pipeline.model.decoder import Decoder, load_weights, parameter_counts
from pipeline.positions import registry
from pipeline.training.module import build_decoder
from tests.distributed.toy import oracle_of, scattered, toy_config


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
