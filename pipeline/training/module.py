"""The LightningModule: an exact token mean under any accumulation, world and sequence groups.

loss of a rank = (its nats) / (target tokens of the whole optimizer step, all ranks) x world, so
that DeepSpeed's mean over the world is sum of nats / sum of tokens: no mean ever crosses a
micro-batch, a rank or a shard.
"""

import math
from dataclasses import dataclass
from typing import Any

import lightning as L
import torch
from torch import Tensor

from pipeline.config.schema import Config
from pipeline.errors import TrainingDiverged
from pipeline.model.decoder import Decoder
from pipeline.model.loss import IGNORED
from pipeline.parallel.reduce import world_sum
from pipeline.parallel.ring import exchange_for
from pipeline.positions.position_ids import unpack_ids
from pipeline.training.finite import GradientWatch, diverged_words
from pipeline.training.optimizer import build_optimizer, learning_rate
from pipeline.training.whole import whole_weights


@dataclass
class StepResult:
    """One finished optimizer step; `loss` in nats per token and `tokens` are global."""

    step: int
    loss: float
    tokens: int
    learning_rate: float


class Pretraining(L.LightningModule):
    """Next-token pretraining of one decoder. `last` is the step finished last."""

    def __init__(self, config: Config, decoder: Decoder) -> None:
        super().__init__()
        self.config, self.decoder = config, decoder
        self.last: StepResult | None = None
        self.weights: dict[str, Tensor] = {}
        self._nats: list[Tensor] = []
        self._targets: list[Tensor] = []
        self._batches: list[dict[str, Any]] = []
        self._gradients = GradientWatch(())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW; the learning rate is set at every step, see `on_train_batch_start`."""
        return build_optimizer(self.decoder, self.config.optimizer)

    def setup(self, stage: str) -> None:
        """The exchange of this rank's sequence group."""
        self.exchange = exchange_for(self.mesh)

    @property
    def mesh(self) -> Any:
        """This rank's place, from the strategy."""
        return self.trainer.strategy.mesh  # type: ignore[attr-defined]

    def on_train_start(self) -> None:
        """Watch the gradients, now that DeepSpeed has given the parameters their final form."""
        self._gradients = GradientWatch(self.decoder.named_parameters())

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Rate and encoding are functions of the step, so no scheduler state can be lost."""
        self.decoder.at_step(batch["step"])
        rate = learning_rate(batch["step"], self.config.trainer.max_steps, self.config.optimizer)
        for group in self.engine.optimizer.param_groups:
            group["lr"] = rate

    @property
    def engine(self) -> Any:
        """The DeepSpeed engine."""
        return self.trainer.strategy.model

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """The loss of one micro-batch on this rank."""
        labels: Tensor = batch["labels"]
        facts = self.decoder.position_ids.facts
        ids = unpack_ids(batch["ids"], facts.real)
        nats = self.decoder(
            batch["tokens"], labels, ids, self.exchange, consecutive=facts.consecutive
        ).sum()
        self._nats.append(nats.detach().double())
        self._targets.append((labels != IGNORED).sum())
        self._batches.append(batch)
        # Lightning divides by the accumulation count on its own: undo that
        scale = self.mesh.world * self.config.trainer.accumulate
        return nats / max(batch["step_tokens"], 1) * scale

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        """Account for the step between its last backward pass and the update of the weights.

        Raises:
            TrainingDiverged: the loss or a gradient is not finite on some rank; on all ranks.
        """
        if len(self._nats) == self.config.trainer.accumulate:
            self.last = self._finish(self._batches[-1])

    def _finish(self, batch: dict[str, Any]) -> StepResult:
        own = torch.stack(self._nats).sum()
        counted = [own, torch.stack(self._targets).sum(), self._gradients.trouble()]
        nats, labels, trouble = world_sum(counted, self.device)
        targets = int(labels)
        step, expected = batch["step"], batch["step_tokens"]
        if targets != expected:
            raise AssertionError(f"step {step}: {targets} target tokens, the data says {expected}")
        loss = nats / targets if targets else 0.0
        if trouble or not math.isfinite(loss):
            culprit = self._gradients.culprit() if own.isfinite() else "loss"
            read = [one["tokens"] for one in self._batches]
            raise TrainingDiverged(diverged_words(step + 1, culprit, read))
        self._nats, self._targets, self._batches = [], [], []
        self._gradients.clear()
        rate = learning_rate(step, self.config.trainer.max_steps, self.config.optimizer)
        return StepResult(step, loss, targets, rate)

    @property
    def step_finished(self) -> bool:
        """Whether the micro-batch just run was the last of its optimizer step."""
        return self.last is not None and not self._nats

    def gradient_norm(self) -> float:
        """Global norm of the last step's gradient before clipping, as the engine computed it.

        Raises:
            TrainingDiverged: it is not finite, for which the engine says -1 as well; on all ranks,
                since the norm is global. Of finite gradients only the reduction can make such.
        """
        norm = float(self.engine.get_global_grad_norm())
        if not 0.0 <= norm < math.inf:
            step = self.last.step + 1 if self.last else 0
            raise TrainingDiverged(
                f"step {step}: the norm of the reduced gradient is not finite ({norm}), and the "
                "weights were changed by it; training stops and no checkpoint of it is written"
            )
        return norm

    def on_train_end(self) -> None:
        """Gather the weights while the engine and, on GPUs, its device still hold them."""
        self._gradients.remove()
        self.weights = whole_weights(self.decoder, self.trainer.is_global_zero)
