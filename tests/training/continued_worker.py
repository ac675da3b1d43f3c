"""One of two ranks: trains weights on under extensions, under every way to shard, and saves what it
began with, what it saw and what it left."""

import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from pipeline.config.schema import Config
from pipeline.positions.registry import extension_settings
from pipeline.training import strategy
from pipeline.training.fit import fit
from pipeline.training.start import Start, build_decoder
from pipeline.training.whole import whole_weights
from tests.distributed.matrix_worker import shard_everything
from tests.distributed.toy import SgdPretraining, ToySequences, scattered, toy_config
from tests.evaluate.test_score import toy_documents

SCALED_TO, STEPS_BEFORE = 7, 3
# encoding, extension, ZeRO stage, sequence_parallel
CASES = [
    ("rope", "interpolation", 1, 1),
    ("rope", "interpolation", 2, 2),
    ("rope", "yarn", 3, 2),
    ("learned", "hierarchical", 3, 2),
    ("learned", "hierarchical", 1, 1),
    ("t5", "log_n", 3, 1),
    ("rope", "rerope", 3, 2),
]


def continued_config(position: str, extension: str, **trainer: Any) -> Config:
    """Training at three times the length that the encoding is scaled to."""
    config = toy_config(position, **trainer)
    config.init_from, config.encoding_length = "origin", SCALED_TO
    config.extension = {"name": extension, **extension_settings(extension)}
    return config


def start_of(config: Config) -> Start:
    """Weights far from those of a fresh decoder."""
    own = scattered(build_decoder(config)).named_parameters()
    return Start({name: weight.detach() for name, weight in own}, STEPS_BEFORE)


class Watched(SgdPretraining):
    """Keeps the whole weights that the engine begins with."""

    def on_train_start(self) -> None:
        self.first: dict[str, Tensor] = whole_weights(self.decoder, True)


def run(position: str, extension: str, stage: int, parts: int) -> dict[str, Any]:
    config = continued_config(position, extension, zero_stage=stage, sequence_parallel=parts)
    start = start_of(config)
    rows: list[dict[str, Any]] = []
    module = Watched(config, build_decoder(config, start))
    sequences, documents = ToySequences(), toy_documents()
    fitted = fit(
        config,
        sequences,
        documents,
        write=rows.append,
        name=extension,
        module=module,
        start=start,
    )
    weights = {name: weight.clone() for name, weight in fitted.weights.items()}
    return {"rows": rows, "first": module.first, "weights": weights}


def main() -> None:
    torch.set_flush_denormal(True)
    torch.set_num_threads(1)
    strategy.deepspeed_config = shard_everything
    dist.init_process_group("gloo")
    results = {case: run(*case) for case in CASES}
    if int(os.environ["RANK"]) == 0:
        torch.save(results, Path(sys.argv[1]))
    dist.barrier()
    # or a thread of gloo may be alive when the interpreter ends, and abort it
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
