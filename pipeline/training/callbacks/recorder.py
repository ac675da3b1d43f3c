"""Shows every step and writes a train row every `log_every` steps."""

import time
from collections.abc import Callable
from typing import Any

import lightning as L

from pipeline.config.schema import TrainerConfig
from pipeline.record.progress import progress_bar
from pipeline.training.module import Pretraining

Write = Callable[[dict[str, Any]], None]


class Recorder(L.Callback):
    """Counts tokens and seconds of training alone; rank 0 also writes and shows them."""

    def __init__(self, trainer: TrainerConfig, write: Write, name: str) -> None:
        self.settings, self.write, self.name = trainer, write, name
        self.tokens, self.paused = 0, 0.0
        self._mark, self._mark_tokens = 0.0, 0

    @property
    def seconds(self) -> float:
        """Seconds since training began, without pauses (evaluations)."""
        return time.monotonic() - self._started - self.paused

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Start the clock and the bar."""
        self.bar = progress_bar(
            self.settings.max_steps, self.name, "step", shown=trainer.is_global_zero
        )
        self._started = time.monotonic()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, *unused: Any
    ) -> None:
        """Account for the step, if this micro-batch finished one."""
        assert isinstance(pl_module, Pretraining)
        last = pl_module.last
        if last is None or not pl_module.step_finished:
            return
        self.tokens += last.tokens
        norm = pl_module.gradient_norm()
        done = last.step + 1
        if done % self.settings.log_every == 0 or done == self.settings.max_steps:
            seconds = self.seconds
            speed = (self.tokens - self._mark_tokens) / max(seconds - self._mark, 1e-9)
            self._mark, self._mark_tokens = seconds, self.tokens
            self.bar.set_postfix_str(f"loss {last.loss:.3f}, {speed:,.0f} tokens/s", refresh=False)
            row = {
                "kind": "train",
                "step": done,
                "tokens": self.tokens,
                "loss": last.loss,
                "learning_rate": last.learning_rate,
                "gradient_norm": norm,
                "tokens_per_second": speed,
                "seconds": seconds,
            }
            if trainer.is_global_zero:
                self.write(row)
        self.bar.update(1)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Close the bar; `seconds` stays what it was."""
        self.train_seconds = self.seconds
        self.bar.close()
