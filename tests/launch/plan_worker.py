"""How much memory each rank really takes: `python -m tests.launch.plan_worker CONFIG.json`.

Resident memory before and, at its highest, during a whole training by `fit`, libraries, process
group and a first small training being there already. Prints a list, one number a rank.
"""

import gc
import json
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from pipeline.bench.memory import _CLEAR, _resident, _trim
from pipeline.config.schema import (
    Config,
    DataConfig,
    ModelConfig,
    OptimizerConfig,
    TrainerConfig,
)
from pipeline.data.sequences import step_indices
from pipeline.training.fit import fit


class RandomSequences:
    """Eight sequences of random tokens."""

    def __init__(self, length: int, vocab: int) -> None:
        self.length = length
        self.tokens = np.random.default_rng(7).integers(0, vocab, (8, length + 1))

    def __len__(self) -> int:
        return len(self.tokens)

    def order(self, seed: int, step: int, batch: int) -> npt.NDArray[np.int64]:
        return step_indices(seed, step, batch, len(self))

    def read(
        self, index: int, start: int, stop: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        return self.tokens[index, start:stop], self.tokens[index, start + 1 : stop + 1]

    def target_count(self, index: int) -> int:
        return self.length


def config_of(wanted: dict[str, Any]) -> Config:
    """One rank, if no more are wanted, fp32; three steps, of which the first has no moments of Adam
    yet."""
    alone = {"processes": 1, "sequence_parallel": 1, "zero_stage": 1, "batch_sequences": 1}
    trainer = {**alone, **wanted.get("trainer", {})}
    return Config(
        train_length=wanted["length"],
        eval_lengths=[wanted["length"]],
        position=wanted.get("position", Config().position),
        model=ModelConfig(**wanted["model"]),
        data=DataConfig(vocab=wanted["vocab"]),
        optimizer=OptimizerConfig(warmup_steps=1),
        trainer=TrainerConfig(
            max_steps=3, evaluate_every=0, save_every=0, accelerator="cpu", **trainer,
        ),
    )  # fmt: skip


def train(config: Config) -> None:
    sequences = RandomSequences(config.train_length, config.data.vocab)
    fit(config, sequences, None, write=lambda row: None, name="")


def growth(config: Config) -> int:
    """Bytes of resident memory that a training takes at its highest beyond those before it."""
    small = replace(config, model=replace(config.model, width=32, layers=1, heads=2, mlp_width=32))
    train(replace(small, train_length=64, eval_lengths=[64], data=DataConfig(vocab=300)))
    gc.collect()
    _trim()
    _CLEAR.write_text("5")
    before = _resident("VmRSS")
    dist.barrier()
    train(config)
    return _resident("VmHWM") - before


if __name__ == "__main__":
    torch.set_flush_denormal(True)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=5))
    grown: list[int] = [0] * dist.get_world_size()
    dist.all_gather_object(grown, growth(config_of(json.loads(Path(sys.argv[1]).read_text()))))
    if dist.get_rank() == 0:
        print(json.dumps(grown))
    # or a thread of gloo may be alive when the interpreter ends, and abort it
    dist.destroy_process_group()
