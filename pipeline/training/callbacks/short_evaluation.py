"""Every `evaluate_every` steps: the suffix loss of a few documents at every length."""

import time
from typing import Any

import lightning as L

from pipeline.evaluate.documents import Documents
from pipeline.evaluate.score import Scorer
from pipeline.evaluate.suite import suffix_plan
from pipeline.parallel.watch import HangWatch
from pipeline.training.callbacks.recorder import Recorder, Write
from pipeline.training.module import Pretraining


class ShortEvaluation(L.Callback):
    """Makes extrapolation visible over train tokens; all ranks take part, rank 0 writes."""

    def __init__(
        self, documents: Documents, recorder: Recorder, write: Write, watch: HangWatch
    ) -> None:
        self.documents, self.recorder, self.write = documents, recorder, write
        self.watch = watch

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, *unused: Any
    ) -> None:
        """Evaluate the live weights; the training clock stands meanwhile."""
        assert isinstance(pl_module, Pretraining)
        last, config = pl_module.last, pl_module.config
        if last is None or not pl_module.step_finished:
            return
        done = last.step + 1
        if done % config.trainer.evaluate_every:
            return
        began = time.monotonic()
        scorer = Scorer(
            pl_module.decoder,
            pl_module.mesh,
            pl_module.exchange,
            pl_module.device,
            config.evaluate.batch_tokens,
            lambda tokens: self.watch.beat(f"the evaluation after step {done}"),
        )
        for step in suffix_plan(config, self.documents):
            row, _ = step.measure(config, scorer)
            if step.length == config.train_length and row["defined"]:
                self.recorder.validated = {done: row["loss"]}
            if trainer.is_global_zero:
                where = {
                    "kind": "evaluation",
                    "step": done,
                    "tokens": self.recorder.tokens,
                }
                self.write({**where, **row})
        self.recorder.paused += time.monotonic() - began
