"""One of two ranks whose clocks are a year apart: both go on with one broken-off run."""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from pipeline.config.compose import load
from pipeline.launch import resuming
from pipeline.record.folder import RunFolder
from tests.faults.inject import clock
from tests.launch.test_resuming import CPU, Text, state


def nothing(*unused: object) -> None:
    raise AssertionError("a rank chose by itself")


def main() -> None:
    run, out = Path(sys.argv[1]), Path(sys.argv[2])
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = RunFolder(run)
    if rank:
        resuming.find_state = nothing  # type: ignore[assignment, attr-defined]
    with clock(start=time.time() - 3.2e7 * rank, step=-60.0):
        text = Text()
        config = load(folder.config, [])[0]
        resumed = resuming.resume(config, folder, text, CPU, None)  # type: ignore[arg-type]
        assert resumed.state is not None
        saved = resumed.keeper.save(state(8)).name if rank == 0 else ""
    every = [None, None]
    dist.all_gather_object(every, (resumed.state.step, str(resumed.keeper.newest), saved))
    if int(os.environ["RANK"]) == 0:
        torch.save(every, out)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
