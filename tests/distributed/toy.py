"""A model and data small enough to train in every combination, with uneven label counts."""

from itertools import product
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
# in fewer combinations of the matrix
FEWER = ("fire", "shaw", "transformer_xl", "rerope")


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


def cases() -> list[dict[str, Any]]:
    """Every combination of the two-rank matrix; of some encodings one accumulation of each."""
    chosen = [
        *product(POSITIONS, (1, 2, 3), (1, 2), (1, 2)),
        *((p, stage, n, 1 + (stage + n) % 2) for p, stage, n in product(FEWER, (1, 2, 3), (1, 2))),
        # read in the backward pass of attention: sharded, with and without checkpointing
        *(("fire", 3, n, 2 - (3 + n) % 2) for n in (1, 2)),
    ]
    return [
        {"position": position, "zero_stage": stage, "sequence_parallel": parts, "accumulate": k}
        for position, stage, parts, k in chosen
    ]


def ring_cases() -> list[dict[str, Any]]:
    """One sequence on a ring of two: what is by distance, by position, by content, or in parts.

    fire not under accumulation: of the gradient of its c, a sum of all pairs that cancels to a
    hundredth, fp32 leaves 1.2e-5 there, and 1e-5 is the limit.
    """
    shared = {"sequence_parallel": 2, "ring": 2}
    every = product(("learned", "rope", "t5", *FEWER), ((1, 1), (2, 2), (3, 1)))
    chosen = [case for case in every if case != ("fire", (2, 2))]
    return [
        {"position": position, "zero_stage": stage, "accumulate": k, **shared}
        for position, (stage, k) in chosen
    ]


def bf16_cases() -> list[dict[str, Any]]:
    """bf16 on two ranks, sharded weights or not. Not fire: the gradients of its few numbers are
    sums of all pairs that cancel, of which bf16 leaves about one digit here."""
    shared = {"sequence_parallel": 2, "accumulate": 2, "precision": "bf16"}
    fewer = (name for name in FEWER if name != "fire")
    chosen = [*product(POSITIONS, (1, 2, 3)), *product(fewer, (3,))]
    return [{"position": position, "zero_stage": stage, **shared} for position, stage in chosen]


def case_name(case: dict[str, Any]) -> str:
    name = "{position}-zero{zero_stage}-sp{sequence_parallel}-accumulate{accumulate}".format(**case)
    return name + ("-ring" if "ring" in case else "") + ("-bf16" if "precision" in case else "")


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
