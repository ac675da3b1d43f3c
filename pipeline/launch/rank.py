"""What one rank does: `python -m pipeline.launch.rank train|evaluate RUN_FOLDER PREPARED ...`.

Started by `pipeline.launch.ranks`, never by hand. Rank 0 alone writes.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from pipeline.checkpoint.export import latest_export, load_export, save_export
from pipeline.config.compose import load
from pipeline.config.redact import config_hash
from pipeline.config.schema import Config
from pipeline.data.prepare import Prepared, open_prepared
from pipeline.data.sequences import Sequences
from pipeline.errors import CheckpointError, FarsightError
from pipeline.evaluate.documents import documents_for
from pipeline.evaluate.extended import extend_decoder, tested_path
from pipeline.evaluate.score import Scorer
from pipeline.evaluate.suite import plan, run_suite
from pipeline.launch.checks import check_devices, check_model, data_key, prepare_all
from pipeline.launch.ranks import (
    adopt_slurm_variables,
    check_world,
    threads_per_rank,
)
from pipeline.model.decoder import Decoder, load_weights
from pipeline.model.plan import as_tested, attention_path
from pipeline.parallel.mesh import build_mesh
from pipeline.parallel.parent import die_with_parent
from pipeline.parallel.reduce import world_max
from pipeline.parallel.ring import exchange_for
from pipeline.record.folder import RunFolder
from pipeline.record.metrics import MetricsLog
from pipeline.record.progress import progress_bar
from pipeline.record.wandb_mirror import WandbMirror
from pipeline.training.fit import Fitted, device_type, fit, on_gpu


def set_up(config: Config) -> torch.device:
    """Device, threads and process group of this rank.

    Flushing denormals must come before the first parallel operation, or only the calling thread
    flushes: decaying biases make attention 4 to 5 times slower without it.
    """
    torch.set_flush_denormal(True)
    torch.set_num_threads(threads_per_rank(config))
    local = int(os.environ["LOCAL_RANK"])
    if on_gpu(config):
        torch.cuda.set_device(local)
        device = torch.device("cuda", local)
    else:
        os.environ["DS_ACCELERATOR"] = "cpu"
        device = torch.device("cpu")
    # rank 0 may prepare a large corpus while the others wait
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=timedelta(hours=1))
    return device


def peak_memory(device: torch.device) -> int:
    """Most bytes any rank held so far: GPU memory allocated, or resident memory on a CPU."""
    if device.type == "cuda":
        own = torch.cuda.max_memory_allocated(device)
    else:
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return int(world_max(own, device))


def evaluate(
    config: Config,
    folder: RunFolder,
    prepared: Prepared,
    device: torch.device,
    mirror: Callable[[dict[str, Any]], None],
) -> float:
    """Run every length protocol on the newest export of `folder`; returns the seconds it took.

    Under an extension the rows go to a folder of their own, and those of the run stay.
    Weights come from the fp32 export, so the numbers do not depend on how training was sharded.
    """
    began = time.monotonic()
    checkpoint = latest_export(folder.path / "checkpoints")
    weights, manifest = load_export(checkpoint)
    if manifest["config_hash"] != config_hash(load(folder.config, [])[0]):
        raise CheckpointError(
            f"{checkpoint} was trained under another configuration than {folder.config} says now; "
            "restore that file"
        )
    decoder = Decoder(as_tested(config))
    load_weights(decoder, weights)
    extend_decoder(decoder, config)
    decoder.position_ids.read_vocabulary(prepared.tokenizer.pieces)
    decoder.to(device)
    mesh = build_mesh(config.trainer.sequence_parallel, config.trainer.ring)
    documents = documents_for(config, prepared, config.evaluate.split, config.evaluate.documents)
    total = sum(w.length for step in plan(config, documents) for w in step.windows)
    bar = progress_bar(total, f"{folder.path.name} evaluation", "token", shown=mesh.rank == 0)
    scorer = Scorer(
        decoder, mesh, exchange_for(mesh), device, config.evaluate.batch_tokens, bar.update
    )
    rows, kept = [], {}
    trained = {"step": manifest["step"], "tokens": manifest["tokens"]}
    for row, nats in run_suite(config, scorer, documents):
        path = None
        if row["defined"]:
            path = tested_path(as_tested(config), device.type, row["length"])
        rows.append({**row, **trained, "attention_path": path})
        mirror(rows[-1])
        if nats is not None:
            kept[f"{row['protocol']}-{row['length']}"] = nats.astype(np.float32)
    bar.close()
    if mesh.rank == 0:
        _write_evaluation(folder.evaluation_of(config.extension), rows, kept)
    return time.monotonic() - began


def _write_evaluation(path: Path, rows: list[dict[str, Any]], kept: Mapping[str, Any]) -> None:
    """Replace the rows at `path` and the per-target nats beside, each whole or not at all."""
    path.parent.mkdir(exist_ok=True)
    partial = path.with_name("rows.jsonl.partial")
    partial.unlink(missing_ok=True)
    log = MetricsLog(partial)
    for row in rows:
        log.write(row)
    nats = path.with_name("nats.npz")
    with nats.with_name("nats.npz.partial").open("wb") as file:
        np.savez_compressed(file, **kept)
    os.replace(nats.with_name("nats.npz.partial"), nats)
    os.replace(partial, path)


def train(config: Config, folder: RunFolder, prepared: Prepared, device: torch.device) -> None:
    """Train, export, evaluate, and mark the run folder finished."""
    rank = dist.get_rank()
    mirror = WandbMirror(config, folder.path, rank == 0)
    log = MetricsLog(folder.metrics) if rank == 0 else None

    def write(row: dict[str, Any]) -> None:
        if log is not None:
            log.write(row)
            mirror.log(row)

    short = None
    if config.trainer.evaluate_every:
        short = documents_for(config, prepared, "validation", config.evaluate.short_documents)
    sequences = Sequences(prepared.split("train"), config.train_length)
    failed = 1
    try:
        fitted = fit(
            config,
            sequences,
            short,
            write=write,
            name=folder.path.name,
            vocabulary=prepared.tokenizer.pieces,
        )
        memory = peak_memory(device)
        if rank == 0:
            save_export(
                folder.path / "checkpoints",
                fitted.weights,
                step=config.trainer.max_steps,
                tokens=fitted.tokens,
                config_hash=config_hash(config),
            )
        dist.barrier()
        seconds = evaluate(config, folder, prepared, device, mirror.log if rank == 0 else _drop)
        if rank == 0:
            _write_summary(config, folder, prepared, fitted, memory, seconds)
            folder.mark_finished()
        failed = 0
    finally:
        mirror.finish(exit_code=failed)


def _drop(row: dict[str, Any]) -> None:
    """Rows go nowhere on ranks that do not write."""


def _write_summary(
    config: Config,
    folder: RunFolder,
    prepared: Prepared,
    fitted: Fitted,
    memory: int,
    evaluate_seconds: float,
) -> None:
    summary = {
        "position": config.position["name"],
        "seed": config.seed,
        "train_length": config.train_length,
        "parameters": fitted.parameters,
        "position_parameters": fitted.position_parameters,
        "attention_path": attention_path(config, device_type(config), config.train_length),
        "tokens": fitted.tokens,
        "tokens_per_second": fitted.tokens / max(fitted.train_seconds, 1e-9),
        "peak_memory_bytes": memory,
        "train_seconds": fitted.train_seconds,
        "evaluate_seconds": evaluate_seconds,
        "final_loss": fitted.final_loss,
        "corpus_sha256": prepared.corpus_sha256,
        "tokenizer_sha256": prepared.tokenizer.sha256,
    }
    folder.summary.write_text(json.dumps(summary, indent=1) + "\n")


def train_as_rank(config: Config, name: str) -> int:
    """One run, in a process that srun or torchrun started as one rank of it.

    Rank 0 prepares the data and makes the run folder; the others wait for its word.

    Returns:
        The exit code.
    """
    adopt_slurm_variables()
    check_world(config)
    check_devices(config)
    check_model(config)
    device = set_up(config)
    told: list[Any] = [None]
    if dist.get_rank() == 0:
        try:
            data = prepare_all([config])[data_key(config.data)]
            told = [(RunFolder.create(config, name=name).path, data.folder)]
        except FarsightError as error:
            told = [error]
    dist.broadcast_object_list(told, src=0)
    if isinstance(told[0], FarsightError):
        if dist.get_rank() == 0:
            raise told[0]
        return told[0].exit_code
    folder = RunFolder(told[0][0])
    if not folder.finished:
        train(config, folder, open_prepared(told[0][1]), device)
    dist.destroy_process_group()
    return 0


def main(argv: Sequence[str]) -> int:
    """Run one job as one rank; the exit code says how it ended."""
    job, run, prepared_folder, *overrides = argv
    die_with_parent()
    try:
        folder = RunFolder.open(Path(run))
        config = load(folder.config, overrides, trains=job == "train")[0]
        device = set_up(config)
        prepared = open_prepared(Path(prepared_folder))
        if job == "train":
            train(config, folder, prepared, device)
        else:
            evaluate(config, folder, prepared, device, _drop)
        dist.destroy_process_group()
    except FarsightError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
