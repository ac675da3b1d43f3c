"""Stops training at the end of a step when the job was asked to, with a checkpoint of that step."""

from typing import Any

import lightning as L

from pipeline.errors import Preempted
from pipeline.parallel.stop import StopRequest
from pipeline.training.callbacks.checkpoint import Checkpoints
from pipeline.training.module import Pretraining


class Preemption(L.Callback):
    """Asks all ranks after every step; it comes after `checkpoints`, which writes."""

    def __init__(self, stop: StopRequest, checkpoints: Checkpoints) -> None:
        self.stop, self.checkpoints = stop, checkpoints

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, *unused: Any
    ) -> None:
        """Save and stop, if some rank got a signal and this micro-batch finished a step.

        The last step is left alone: what follows it is short, and the evaluation asks again.

        Raises:
            Preempted: on all ranks, after the checkpoint was written.
            StorageError: the disk refused; on all ranks.
        """
        assert isinstance(pl_module, Pretraining)
        last = pl_module.last
        if last is None or not pl_module.step_finished:
            return
        done = last.step + 1
        if done == pl_module.config.trainer.max_steps or not self.stop.agreed():
            return
        self.checkpoints.save(pl_module, trainer.is_global_zero)
        raise Preempted(f"step {done}")
