"""Every `save_every` steps a checkpoint; and at the start, what training goes on from."""

import time
from typing import Any

import lightning as L

from pipeline.checkpoint.state import Keeper, TrainingState
from pipeline.parallel.agree import told_by_first
from pipeline.parallel.watch import HangWatch
from pipeline.training.callbacks.recorder import Recorder
from pipeline.training.module import Pretraining
from pipeline.training.whole import restore, state_of


class Checkpoints(L.Callback):
    """All ranks gather, rank 0 writes; the training clock stands meanwhile.

    It comes last of the callbacks: rows of a step are written before the checkpoint of that step.
    Without a `keeper` nothing is saved.
    """

    def __init__(
        self,
        recorder: Recorder,
        keeper: Keeper | None,
        resumed: TrainingState | None,
        watch: HangWatch,
    ) -> None:
        self.recorder, self.keeper, self.resumed = recorder, keeper, resumed
        self.watch, self._saved = watch, 0

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Fill the partitions that DeepSpeed has just made."""
        assert isinstance(pl_module, Pretraining)
        if self.resumed is not None:
            restore(pl_module.engine, pl_module.decoder, self.resumed)
            # its files may be deleted from now on
            self.resumed = None

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, *unused: Any
    ) -> None:
        """Save, if this micro-batch finished a step that is due.

        Raises:
            StorageError: the disk refused; on all ranks.
        """
        assert isinstance(pl_module, Pretraining)
        settings, last = pl_module.config.trainer, pl_module.last
        if last is None or not pl_module.step_finished:
            return
        done = last.step + 1
        # after the last step comes the export
        if settings.save_every and done % settings.save_every == 0 and done != settings.max_steps:
            self.save(pl_module, trainer.is_global_zero)

    def save(self, module: Pretraining, writes: bool) -> None:
        """A checkpoint of the step just finished, if there is none yet; every rank calls it.

        Raises:
            StorageError: the disk refused; on all ranks.
        """
        keeper, last = self.keeper, module.last
        if keeper is None or last is None or self._saved == last.step + 1:
            return
        self._saved = last.step + 1
        progress = {
            "step": self._saved,
            "tokens": self.recorder.tokens,
            "seconds": self.recorder.seconds,
            "losses": self.recorder.spikes.losses,
            "validation_loss": self.recorder.validated.get(self._saved),
        }
        began = time.monotonic()
        state = state_of(module.engine, module.decoder, progress, keep=writes)

        with self.watch.rest():
            told_by_first(lambda: keeper.save(state).name)
        self.recorder.paused += time.monotonic() - began
