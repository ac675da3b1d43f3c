"""Trains one configuration on this rank, and hands back whole fp32 weights."""

from collections.abc import Sequence
from dataclasses import dataclass

import lightning as L
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from torch import Tensor

from pipeline.checkpoint.state import Keeper, TrainingState
from pipeline.config.schema import Config
from pipeline.data.module import TrainingData, TrainingSequences
from pipeline.evaluate.documents import Documents
from pipeline.model.decoder import load_weights, parameter_counts
from pipeline.parallel.device import device_type
from pipeline.parallel.stop import StopRequest
from pipeline.parallel.watch import HangWatch
from pipeline.training.callbacks.checkpoint import Checkpoints
from pipeline.training.callbacks.heartbeat import Heartbeat
from pipeline.training.callbacks.preemption import Preemption
from pipeline.training.callbacks.recorder import Recorder, Write
from pipeline.training.callbacks.short_evaluation import ShortEvaluation
from pipeline.training.module import Pretraining
from pipeline.training.quiet import quiet_libraries
from pipeline.training.start import Start, build_decoder
from pipeline.training.strategy import SequenceParallelStrategy


@dataclass
class Fitted:
    """What training leaves. `weights` are whole fp32 CPU tensors on rank 0, empty elsewhere;
    `validation_loss` is None where no short evaluation came with the last step."""

    weights: dict[str, Tensor]
    tokens: int
    train_seconds: float
    final_loss: float
    parameters: int
    position_parameters: int
    validation_loss: float | None


def fit(
    config: Config,
    sequences: TrainingSequences,
    documents: Documents | None,
    *,
    write: Write,
    name: str,
    module: Pretraining | None = None,
    vocabulary: Sequence[bytes] = (),
    start: Start | None = None,
    keeper: Keeper | None = None,
    resumed: TrainingState | None = None,
    stop: StopRequest | None = None,
) -> Fitted:
    """Train `max_steps` optimizer steps, or what is left of them; every rank of the world calls it.

    Args:
        config: the validated configuration.
        sequences: what to train on.
        documents: what the short evaluations use; None = no short evaluation.
        write: receives metric rows, on rank 0 only.
        name: shown beside the progress bar.
        module: the LightningModule; None = one that begins at `start`.
        vocabulary: the text of every token, for position ids that depend on it.
        start: what training begins with; None = fresh weights.
        keeper: what writes checkpoints, on rank 0; None = there are none.
        resumed: what an earlier process of this training has left; None = nothing.
        stop: what may ask to stop after any step; None = nobody does.

    Raises:
        TrainingDiverged: the loss or a gradient is not finite; on all ranks, before the update.
        Preempted: `stop` asked to; on all ranks, with a checkpoint of the last step.
    """
    quiet_libraries()
    module, settings = module or Pretraining(config, build_decoder(config, start)), config.trainer
    module.decoder.position_ids.read_vocabulary(vocabulary)
    parameters, first = parameter_counts(module.decoder), 0
    recorder = Recorder(settings, write, name)
    if resumed is not None:
        # before DeepSpeed makes low-precision weights of them
        load_weights(module.decoder, resumed.weights)
        first = resumed.step
        recorder.go_on(resumed.step, resumed.tokens, resumed.seconds, resumed.losses)
    watch = HangWatch(settings.hang_timeout, "train")
    callbacks: list[L.Callback] = [Heartbeat(watch), recorder]
    if documents is not None and settings.evaluate_every:
        callbacks.append(ShortEvaluation(documents, recorder, write, watch))
    callbacks.append(saving := Checkpoints(recorder, keeper, resumed, watch))
    if stop is not None:
        callbacks.append(Preemption(stop, saving))
    done_before = start.steps if start is not None else 0
    data = TrainingData(sequences, config, module.decoder.position_ids, done_before, first)
    try:
        _trainer(config, callbacks, first).fit(module, datamodule=data)
    finally:
        watch.stop()
    assert module.last is not None
    done = recorder.tokens, recorder.train_seconds, module.last.loss
    return Fitted(module.weights, *done, *parameters, recorder.validated.get(settings.max_steps))


def _trainer(config: Config, callbacks: list[L.Callback], first: int) -> L.Trainer:
    """One that runs the steps from `first` on, and does by itself nothing else."""
    settings = config.trainer
    trainer = L.Trainer(
        accelerator=device_type(config),
        devices=settings.processes,
        num_nodes=settings.nodes,
        strategy=SequenceParallelStrategy(settings),
        plugins=[TorchElasticEnvironment()],
        precision="bf16-mixed" if settings.precision == "bf16" else "32-true",
        max_steps=settings.max_steps - first,
        accumulate_grad_batches=settings.accumulate,
        gradient_clip_val=config.optimizer.gradient_clip,
        use_distributed_sampler=False,
        callbacks=callbacks,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    # its SIGTERM handler is a collective, which hangs where another rank is in another one
    trainer._signal_connector.register_signal_handlers = lambda: None  # type: ignore[method-assign]
    return trainer
