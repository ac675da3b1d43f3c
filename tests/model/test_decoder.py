"""The decoder's loss against full logits in fp64, and its initial weights."""

import pytest
import torch
import torch.nn.functional as F

from pipeline.errors import CheckpointError
from pipeline.model import loss
from pipeline.model.decoder import Decoder, load_weights, parameter_counts
from pipeline.model.loss import IGNORED, Head
from pipeline.positions import registry
from pipeline.training.module import build_decoder
from tests.distributed.toy import POSITIONS, oracle_of, scattered, toy_config


@pytest.mark.parametrize("count", [1, 7, 8, 9, 30])
def test_tiled_loss_equals_full_logits(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values and both gradients, under a scale that comes later, with ignored labels."""
    monkeypatch.setattr(loss, "TILE", 8)
    torch.manual_seed(0)
    hidden = torch.randn(count, 12, requires_grad=True)
    head = Head(torch.nn.Parameter(torch.randn(40, 12)))
    labels = torch.randint(0, 40, (count,))
    labels[::3] = IGNORED
    (head(hidden, labels).sum() * 0.37).backward()
    h, w = hidden.detach().double().requires_grad_(), head.weight.detach().double().requires_grad_()
    full = F.cross_entropy(h @ w.T, labels, ignore_index=IGNORED, reduction="sum") * 0.37
    full.backward()
    for fast, slow in ((hidden.grad, h.grad), (head.weight.grad, w.grad)):
        assert fast is not None and slow is not None
        assert (fast - slow).abs().max() <= 1e-5 * max(float(slow.abs().max()), 1.0)
    with torch.no_grad():
        values = head(hidden, labels)
    assert values.sum().item() * 0.37 == pytest.approx(full.item(), rel=1e-5)
    assert not values[::3].any()


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("position", POSITIONS)
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


def test_checkpointed_blocks_give_the_same_and_keep_less() -> None:
    config = toy_config("t5")
    config.model.layers = 8
    tokens = torch.randint(0, 50, (4, 22), generator=torch.Generator().manual_seed(4))
    ids = torch.arange(21)[None]
    kept, results = [], []
    for checkpointing in (False, True):
        config.model.activation_checkpointing = checkpointing
        decoder = build_decoder(config)
        sizes: list[int] = []

        def pack(tensor: torch.Tensor, sizes: list[int] = sizes) -> torch.Tensor:
            sizes.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss = decoder(tokens[:, :-1], tokens[:, 1:], ids).sum()
        kept.append(sum(sizes))
        loss.backward()
        results.append([loss.detach(), *(p.grad for p in decoder.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    assert kept[1] < 0.3 * kept[0]


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
