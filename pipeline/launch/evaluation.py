"""Tests the newest export of a run: every row of the suite, written as soon as it is measured."""

import hashlib
import json
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from pipeline.checkpoint.export import latest_export, load_export
from pipeline.config.schema import Config
from pipeline.data.prepare import Prepared
from pipeline.errors import Preempted
from pipeline.evaluate.documents import documents_for
from pipeline.evaluate.extended import extend_decoder, tested_path
from pipeline.evaluate.score import Scorer
from pipeline.evaluate.steps import Row, Step, Values
from pipeline.evaluate.suite import plan, run_suite
from pipeline.evaluate.tasks import task_steps
from pipeline.model.decoder import Decoder, load_weights
from pipeline.model.flops import step_flops
from pipeline.model.plan import as_tested
from pipeline.parallel.mesh import build_mesh
from pipeline.parallel.ring import exchange_for
from pipeline.parallel.stop import StopRequest
from pipeline.parallel.watch import HangWatch
from pipeline.record.environment import code_sha256
from pipeline.record.evaluation import EvaluationLog
from pipeline.record.folder import RunFolder
from pipeline.record.progress import progress_bar
from pipeline.training.speed import Speedometer


def evaluate(
    config: Config,
    folder: RunFolder,
    prepared: Prepared,
    device: torch.device,
    mirror: Callable[[Row], None],
    stop: StopRequest | None = None,
) -> float:
    """Run the suite on the newest export of `folder`; returns the seconds it took.

    Weights come from the fp32 export, so the numbers do not depend on how training was sharded.
    Under an extension the rows go to a folder of their own, and those of the run stay. Rows that an
    evaluation broken off has left are kept, if nothing that decides them has changed since.
    `mirror` gets the others.

    Raises:
        Preempted: `stop` asked to, after some row; on all ranks.
    """
    began = time.monotonic()
    decoder, manifest = trained_decoder(config, folder)
    extend_decoder(decoder, config)
    decoder.position_ids.read_vocabulary(prepared.tokenizer.pieces)
    decoder.to(device)
    mesh = build_mesh(config.trainer.sequence_parallel, config.trainer.ring)
    steps = suite_of(config, prepared)
    log, known = None, {}
    if mesh.rank == 0:
        identity = _identity(config, manifest, prepared, device)
        log = EvaluationLog(folder.evaluation_of(config.extension), identity)
        known = log.known
    known = _told(known)
    title = f"{folder.path.name} evaluation"
    bar = EvaluationBar(config, device, steps, title, known, shown=mesh.rank == 0)
    watch = HangWatch(config.trainer.hang_timeout, "evaluate")

    def progress(tokens: int) -> None:
        watch.beat("the evaluation")
        bar.update(tokens, steps[len(keys)])

    batch, facts, keys = config.evaluate.batch_tokens, row_facts(manifest, prepared), list[str]()
    scorer = Scorer(decoder, mesh, exchange_for(mesh), device, batch, progress)
    try:
        _go_on(stop, len(known))
        for row, values in run_suite(config, scorer, steps, known):
            keys.append(row["key"])
            if row["key"] in known:
                continue
            row = {**row, **facts, "attention_path": _path_of(row, config, device)}
            if log is not None:
                log.write(row, values)
            mirror(row)
            if len(keys) < len(steps):
                _go_on(stop, len(keys))
    finally:
        watch.stop()
        bar.close()
    if log is not None:
        log.finish(keys)
    return time.monotonic() - began


class EvaluationBar:
    """Tokens of all rows, and speed and memory of those measured now; all ranks make one together.

    What is `known` was done before.
    """

    def __init__(
        self,
        config: Config,
        device: torch.device,
        steps: Sequence[Step],
        title: str,
        known: Container[str],
        *,
        shown: bool,
    ) -> None:
        # the weights of an export are fp32, whatever they were trained in
        self.config, self.known, self.meter = config, known, Speedometer(device, torch.float32)
        total = sum(step.tokens for step in steps)
        done = sum(step.tokens for step in steps if step.key in known)
        self.bar = progress_bar(total, title, "token", done=done, shown=shown)
        self.flops, self.began = 0.0, time.monotonic()

    def update(self, tokens: int, step: Step) -> None:
        """So many more tokens of a step were shown; a forward is a third of training on them."""
        if step.key in self.known:
            return
        self.bar.update(tokens)
        whole = step_flops(self.config.model, self.config.data.vocab, step.length)
        self.flops += tokens * whole / (3 * step.length)
        told = self.meter.words(self.flops / (time.monotonic() - self.began))
        self.bar.set_postfix_str(told, refresh=False)

    def close(self) -> None:
        """End the bar."""
        self.bar.close()


def _path_of(row: Row, config: Config, device: torch.device) -> str | None:
    """How the attention of a row was computed; None where it is not defined."""
    return tested_path(as_tested(config), device.type, row["length"]) if row["defined"] else None


def _go_on(stop: StopRequest | None, rows: int) -> None:
    """Return if nobody asked to stop."""
    if stop is not None and stop.agreed():
        raise Preempted(f"{rows} rows of the evaluation")


def suite_of(config: Config, prepared: Prepared) -> list[Step]:
    """All steps of an evaluation, in the order they are run."""
    documents = documents_for(config, prepared, config.evaluate.split, config.evaluate.documents)
    return [*plan(config, documents), *task_steps(config, prepared)]


def row_facts(manifest: dict[str, Any], prepared: Prepared) -> Row:
    """What every row of an evaluation says about the weights, the text and the code."""
    return {
        "weights_sha256": manifest["sha256"],
        "step": manifest["step"],
        "tokens": manifest["tokens"],
        "corpus_sha256": prepared.corpus_sha256,
        "tokenizer_sha256": prepared.tokenizer.sha256,
        "code_sha256": code_sha256(),
    }


def trained_decoder(config: Config, folder: RunFolder) -> tuple[Decoder, dict[str, Any]]:
    """The decoder of the newest export of a run folder, and the manifest of this.

    Raises:
        CheckpointError: there is none, it is damaged, or config.yaml is not what it was trained by.
    """
    checkpoint = latest_export(folder.path / "checkpoints")
    weights, manifest = load_export(checkpoint)
    folder.check_checkpoint(checkpoint, manifest["config_hash"])
    decoder = Decoder(as_tested(config))
    load_weights(decoder, weights)
    return decoder, manifest


def drop(row: Row) -> None:
    """Rows go nowhere on ranks that do not write."""


def _identity(
    config: Config, manifest: dict[str, Any], prepared: Prepared, device: torch.device
) -> str:
    """Equal for evaluations that measure the same."""
    decisive = [
        asdict(config),  # with the values that came from the environment
        row_facts(manifest, prepared),
        torch.__version__,
        np.__version__,  # draws the examples of tasks
        device.type,
    ]
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


def _told(known: dict[str, tuple[Row, Values]]) -> dict[str, tuple[Row, Values]]:
    """What rank 0 knows, on all ranks: they must leave out the same steps."""
    told = [known]
    if dist.is_initialized():
        dist.broadcast_object_list(told, src=0)
    return told[0]
