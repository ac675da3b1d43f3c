"""Shows every step, writes a train row every `log_every` steps, and a row for every spike."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import lightning as L

from pipeline.config.schema import TrainerConfig
from pipeline.model.flops import step_flops
from pipeline.model.plan import PRECISIONS
from pipeline.record.progress import progress_bar
from pipeline.training.module import Pretraining, StepResult
from pipeline.training.speed import Speedometer, peak_memory
from pipeline.training.spikes import SpikeDetector

Write = Callable[[dict[str, Any]], None]


class Recorder(L.Callback):
    """Counts tokens and seconds of training alone; rank 0 also writes and shows them.

    `validated` is the loss of the last short evaluation at the train length, by its step.
    """

    def __init__(self, trainer: TrainerConfig, write: Write, name: str) -> None:
        self.settings, self.write, self.name = trainer, write, name
        self.tokens, self.paused = 0, 0.0
        self._mark, self._mark_tokens = 0.0, 0
        self._before, self._done = 0.0, 0
        self.spikes = SpikeDetector()
        self.validated: dict[int, float] = {}

    def go_on(self, step: int, tokens: int, seconds: float, losses: Sequence[float]) -> None:
        """Count on from what earlier processes of this training have counted."""
        self._done, self.tokens, self._before = step, tokens, seconds
        self._mark, self._mark_tokens = seconds, tokens
        self.spikes = SpikeDetector(losses)

    @property
    def seconds(self) -> float:
        """Seconds of training so far, without pauses (evaluations and checkpoints)."""
        return self._before + time.monotonic() - self._started - self.paused

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Measure the peak, start the clock and the bar."""
        assert isinstance(pl_module, Pretraining)
        config = pl_module.config
        self._meter = Speedometer(pl_module.device, PRECISIONS[self.settings.precision])
        per_sequence = step_flops(config.model, config.data.vocab, config.train_length)
        self._flops_per_token = per_sequence / config.train_length
        shown, total = trainer.is_global_zero, self.settings.max_steps
        self.bar = progress_bar(total, self.name, "step", done=self._done, shown=shown)
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
        self._mind_spike(last, trainer.is_global_zero)
        if done % self.settings.log_every == 0 or done == self.settings.max_steps:
            seconds = self.seconds
            speed = (self.tokens - self._mark_tokens) / max(seconds - self._mark, 1e-9)
            self._mark, self._mark_tokens = seconds, self.tokens
            flops = speed * self._flops_per_token
            told = f"loss {last.loss:.3f}, {speed:,.0f} tokens/s, {self._meter.words(flops)}"
            self.bar.set_postfix_str(told, refresh=False)
            row = {
                "kind": "train",
                "step": done,
                "tokens": self.tokens,
                "loss": last.loss,
                "learning_rate": last.learning_rate,
                "gradient_norm": norm,
                "tokens_per_second": speed,
                "mfu": self._meter.mfu(flops),
                "peak_memory_bytes": peak_memory(pl_module.device),
                "seconds": seconds,
            }
            if trainer.is_global_zero:
                self.write(row)
        self.bar.update(1)

    def _mind_spike(self, last: StepResult, writes: bool) -> None:
        found = self.spikes.see(last.loss)
        if found is None or not writes:
            return
        mean, deviation = found
        row = {"kind": "spike", "step": last.step + 1, "tokens": self.tokens, "loss": last.loss}
        self.write({**row, "mean": mean, "deviation": deviation})

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Close the bar; `seconds` stays what it was."""
        self.train_seconds = self.seconds
        self.bar.close()
