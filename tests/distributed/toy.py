"""A model and data small enough to train in every combination, with uneven label counts."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pipeline.config.schema import (
    Config,
    DataConfig,
    EvaluateConfig,
    ModelConfig,
    OptimizerConfig,
    TrainerConfig,
)
from pipeline.data.sequences import step_indices
from pipeline.model.decoder import Decoder
from pipeline.model.loss import IGNORED
from pipeline.positions.registry import default_settings
from pipeline.training.module import Pretraining
from tests.oracles.decoder import OracleDecoder

LENGTH, VOCAB, STEPS, BATCH = 21, 50, 5, 4
POSITIONS = ("none", "learned", "sinusoidal", "rope", "alibi", "t5")


class ToySequences:
    """Ten random sequences of an odd length; of each, another number of labels is ignored, and of
    one all but the last, which one shard of two never sees."""

    length = LENGTH

    def __init__(self) -> None:
        draw = np.random.default_rng(7)
        self.tokens = draw.integers(0, VOCAB, (10, LENGTH + 1))
        self.labels = self.tokens[:, 1:].copy()
        for i, row in enumerate(self.labels):
            row[draw.permutation(LENGTH)[: (5 * i) % 17]] = IGNORED
        self.labels[3, :-1] = IGNORED

    def __len__(self) -> int:
        return len(self.tokens)

    def order(self, seed: int, step: int, batch: int) -> npt.NDArray[np.int64]:
        return step_indices(seed, step, batch, len(self))

    def read(
        self, index: int, start: int, stop: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        return self.tokens[index, start:stop], self.labels[index, start:stop]

    def target_count(self, index: int) -> int:
        return int((self.labels[index] != IGNORED).sum())


def toy_config(position: str, **trainer: Any) -> Config:
    """Width 32, 4 heads, 2 layers; clipping always bites.

    Where gradients accumulate, embeddings are untied and blocks are checkpointed, and wherever the
    sequence is whole, the feed-forward part is tiled: the matrix has both of each.
    """
    accumulates = trainer.get("accumulate", 1) > 1
    return Config(
        seed=5,
        train_length=LENGTH,
        eval_lengths=[8, LENGTH, 2 * LENGTH],
        position={"name": position, **default_settings(position)},
        model=ModelConfig(
            width=32,
            layers=2,
            heads=4,
            mlp_width=48,
            tied_embeddings=not accumulates,
            activation_checkpointing=accumulates,
            tiled_mlp=trainer.get("sequence_parallel", 2) == 1,
        ),
        data=DataConfig(vocab=VOCAB),
        evaluate=EvaluateConfig(suffix_tokens=5),
        optimizer=OptimizerConfig(
            learning_rate=0.5, min_learning_rate=0.1, warmup_steps=1, gradient_clip=0.5
        ),
        trainer=TrainerConfig(
            max_steps=STEPS, batch_sequences=BATCH, evaluate_every=2, log_every=1, **trainer
        ),
    )


def scattered(decoder: Decoder) -> Decoder:
    """Every weight moved away from its start, gains from one and position tables included."""
    draw = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=draw), alpha=0.2)
    return decoder


def oracle_of(config: Config, decoder: Decoder) -> OracleDecoder:
    """The fp64 oracle with the weights of `decoder`."""
    weights = dict(decoder.named_parameters())
    settings = {k: v for k, v in config.position.items() if k != "name"}
    name, model = config.position["name"], config.model
    return OracleDecoder(weights, name, settings, model.heads, model.layers, config.train_length)


class SgdPretraining(Pretraining):
    """Plain SGD: AdamW turns rounding noise of near-zero gradients into whole steps."""

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.decoder.parameters(), lr=1.0)
