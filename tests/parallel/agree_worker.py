"""One of two ranks: rank 0 does work that succeeds, and work that fails in every way."""

import errno
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from pipeline import errors
from pipeline.parallel.agree import told_by_first


def changed() -> Exception:
    error = errors.FarsightError("rank 3 stopped")
    error.exit_code = 17
    return error


FAILURES: dict[str, Callable[[], Exception]] = {
    "config": lambda: errors.ConfigError("`a.b` = 7 is not allowed"),
    "data": lambda: errors.DataError("no text"),
    "checkpoint": lambda: errors.CheckpointError("step-4: damaged"),
    "diverged": lambda: errors.TrainingDiverged("step 8"),
    "storage": lambda: errors.StorageError("held by another job"),
    "preempted": lambda: errors.Preempted("step 9"),
    "own exit code": changed,
    "full disk": lambda: OSError(errno.ENOSPC, "No space left on device", "/runs/a/rows"),
    "other of the system": lambda: FileNotFoundError(errno.ENOENT, "No such file", "/x"),
    "of a programmer": lambda: RuntimeError("a bug"),
}


def heard(work: Callable[[], Any]) -> dict[str, Any]:
    """What this rank is told, or which error it gets."""
    try:
        return {"result": told_by_first(work)}
    except Exception as error:
        more = {key: value for key, value in vars(error).items() if key != "__notes__"}
        code = getattr(error, "exit_code", None)
        return {"kind": type(error).__name__, "words": str(error), "code": code, "more": more}


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()

    def only_here(make: Callable[[], Exception]) -> Callable[[], None]:
        def work() -> None:
            assert rank == 0, "another rank did the work of rank 0"
            raise make()

        return work

    found = {name: heard(only_here(make)) for name, make in FAILURES.items()}
    found["result"] = heard(lambda: ("step-4", f"by rank {rank}"))
    found["nothing"] = heard(lambda: None)
    every: list[Any] = [None, None]
    dist.all_gather_object(every, found)
    if rank == 0:
        torch.save(every, Path(sys.argv[1]))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
