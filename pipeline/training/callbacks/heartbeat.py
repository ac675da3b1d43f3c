"""Tells the watch for hanging ranks that training moves."""

from typing import Any

import lightning as L

from pipeline.parallel.watch import HangWatch
from pipeline.training.module import Pretraining


class Heartbeat(L.Callback):
    """Beats before every micro-batch but those of the first step, which may compile."""

    def __init__(self, watch: HangWatch) -> None:
        self.watch = watch

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """One micro-batch more."""
        assert isinstance(pl_module, Pretraining)
        if pl_module.last is not None:
            self.watch.beat(f"step {batch['step'] + 1}")
