"""Counts the work of a computation instead of its seconds: calls, and bytes newly allocated."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode


def _added_product(into: Any, left: Any, right: Any, **_: Any) -> int:
    """Shapes of into += left @ right."""
    return 2 * math.prod(left) * int(right[-1])


# torch's counter knows the products that make a new tensor, not those that add to one in place
IN_PLACE = {torch.ops.aten.addmm_: _added_product, torch.ops.aten.baddbmm_: _added_product}


@dataclass
class Work:
    """Calls of torch's operations, bytes of the tensors they newly made, FLOPs of products.

    torch counts nothing for its fused attention on CPUs.
    """

    calls: int = 0
    largest: int = 0
    allocated: int = 0
    flops: int = 0


class _Counting(TorchDispatchMode):
    """A result is new if no argument has its storage: views and in-place results are not."""

    def __init__(self) -> None:
        super().__init__()
        self.work = Work()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = {_storage(x) for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        result = func(*args, **(kwargs or {}))
        self.work.calls += 1
        for made in tree_leaves(result):
            if isinstance(made, Tensor) and _storage(made) not in given:
                size = made.untyped_storage().nbytes()
                self.work.allocated += size
                self.work.largest = max(self.work.largest, size)
        return result


class Largest(TorchDispatchMode):
    """Entries of the largest storage that any result lies in, views of what was there included."""

    def __init__(self) -> None:
        super().__init__()
        self.entries = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            size = result.untyped_storage().nbytes() // result.element_size()
            self.entries = max(self.entries, size)
        return result


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def count(run: Callable[[], None]) -> Work:
    """The work of `run`, after one run that is not counted."""
    run()
    with _Counting() as counting:
        run()
    with FlopCounterMode(display=False, custom_mapping=IN_PLACE) as flops:
        run()
    counting.work.flops = flops.get_total_flops()
    return counting.work
