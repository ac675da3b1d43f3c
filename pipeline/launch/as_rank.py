"""What a process does that srun or torchrun has started as one rank of several.

Rank 0 checks, prepares and takes the run folder; the others wait for its word. Such a process is
asked to stop by signals, and tells a batch script how it ended (`pipeline.record.marker`).
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch.distributed as dist

from pipeline.checkpoint.space import check_space
from pipeline.config.schema import Config
from pipeline.data.prepare import open_prepared
from pipeline.errors import FarsightError, Preempted
from pipeline.launch.checks import (
    check_devices,
    check_model,
    check_text,
    data_key,
    prepare_all,
    say,
)
from pipeline.launch.continued import check_same_origin, check_tokenizer
from pipeline.launch.evaluation import drop, evaluate
from pipeline.launch.rank import set_up, train
from pipeline.launch.ranks import check_world
from pipeline.launch.resuming import reopen_if_lost
from pipeline.launch.retest import finished_run, prepared_text, read_test
from pipeline.parallel.agree import told_by_first
from pipeline.parallel.stop import StopRequest
from pipeline.record import marker
from pipeline.record.folder import RunFolder
from pipeline.report.collect import collect
from pipeline.report.table import text_table

# a run folder and the prepared text, as rank 0 tells of them
_Paths = tuple[Path, Path]


def train_as_rank(config: Config, name: str, stop: StopRequest) -> int:
    """This rank's part of one run; returns the exit code."""

    def take() -> _Paths:
        data = prepare_all([config])[data_key(config.data)]
        check_tokenizer(config, data)
        folder = RunFolder.create(config, name=name)
        check_same_origin(config, folder)
        if folder.finished or folder.trained.is_file():
            check_text(folder, data)
            reopen_if_lost(folder)
        if folder.finished:
            say(f"{folder.path} is finished; kept as it is")
        return folder.path, data.folder

    def work() -> int:
        check_world(config)
        check_devices(config)
        parameters, _ = check_model(config)
        check_space(RunFolder.at(config, name).path, parameters)
        device = set_up(config)
        stop.join()
        told = _told(take)
        if isinstance(told, int):
            return told
        folder = RunFolder(told[0])
        try:
            if not folder.finished:
                train(config, folder, open_prepared(told[1]), device, stop)
                if dist.get_rank() == 0:
                    say(f"{folder.path} is finished")
        finally:
            folder.release()
        return 0

    return _ended(work)


def evaluate_as_rank(path: Path, overrides: Sequence[str], stop: StopRequest) -> int:
    """This rank's part of testing a run again; rank 0 prints the table. Returns the exit code."""

    def work() -> int:
        folder = finished_run(path)
        test = read_test(folder, overrides, "evaluate")
        check_world(test.config)
        device = set_up(test.config)
        stop.join()

        def take() -> _Paths:
            prepared = prepared_text([test])
            folder.take()
            return folder.path, prepared.folder

        told = _told(take)
        if isinstance(told, int):
            return told
        try:
            evaluate(test.config, folder, open_prepared(told[1]), device, drop, stop)
        finally:
            folder.release()
        if dist.get_rank() == 0:
            print(text_table(collect([folder.path])), flush=True)
        return 0

    return _ended(work)


def _told(work: Callable[[], _Paths]) -> _Paths | int:
    """What rank 0 found, on all ranks; or the exit code, where it failed and has said why."""
    try:
        return told_by_first(work)
    except FarsightError as error:
        if dist.get_rank() == 0:
            print(f"error: {error}", file=sys.stderr, flush=True)
        # the first rank that ends takes the others with it
        dist.barrier()
        return error.exit_code


def _ended(work: Callable[[], int]) -> int:
    """The exit code of `work`.

    A rank that was asked to stop ends with 0 where a batch script reads the marker: any other code
    would make srun end the ranks that are still at it.
    """
    try:
        code = work()
    except Preempted as asked:
        code = asked.exit_code
        if dist.get_rank() == 0:
            say(str(asked))
            marker.leave(code, asked.progress)
        dist.barrier()  # rank 0 has done all that it has to
        if marker.wanted():
            code = 0
    dist.destroy_process_group()
    return code
