"""The LightningModule: an exact token mean under any accumulation, world and sequence groups.

loss of a rank = (its nats) / (target tokens of the whole optimizer step, all ranks) x world, so
that DeepSpeed's mean over the world is sum of nats / sum of tokens: no mean ever crosses a
micro-batch, a rank or a shard.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import lightning as L
import torch
from torch import Tensor

from pipeline.config.schema import Config
from pipeline.errors import TrainingDiverged
from pipeline.evaluate.extended import extend_decoder
from pipeline.model.decoder import Decoder, load_weights
from pipeline.model.loss import IGNORED
from pipeline.parallel.reduce import world_sum
from pipeline.parallel.ring import exchange_for
from pipeline.positions.position_ids import unpack_ids
from pipeline.training.optimizer import build_optimizer, learning_rate


@dataclass
class StepResult:
    """One finished optimizer step; `loss` in nats per token and `tokens` are global."""

    step: int
    loss: float
    tokens: int
    learning_rate: float


@dataclass(frozen=True)
class Start:
    """What training goes on from: weights by name, and the optimizer steps that made them.

    The order of the data goes on after these steps too, so that a run that continues another of the
    same seed, lengths and batch does not read the same text again.
    """

    weights: Mapping[str, Tensor]
    steps: int


def build_decoder(config: Config, start: Start | None = None) -> Decoder:
    """A fresh decoder, whose weights depend on the seed alone, and on no other random state; or one
    with the weights of `start`, under the configured extension.

    Raises:
        CheckpointError: the weights are of another model.
        ConfigError: the extension does not fit.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        decoder = Decoder(config)
    if start is not None:
        load_weights(decoder, start.weights)
        extend_decoder(decoder, config)
    return decoder


def whole_weights(decoder: Decoder, keep: bool) -> dict[str, Tensor]:
    """The fp32 master weights of the decoder, gathered from all ranks, on CPU.

    Every rank takes part; only those with `keep` get them.
    """
    from deepspeed.utils import safe_get_full_fp32_param

    weights = {}
    for name, parameter in decoder.named_parameters():
        whole = safe_get_full_fp32_param(parameter)
        if whole is None:
            raise AssertionError(f"{name}: DeepSpeed keeps no fp32 weight of this parameter")
        if keep:
            weights[name] = whole.detach().float().cpu().clone().view(whole.shape)
    return weights


class Pretraining(L.LightningModule):
    """Next-token pretraining of one decoder. `last` is the step finished last."""

    def __init__(self, config: Config, decoder: Decoder) -> None:
        super().__init__()
        self.config, self.decoder = config, decoder
        self.last: StepResult | None = None
        self.weights: dict[str, Tensor] = {}
        self._nats: list[Tensor] = []
        self._targets: list[Tensor] = []

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
        """The loss of one micro-batch on this rank.

        Raises:
            TrainingDiverged: the global loss is not finite; on all ranks, before any update.
        """
        labels: Tensor = batch["labels"]
        facts = self.decoder.position_ids.facts
        ids = unpack_ids(batch["ids"], facts.real)
        nats = self.decoder(
            batch["tokens"], labels, ids, self.exchange, consecutive=facts.consecutive
        ).sum()
        self._nats.append(nats.detach().double())
        self._targets.append((labels != IGNORED).sum())
        accumulate = self.config.trainer.accumulate
        if len(self._nats) == accumulate:
            self.last = self._finish(batch)
        # Lightning divides by the accumulation count on its own: undo that
        return nats / max(batch["step_tokens"], 1) * (self.mesh.world * accumulate)

    def _finish(self, batch: dict[str, Any]) -> StepResult:
        counted = [torch.stack(self._nats).sum(), torch.stack(self._targets).sum()]
        nats, labels = world_sum(counted, self.device)
        targets = int(labels)
        self._nats, self._targets = [], []
        step, expected = batch["step"], batch["step_tokens"]
        if targets != expected:
            raise AssertionError(f"step {step}: {targets} target tokens, the data says {expected}")
        loss = nats / targets if targets else 0.0
        if not math.isfinite(loss):
            raise TrainingDiverged(
                f"step {step}: the loss is {loss}; no weight was changed by this step. Lower "
                "optimizer.learning_rate or raise optimizer.warmup_steps"
            )
        rate = learning_rate(step, self.config.trainer.max_steps, self.config.optimizer)
        return StepResult(step, loss, targets, rate)

    @property
    def step_finished(self) -> bool:
        """Whether the micro-batch just run was the last of its optimizer step."""
        return self.last is not None and not self._nats

    def gradient_norm(self) -> float:
        """Global norm of the last step's gradient before clipping, as the engine computed it.

        Raises:
            TrainingDiverged: it is not finite; on all ranks, since the norm is global.
        """
        norm = float(self.engine.get_global_grad_norm())
        if not math.isfinite(norm):
            step = self.last.step if self.last else 0
            raise TrainingDiverged(
                f"step {step}: the gradient norm is {norm}; training stops and no checkpoint is "
                "written. Lower optimizer.learning_rate or raise optimizer.warmup_steps"
            )
        return norm

    def on_train_end(self) -> None:
        """Gather the weights while the engine and, on GPUs, its device still hold them."""
        self.weights = whole_weights(self.decoder, self.trainer.is_global_zero)
