"""One of two ranks: trains and tests a model of known losses on labels that lie unevenly."""

import math
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from pipeline.config.schema import Config
from pipeline.evaluate.documents import Documents
from pipeline.evaluate.score import Scorer
from pipeline.evaluate.suite import LengthStep
from pipeline.evaluate.windows import Window
from pipeline.model.decoder import Decoder
from pipeline.model.loss import IGNORED
from pipeline.parallel.mesh import build_mesh
from pipeline.parallel.ring import exchange_for
from pipeline.training import strategy
from pipeline.training.fit import fit
from pipeline.training.start import build_decoder
from tests.distributed.matrix_worker import Watched, shard_everything
from tests.distributed.toy import VOCAB, toy_config

LENGTH, HALF = 20, 10
CHEAP, DEAR = 0, 1
# what it costs in nats that a token comes again, of each of these two
COSTS = {CHEAP: 2.0, DEAR: 10.0}

Labels = list[dict[int, int]]
ONE = {0: CHEAP}
NINE = {HALF + place: DEAR for place in range(9)}
NONE: dict[int, int] = {}


@dataclass(frozen=True)
class Case:
    """The labels of each sequence of the first step, by place: the token that comes again there.

    Under two sequence groups neighbours in a micro-batch lie on different ranks; under one, the
    first ten places of every sequence lie on rank 0.
    """

    name: str
    sequences: Labels
    sequence_parallel: int
    zero_stage: int = 1
    accumulate: int = 1


CASES = (
    Case("one on a rank, nine on the other", [ONE, NINE], 1),
    Case("one on a shard, nine on the other", [ONE | NINE], 2, zero_stage=2),
    Case("one in a micro-batch, nine in the other", [ONE, NINE], 2, 3, accumulate=2),
    Case("nothing on a rank", [NONE, ONE | NINE], 1, zero_stage=3),
    Case("nothing on a shard", [NINE, {LENGTH - 1: CHEAP}], 2),
    Case("nothing in a micro-batch", [NONE, NONE, NINE, ONE], 1, 2, accumulate=2),
    Case("one or nothing on a rank and in a micro-batch", [ONE, NONE, NONE, NINE], 1, 1, 2),
)


class UnevenSequences:
    """The sequences of a case in the first step, and ones without any label in all others."""

    length = LENGTH

    def __init__(self, sequences: Labels) -> None:
        self.count = len(sequences)
        self.labels = np.full((2 * self.count, LENGTH), IGNORED, dtype=np.int64)
        for row, labels in zip(self.labels, sequences, strict=False):
            for place, token in labels.items():
                row[place] = token
        # each label is the token before it; where there is none, any token
        self.tokens = np.where(self.labels == IGNORED, 7, self.labels)

    def order(self, seed: int, step: int, batch: int) -> npt.NDArray[np.int64]:
        return np.arange(batch) + (self.count if step else 0)

    def read(
        self, index: int, start: int, stop: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        return self.tokens[index, start:stop], self.labels[index, start:stop]

    def target_count(self, index: int) -> int:
        return int((self.labels[index] != IGNORED).sum())


def known_decoder(config: Config) -> Decoder:
    """After token t, the same costs COSTS[t] nats: blocks add nothing, the stream is the token's
    own direction, and one row of the head reads it."""
    decoder, width = build_decoder(config), config.model.width
    with torch.no_grad():
        for block in decoder.blocks:
            block.attention.out.zero_()  # type: ignore[union-attr, operator]
            block.mlp.out.zero_()  # type: ignore[union-attr, operator]
        decoder.head.weight.zero_()
        for token, nats in COSTS.items():
            # so large that the norm's epsilon adds nothing
            decoder.embedding.weight[token] = 1000.0 * torch.eye(width)[token]
            odds = (VOCAB - 1) / math.expm1(nats)
            decoder.head.weight[token, token] = math.log(odds) / math.sqrt(width)
    return decoder


def config_of(case: Case) -> Config:
    config = toy_config(
        "none",
        sequence_parallel=case.sequence_parallel,
        zero_stage=case.zero_stage,
        accumulate=case.accumulate,
    )
    config.model.tied_embeddings = False
    config.train_length = LENGTH
    config.optimizer.gradient_clip, config.optimizer.warmup_steps = 0.0, 0
    config.trainer.max_steps, config.trainer.batch_sequences = 2, len(case.sequences)
    return config


def run(case: Case) -> dict[str, Any]:
    config = config_of(case)
    module = Watched(config, known_decoder(config))
    before = module.decoder.head.weight.detach().clone()
    rows: list[dict[str, Any]] = []
    data = UnevenSequences(case.sequences)
    fitted = fit(config, data, None, write=rows.append, name="", module=module)
    after = fitted.weights.get("head.weight", before)
    return {
        "rows": rows,
        "gradient": module.gradients["head.weight"].view_as(before),
        "moved": (after - before) / -config.optimizer.learning_rate,
        "finite": all(bool(weight.isfinite().all()) for weight in fitted.weights.values()),
    }


def tested_loss(sequence_parallel: int) -> float:
    """The loss of a text whose first window scores one target, and its second nine."""
    config = config_of(Case("", [ONE], sequence_parallel))
    mesh = build_mesh(sequence_parallel)
    texts = (np.full(2, CHEAP), np.full(10, DEAR))
    windows = [Window(0, 0, 1, 1), Window(1, 0, 9, 9)]
    documents = Documents(texts, 9, np.ones(VOCAB, dtype=np.int64), "validation")
    scorer = Scorer(
        known_decoder(config), mesh, exchange_for(mesh), torch.device("cpu"), batch_tokens=9
    )
    row, _ = LengthStep("non-overlapping", 9, None, windows, documents).measure(config, scorer)
    return float(row["loss"])


def main() -> None:
    torch.set_num_threads(1)
    strategy.deepspeed_config = shard_everything
    dist.init_process_group("gloo")
    trained = {case.name: run(case) for case in CASES}
    tested = {parts: tested_loss(parts) for parts in (1, 2)}
    if int(os.environ["RANK"]) == 0:
        torch.save({"trained": trained, "tested": tested}, Path(sys.argv[1]))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
