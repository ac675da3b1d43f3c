"""What rank 0 alone does, told to all ranks: none may go on where it failed."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist

from pipeline.errors import FarsightError

T = TypeVar("T")


def told_by_first(work: Callable[[], T]) -> T:
    """The result of `work`, which rank 0 does, on all ranks; every rank must call this.

    It must be small, and of plain types that can be pickled.

    Raises:
        FarsightError: that of rank 0, on all ranks.
    """
    if not dist.is_initialized():
        return work()
    told: list[Any] = [None]
    if dist.get_rank() == 0:
        try:
            told = [work()]
        except FarsightError as error:
            told = [error]
    dist.broadcast_object_list(told, src=0)
    if isinstance(told[0], FarsightError):
        raise told[0]
    result: T = told[0]
    return result
