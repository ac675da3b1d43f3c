"""Sums over the whole world. A mean never crosses a rank: reduce (sum, count), then divide."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor


def world_sum(values: Sequence[float | Tensor], device: torch.device) -> list[float]:
    """Each value summed over all ranks in fp64; every rank must call it with as many values."""
    total = torch.stack([torch.as_tensor(v, dtype=torch.float64, device=device) for v in values])
    if dist.is_initialized():
        dist.all_reduce(total)
    return [float(x) for x in total.tolist()]


def world_max(value: float, device: torch.device) -> float:
    """The largest `value` of any rank."""
    largest = torch.tensor([value], dtype=torch.float64, device=device)
    if dist.is_initialized():
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    return float(largest.item())
