"""What rank 0 alone does, told to all ranks: none may go on, or wait, where it failed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch.distributed as dist

from pipeline.errors import FarsightError, disk_refused

T = TypeVar("T")


@dataclass(frozen=True)
class _Failure:
    """An error as it can be sent; pickle itself would give its message to a constructor that may
    take something else."""

    kind: type[FarsightError]
    words: tuple[Any, ...]
    more: dict[str, Any]

    def error(self) -> FarsightError:
        made = self.kind.__new__(self.kind, *self.words)
        made.__dict__.update(self.more)
        return made


def told_by_first(work: Callable[[], T]) -> T:
    """The result of `work`, which rank 0 does, on all ranks; every rank must call this.

    It must be small, and of plain types that can be pickled.

    Raises:
        FarsightError: that of rank 0, on all ranks; so is what a refusing disk is reported by.
        Exception: any other error of rank 0, there; the other ranks get a FarsightError about it.
    """
    if not dist.is_initialized():
        return work()
    told: list[Any] = [None]
    failed: Exception | None = None
    if dist.get_rank() == 0:
        try:
            told = [work()]
        except Exception as error:
            failed = error
            told = [_failure(error)]
    dist.broadcast_object_list(told, src=0)
    if isinstance(told[0], _Failure):
        raise failed or told[0].error()
    result: T = told[0]
    return result


def _failure(error: Exception) -> _Failure:
    if isinstance(error, OSError):
        error = disk_refused(error) or error
    if not isinstance(error, FarsightError):
        error = FarsightError(f"rank 0 failed: {error!r}")
    return _Failure(type(error), error.args, dict(error.__dict__))
