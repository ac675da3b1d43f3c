"""What one rank does: `python -m pipeline.launch.rank train|evaluate RUN_FOLDER PREPARED ...`.

Started by `pipeline.launch.ranks`, never by hand. Rank 0 alone writes.
"""

import json
import os
import signal
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from pipeline.checkpoint.export import latest_export, save_export
from pipeline.checkpoint.state import keep_only
from pipeline.config.compose import load
from pipeline.config.durable import write_file
from pipeline.config.schema import Config
from pipeline.data.mixture import training_sequences
from pipeline.data.prepare import Prepared, open_prepared
from pipeline.errors import FarsightError, Preempted, disk_refused
from pipeline.evaluate.documents import documents_for
from pipeline.evaluate.extended import tested_path
from pipeline.launch.continued import read_start
from pipeline.launch.evaluation import drop, evaluate
from pipeline.launch.ranks import threads_per_rank
from pipeline.launch.results_mirror import mirror_results
from pipeline.launch.resuming import resume
from pipeline.parallel.device import device_type, on_gpu
from pipeline.parallel.reduce import world_max
from pipeline.parallel.stop import StopRequest
from pipeline.record.folder import RunFolder
from pipeline.record.metrics import MetricsLog, read_rows
from pipeline.record.wandb_mirror import WandbMirror
from pipeline.training.fit import Fitted, fit
from pipeline.training.speed import peak_memory


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


def train(
    config: Config,
    folder: RunFolder,
    prepared: Prepared,
    device: torch.device,
    stop: StopRequest | None = None,
) -> None:
    """Train, export, evaluate, and mark the run folder finished.

    A run that is trained, but whose evaluation was broken off, goes on with that.

    Raises:
        Preempted: `stop` asked to; on all ranks, and what was done so far is kept.
    """
    rank = dist.get_rank()
    mirror = WandbMirror(config, folder.path, rank == 0)
    trained = folder.trained.is_file()
    dist.barrier()  # before rank 0 can make that file
    failed = 1
    try:
        if not trained:
            _fit_and_export(config, folder, prepared, device, mirror, stop)
        dist.barrier()
        send = mirror.log if rank == 0 else drop
        seconds = evaluate(config, folder, prepared, device, send, stop)
        if rank == 0:
            keep_only(latest_export(folder.checkpoints), config.trainer.keep_best)
            summary = folder.trained_facts()
            summary["evaluate_seconds"] = None if trained else seconds
            write_file(folder.summary, (json.dumps(summary, indent=1) + "\n").encode())
            folder.mark_finished()
            mirror_results(mirror, folder, summary)
        failed = 0
    except Preempted as asked:
        failed = asked.exit_code
        raise
    finally:
        mirror.finish(exit_code=failed)


def _fit_and_export(
    config: Config,
    folder: RunFolder,
    prepared: Prepared,
    device: torch.device,
    mirror: WandbMirror,
    stop: StopRequest | None,
) -> None:
    """Train what is left to train; leave the export, and beside it what is known of all of it."""
    start, lineage = read_start(config)
    origin = lineage[-1]["weights_sha256"] if lineage else None
    resumed = resume(config, folder, prepared, device, origin)
    log = MetricsLog(folder.metrics) if dist.get_rank() == 0 else None
    for row in read_rows(folder.metrics) if mirror.sends else ():
        mirror.log(row)  # what an earlier start could not send

    def write(row: dict[str, Any]) -> None:
        if log is not None:
            log.write(row)
            mirror.log(row)

    short = None
    if config.trainer.evaluate_every:
        short = documents_for(config, prepared, "validation", config.evaluate.short_documents)
    fitted = fit(
        config,
        training_sequences(config, prepared),
        short,
        write=write,
        name=folder.path.name,
        vocabulary=prepared.tokenizer.pieces,
        start=start,
        keeper=resumed.keeper,
        resumed=resumed.state,
        stop=stop,
    )
    memory = int(world_max(peak_memory(device), device))
    if log is not None:
        resumed.keeper.prune()
        save_export(
            folder.checkpoints,
            fitted.weights,
            step=config.trainer.max_steps,
            tokens=fitted.tokens,
            config_hash=folder.identity,
            validation_loss=fitted.validation_loss,
        )
        facts = {
            **_training_facts(config, prepared, fitted, memory),
            "training_sha256": resumed.codes,
            "loss_spikes": sum(row["kind"] == "spike" for row in read_rows(folder.metrics)),
            "lineage": lineage,
        }
        write_file(folder.trained, (json.dumps(facts, indent=1) + "\n").encode())


def _training_facts(
    config: Config, prepared: Prepared, fitted: Fitted, memory: int
) -> dict[str, Any]:
    return {
        "position": config.position["name"],
        "seed": config.seed,
        "train_length": config.train_length,
        "parameters": fitted.parameters,
        "position_parameters": fitted.position_parameters,
        "attention_path": tested_path(config, device_type(config), config.train_length),
        "tokens": fitted.tokens,
        "tokens_per_second": fitted.tokens / max(fitted.train_seconds, 1e-9),
        "peak_memory_bytes": memory,
        "train_seconds": fitted.train_seconds,
        "final_loss": fitted.final_loss,
        "corpus_sha256": prepared.corpus_sha256,
        "tokenizer_sha256": prepared.tokenizer.sha256,
    }


def main(argv: Sequence[str]) -> int:
    """Run one job as one rank; the exit code says how it ended.

    An evaluation is given as a JSON list of settings; several are run one after another. So are the
    settings of a training that are not those in its run folder.
    """
    # the launcher passes on every request to stop as this one; its SIGTERM is for ranks that have
    # lost another
    stop = StopRequest([signal.SIGUSR1])
    job, run, prepared_folder, *settings = argv
    given: list[list[str]] = [json.loads(one) for one in settings]
    try:
        folder = RunFolder.open(Path(run))
        config = load(folder.config, *(given[:1] or [[]]), trains=job == "train")[0]
        device = set_up(config)
        stop.listen()
        prepared = open_prepared(Path(prepared_folder))
        if job == "train":
            train(config, folder, prepared, device, stop)
        for one in given if job == "evaluate" else ():
            config = load(folder.config, one, trains=False)[0]
            evaluate(config, folder, prepared, device, drop, stop)
        dist.destroy_process_group()
    except Preempted as asked:
        dist.barrier()  # the first rank that ends takes the others with it
        return asked.exit_code  # the launcher says it once
    except FarsightError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        if (refused := disk_refused(error)) is None:
            raise
        print(f"error: {refused}", file=sys.stderr)
        return refused.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
