"""One of two ranks: trains with an encoding that is dropped half way, or with groups of tokens that
tests do not have, under every way to shard."""

import os
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from pipeline.config.schema import Config
from pipeline.training import strategy
from pipeline.training.fit import fit
from pipeline.training.start import build_decoder
from tests.distributed.matrix_worker import shard_everything
from tests.distributed.toy import SgdPretraining, ToySequences, toy_config
from tests.evaluate.test_score import toy_documents

AFTER = 2
MODELS: dict[str, dict[str, Any]] = {
    "dropped": {"drop_position_after": AFTER},
    "grouped": {"attention_mask": "shifted_groups", "mask_tokens": 6},
}
# what is modified, encoding, ZeRO stage, sequence_parallel, accumulate
CASES = [
    *product(("dropped",), ("t5", "transformer_xl"), (1, 2, 3), (2,), (1, 2)),
    *product(("dropped",), ("t5", "rope"), (1, 2, 3), (1,), (1,)),
    ("grouped", "rope", 1, 1, 2),
    ("grouped", "rope", 3, 2, 1),
]


def modified_config(kind: str, position: str, **trainer: Any) -> Config:
    config = toy_config(position, **trainer)
    config.model = replace(config.model, **MODELS[kind])
    return config


def run(kind: str, position: str, stage: int, parts: int, accumulate: int) -> dict[str, Any]:
    trainer = {"zero_stage": stage, "sequence_parallel": parts, "accumulate": accumulate}
    config = modified_config(kind, position, **trainer)
    rows: list[dict[str, Any]] = []
    module = SgdPretraining(config, build_decoder(config))
    sequences, documents = ToySequences(), toy_documents()
    fitted = fit(config, sequences, documents, write=rows.append, name=kind, module=module)
    return {"rows": rows, "weights": {n: w.clone() for n, w in fitted.weights.items()}}


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
