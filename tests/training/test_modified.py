"""Training goes on without the encoding from the configured step on, and sees groups of tokens that
evaluations do not, however it is sharded."""

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline.data.sequences import step_indices
from pipeline.model.decoder import Decoder, load_weights
from pipeline.model.exchange import Exchange
from pipeline.model.loss import IGNORED
from pipeline.training.module import Pretraining
from pipeline.training.optimizer import learning_rate
from pipeline.training.start import build_decoder
from tests.distributed.ranks import run_ranks
from tests.distributed.toy import LENGTH, STEPS, ToySequences, oracle_of, toy_config
from tests.evaluate.test_score import toy_documents
from tests.training.modified_worker import AFTER, CASES, modified_config

Seen = tuple[list[float], list[float], dict[tuple[int, int], float], dict[str, Tensor]]


def copied(decoder: Decoder, position: str) -> Decoder:
    """Its weights in a decoder with an encoding without parameters, or with the same."""
    config = toy_config(position)
    config.model.tied_embeddings = decoder.head.weight is decoder.embedding.weight
    other = Decoder(config)
    names = {n for n, _ in other.named_parameters()}
    load_weights(other, {n: w for n, w in decoder.named_parameters() if n in names})
    return other


@functools.cache
def plain(kind: str, position: str, accumulate: int) -> Seen:
    """One process of plain torch. To drop an encoding it trains two decoders one after the other:
    the encoding's, and from the step on one that was never given an encoding. Evaluations are the
    fp64 oracle's, of all tokens."""
    trainer = {"processes": 1, "sequence_parallel": 1, "accumulate": accumulate}
    dropped = kind == "dropped"
    config = (
        toy_config(position, **trainer) if dropped else modified_config(kind, position, **trainer)
    )
    config.model.activation_checkpointing = config.model.tiled_mlp = False
    decoder, data = build_decoder(config), ToySequences()
    left: dict[str, Tensor] = {}
    losses, norms, suffixes = [], [], {}
    for step in range(STEPS):
        if dropped and step == AFTER:
            own = decoder.named_parameters()
            left = {n: w.detach() for n, w in own if n.startswith("position.")}
            decoder, config = copied(decoder, "none"), toy_config("none")
        rows = step_indices(config.seed, step, config.trainer.batch_sequences, len(data))
        tokens, labels = (torch.from_numpy(x[rows]) for x in (data.tokens[:, :-1], data.labels))
        hidden = decoder.hidden(tokens, torch.arange(LENGTH)[None], Exchange())
        logits = F.linear(hidden, decoder.head.weight)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
        decoder.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(decoder.parameters(), config.optimizer.gradient_clip)
        rate = learning_rate(step, config.trainer.max_steps, config.optimizer)
        with torch.no_grad():
            for parameter in decoder.parameters():
                assert parameter.grad is not None
                parameter.sub_(rate * parameter.grad)
        losses.append(float(loss.detach()))
        norms.append(float(norm))
        if (step + 1) % config.trainer.evaluate_every == 0:
            oracle = oracle_of(config, decoder)
            for length in config.eval_lengths:
                shown = [torch.from_numpy(t[-length - 1 :]) for t in toy_documents().tokens]
                nats = [oracle.nats(t[:-1], t[1:])[-5:] for t in shown]
                suffixes[step + 1, length] = float(torch.cat(nats).mean())
    weights = {n: p.detach() for n, p in decoder.named_parameters()}
    return losses, norms, suffixes, {**weights, **left}


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Any]:
    out: Path = tmp_path_factory.mktemp("modified") / "results.pt"
    run_ranks(2, "tests.training.modified_worker", str(out))
    results: dict[Any, Any] = torch.load(out, weights_only=True)
    return results


@pytest.mark.distributed
@pytest.mark.parametrize("case", CASES, ids=str)
def test_sharded_training_equals_plain_torch(
    case: tuple[str, str, int, int, int], sharded: dict[Any, Any]
) -> None:
    """Losses, norms (which clip), short evaluations and weights; parameters of a dropped encoding
    stay where they were."""
    losses, norms, suffixes, weights = plain(case[0], case[1], case[4])
    rows = [row for row in sharded[case]["rows"] if row["kind"] == "train"]
    for row, loss, norm in zip(rows, losses, norms, strict=True):
        assert row["loss"] == pytest.approx(loss, abs=1e-5), f"step {row['step']}"
        assert row["gradient_norm"] / norm == pytest.approx(1.0, abs=1e-4), f"step {row['step']}"
    tests = [row for row in sharded[case]["rows"] if row["kind"] == "evaluation"]
    assert {(row["step"], row["length"]) for row in tests} == suffixes.keys()
    for row in tests:
        assert row["loss"] == pytest.approx(suffixes[row["step"], row["length"]], abs=1e-5)
    assert sharded[case]["weights"].keys() == weights.keys()
    for name, weight in weights.items():
        error = (sharded[case]["weights"][name].view_as(weight) - weight).abs().max()
        assert error <= 1e-5 * weight.abs().max(), name


def test_the_encoding_is_a_function_of_the_step_alone() -> None:
    class Engine:
        class optimizer:
            param_groups: tuple[dict[str, float], ...] = ()

    class Trained(Pretraining):
        engine = Engine()

    config = modified_config("dropped", "rope")
    module = Trained(config, build_decoder(config))
    assert not module.decoder.dropped
    for step in (0, AFTER - 1, AFTER, STEPS - 1, AFTER - 1):
        module.on_train_batch_start({"step": step}, 0)
        assert module.decoder.dropped == (step >= AFTER)
