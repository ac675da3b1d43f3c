"""Lightning's DeepSpeed strategy, on CPU and GPU alike, with our own sequence groups."""

import logging
from typing import Any

import torch
from lightning.fabric.utilities.seed import reset_seed
from lightning.pytorch.strategies import DDPStrategy, DeepSpeedStrategy
from torch import Tensor
from torch.optim import Optimizer

from pipeline.config.schema import TrainerConfig
from pipeline.parallel.mesh import Mesh, build_mesh


def deepspeed_config(trainer: TrainerConfig) -> dict[str, Any]:
    """What DeepSpeed is told. Nothing of sequence parallelism: see `pipeline.parallel.mesh`.

    Lightning adds gradient_accumulation_steps, gradient_clipping and the precision.
    """
    config: dict[str, Any] = {
        "zero_optimization": {"stage": trainer.zero_stage},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "communication_data_type": "fp32",
        "train_micro_batch_size_per_gpu": trainer.batch_sequences
        // (trainer.data_parallel * trainer.accumulate),
    }
    if trainer.precision == "bf16":
        # or micro-batches would be summed in bf16
        config["data_types"] = {"grad_accum_dtype": "fp32"}
    return config


class SequenceParallelStrategy(DeepSpeedStrategy):
    """DeepSpeedStrategy whose ranks form a `Mesh` of sequence groups, available as `mesh`."""

    strategy_name = "farsight"

    def __init__(self, trainer: TrainerConfig) -> None:
        super().__init__(config=deepspeed_config(trainer), logging_level=logging.ERROR)
        # imported late: the first import settles the accelerator, see `launch.rank.set_up`
        import deepspeed
        from deepspeed.accelerator import get_accelerator

        self.parallel, self.mesh = (trainer.sequence_parallel, trainer.ring), Mesh()
        if get_accelerator().device_name() == "cpu":
            # init_distributed would compile a C++ operation that only inference uses
            deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False

    def setup_environment(self) -> None:
        """DeepSpeedStrategy's own refuses CPUs, which DeepSpeed itself serves."""
        DDPStrategy.setup_environment(self)

    @property
    def root_device(self) -> torch.device:
        """The rank's device; DeepSpeed compares the index, which a CPU device lacks."""
        device = super().root_device
        return torch.device("cpu", 0) if device.type == "cpu" else device

    def setup_distributed(self) -> None:
        """Process group, then sequence groups."""
        if self.root_device.type == "cuda":
            super().setup_distributed()
        else:  # DeepSpeedStrategy's own validates a GPU index
            reset_seed()
            self.set_world_ranks()
            self._init_deepspeed_distributed()
        self.mesh = build_mesh(*self.parallel)

    def backward(
        self, closure_loss: Tensor, optimizer: Optimizer | None, *args: Any, **kwargs: Any
    ) -> Tensor:
        """Lightning has already divided by the accumulation count; DeepSpeed must not again
        (Lightning-AI/pytorch-lightning 6170)."""
        return super().backward(closure_loss, optimizer, *args, scale_wrt_gas=False, **kwargs)
