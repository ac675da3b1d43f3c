"""One rank of the matrix: trains the cases of a file through the real path, saves what it saw."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from pipeline.config.schema import TrainerConfig
from pipeline.model import loss, mlp
from pipeline.training import strategy
from pipeline.training.fit import fit
from pipeline.training.start import build_decoder
from pipeline.training.strategy import deepspeed_config
from tests.distributed.matrix_cases import case_name
from tests.distributed.toy import SgdPretraining, ToySequences, toy_config
from tests.evaluate.test_score import toy_documents


class Watched(SgdPretraining):
    """Keeps the whole gradient of the first step, as DeepSpeed reduced it."""

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        from deepspeed.utils import safe_get_full_grad

        super().on_before_optimizer_step(optimizer)
        if self.step_finished and self.last is not None and self.last.step == 0:
            self.gradients = {
                name: safe_get_full_grad(p).float().cpu().clone()
                for name, p in self.decoder.named_parameters()
            }


def run(case: dict[str, Any]) -> dict[str, Any]:
    config = toy_config(case["position"], **{k: v for k, v in case.items() if k != "position"})
    rows: list[dict[str, Any]] = []
    module = Watched(config, build_decoder(config))
    fitted = fit(
        config,
        ToySequences(),
        toy_documents(),
        write=rows.append,
        name=case_name(case),
        module=module,
    )
    own = {name: p.detach().clone() for name, p in fitted.weights.items()}
    if case["zero_stage"] < 3:
        held = torch.cat([p.detach().flatten() for p in module.decoder.parameters()])
        other = [torch.empty_like(held) for _ in range(dist.get_world_size())]
        dist.all_gather(other, held)
        equal = all(bool((held == o).all()) for o in other)
    else:
        equal = True
    return {"rows": rows, "weights": own, "gradients": module.gradients, "equal": equal}


def shard_everything(trainer: TrainerConfig) -> dict[str, Any]:
    """ZeRO-3 keeps small parameters whole, and toy ones all are: make it release every one."""
    config = deepspeed_config(trainer)
    if trainer.zero_stage == 3:
        config["zero_optimization"] |= {
            "stage3_param_persistence_threshold": 0,
            "stage3_max_reuse_distance": 0,
            "stage3_max_live_parameters": 0,
            "stage3_prefetch_bucket_size": 0,
        }
    return config


def main() -> None:
    torch.set_flush_denormal(True)
    torch.set_num_threads(1)
    strategy.deepspeed_config = shard_everything
    loss.TILE = mlp.TILE = 16  # several tiles, so that recomputation under ZeRO is tested as well
    out, cases = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())
    dist.init_process_group("gloo")
    results = {case_name(case): run(case) for case in cases}
    if int(os.environ["RANK"]) == 0:
        torch.save(results, out)
    dist.barrier()
    # or a thread of gloo may be alive when the interpreter ends, and abort it
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
