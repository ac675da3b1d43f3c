"""The step's account, the learning rate and what decays; the numbers are in tests/distributed."""

import itertools
import math

import pytest
import torch

from pipeline.errors import TrainingDiverged
from pipeline.model.decoder import Decoder
from pipeline.training.module import Pretraining
from pipeline.training.optimizer import build_optimizer, learning_rate
from pipeline.training.start import build_decoder
from pipeline.training.strategy import deepspeed_config
from tests.distributed.toy import toy_config


def pending(nats: list[float], targets: list[int]) -> Pretraining:
    config = toy_config("none")
    module = Pretraining(config, build_decoder(config))
    module._nats = [torch.tensor(x, dtype=torch.float64) for x in nats]
    module._targets = [torch.tensor(x) for x in targets]
    return module


def test_the_loss_of_a_step_is_nats_over_tokens_and_not_a_mean_of_means() -> None:
    module = pending([9.0, 10.0], [1, 9])
    result = module._finish({"step": 4, "step_tokens": 10})
    assert (result.loss, result.tokens, result.step) == (1.9, 10, 4)
    assert not module._nats and not module._targets


def test_a_step_without_labels_costs_nothing() -> None:
    assert pending([0.0], [0])._finish({"step": 0, "step_tokens": 0}).loss == 0.0


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_stops_training(bad: float) -> None:
    with pytest.raises(TrainingDiverged, match="step 8: the loss is not finite on rank 0, .*batch"):
        pending([1.0, bad], [1, 1])._finish({"step": 7, "step_tokens": 2})


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_a_gradient_that_is_not_finite_stops_training(bad: float) -> None:
    class Engine:
        def get_global_grad_norm(self) -> float:
            return bad

    class Diverged(Pretraining):
        engine = Engine()

    module = Diverged(toy_config("none"), build_decoder(toy_config("none")))
    with pytest.raises(TrainingDiverged, match="reduced gradient is not finite"):
        module.gradient_norm()


def test_a_wrong_token_count_is_noticed() -> None:
    with pytest.raises(AssertionError, match="2 target tokens, the data says 3"):
        pending([1.0], [2])._finish({"step": 0, "step_tokens": 3})


def test_the_learning_rate_rises_then_falls_to_its_least() -> None:
    optimizer = toy_config("none").optimizer
    optimizer.learning_rate, optimizer.min_learning_rate = 1.0, 0.2
    optimizer.warmup_steps = 4
    rates = [learning_rate(step, 14, optimizer) for step in range(15)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert rates[4] == 1.0 and rates[9] == pytest.approx(0.6) and rates[14] == pytest.approx(0.2)
    assert all(a > b for a, b in itertools.pairwise(rates[4:]))


def test_matrices_decay_and_gains_and_positions_do_not() -> None:
    config = toy_config("learned")
    decoder = Decoder(config)
    optimizer = build_optimizer(decoder, config.optimizer)
    names = {id(p): n for n, p in decoder.named_parameters()}
    decayed, free = ({names[id(p)] for p in g["params"]} for g in optimizer.param_groups)
    assert free == {n for n in names.values() if n.endswith(".gain") or n.startswith("position.")}
    assert decayed | free == set(names.values()) and not decayed & free
    assert [g["weight_decay"] for g in optimizer.param_groups] == [0.1, 0.0]


def test_deepspeed_is_told_nothing_of_sequence_groups() -> None:
    config = deepspeed_config(toy_config("none", zero_stage=2, accumulate=2).trainer)
    assert config["zero_optimization"] == {"stage": 2}
    assert config["communication_data_type"] == "fp32"
    assert config["train_micro_batch_size_per_gpu"] == 2
    assert not [key for key in config if "sequence" in key or "mesh" in key or "parallel" in key]
