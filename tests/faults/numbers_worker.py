"""One of two ranks: trains every case until its poisoned step, and saves what was left."""

import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from pipeline.errors import TrainingDiverged
from pipeline.training import strategy
from pipeline.training.fit import fit
from pipeline.training.start import build_decoder
from tests.distributed.matrix_worker import shard_everything
from tests.distributed.toy import ToySequences, toy_config
from tests.faults.inject import Poisoned

NAN, INF = float("nan"), float("inf")
STEP = 2
# what is poisoned, with what, on which rank; ZeRO stage, sequence_parallel, accumulate, precision
CASES: list[tuple[str, float, int, int, int, int, str]] = [
    ("loss", NAN, 0, 1, 1, 1, "fp32"),
    ("loss", INF, 1, 3, 2, 1, "fp32"),
    ("loss", NAN, 1, 2, 2, 2, "bf16"),
    ("blocks.0.attention.qkv", NAN, 1, 1, 1, 1, "fp32"),
    ("blocks.0.mlp.gate_up", INF, 0, 1, 2, 2, "bf16"),
    ("blocks.1.attention.gain", -INF, 1, 2, 1, 2, "fp32"),
    ("blocks.1.attention.out", NAN, 0, 2, 2, 1, "bf16"),
    ("blocks.0.attention.qkv", NAN, 1, 3, 2, 2, "fp32"),
    ("blocks.1.mlp.out", INF, 0, 3, 1, 1, "bf16"),
    ("head.weight", NAN, 1, 3, 1, 1, "fp32"),
    ("head.weight", 1e30, 1, 1, 1, 1, "fp32"),  # finite, but no fp32 holds its square
]


def case_name(case: tuple[Any, ...]) -> str:
    return "{} {} on {} zero{} sp{} accumulate{} {}".format(*case)


def run(case: tuple[str, float, int, int, int, int, str]) -> dict[str, Any]:
    what, value, rank, stage, parts, accumulate, precision = case
    config = toy_config(
        "rope",
        zero_stage=stage,
        sequence_parallel=parts,
        accumulate=accumulate,
        precision=precision,
    )
    config.model.tied_embeddings = False
    module = Poisoned(config, build_decoder(config), rank, STEP, what, value)
    rows: list[dict[str, Any]] = []
    said = ""
    try:
        fit(config, ToySequences(), None, write=rows.append, name=what, module=module)
    except TrainingDiverged as error:
        said = str(error)
    after = module.state()
    assert len(after) == len(module.before)
    changed = [float((a - b).abs().max()) for a, b in zip(module.before, after, strict=True)]
    return {
        "said": said,
        "changed": max(changed),
        "compared": sum(tensor.numel() for tensor in after),
        "steps": [row["step"] for row in rows],
        "batch": module.digest.hexdigest()[:12],
    }


def main() -> None:
    torch.set_num_threads(1)
    strategy.deepspeed_config = shard_everything
    dist.init_process_group("gloo")
    own = {case_name(case): run(case) for case in CASES}
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, own)
    if int(os.environ["RANK"]) == 0:
        torch.save(every, Path(sys.argv[1]))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
