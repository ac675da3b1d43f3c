"""How fast a model is computed, beside what its processors could do.

    MFU = F / (t * peak)

F are the FLOPs of the formula in `pipeline.model.flops` that all ranks together did in t seconds;
peak is the sum over the ranks of FLOP per second of a square matrix product, measured while every
rank does the same, in the precision of the run. MFU is that of PaLM (Chowdhery et al. 2022,
arXiv:2204.02311, appendix B), with a measured rate in place of a data sheet's: a CPU has none, and
some of those for GPUs are for sparse matrices.
"""

import resource
import time

import torch

from pipeline.parallel.reduce import world_sum

# Side of the square, and products in a sample: milliseconds on a core or a GPU.
_SIDE = {"cpu": 768, "cuda": 4096}
_TIMES = {"cpu": 1, "cuda": 20}
_SAMPLES = 7


class Speedometer:
    """Tells MFU and memory of this run. All ranks make one together: it measures the peak."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device = device
        (self.peak,) = world_sum([_product_rate(device, dtype)], device)

    def mfu(self, flops_per_second: float) -> float:
        """Share of the peak, 0 to about 1; `flops_per_second` is that of all ranks."""
        return flops_per_second / self.peak

    def words(self, flops_per_second: float) -> str:
        """For a progress bar."""
        memory = peak_memory(self.device) / 2**20
        return f"MFU {self.mfu(flops_per_second):.0%}, {memory:,.0f} MiB"


def peak_memory(device: torch.device) -> int:
    """Most bytes this process held so far: GPU memory allocated, or resident memory on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _product_rate(device: torch.device, dtype: torch.dtype) -> float:
    """FLOP per second of the fastest of a few samples; draws no random numbers."""
    side, times = _SIDE[device.type], _TIMES[device.type]
    left = torch.linspace(-1.0, 1.0, side * side, device=device).view(side, side).to(dtype)
    right, out = left.T.contiguous(), torch.empty_like(left)
    took = []
    for _ in range(_SAMPLES + 1):
        _wait(device)
        began = time.perf_counter()
        for _ in range(times):
            torch.mm(left, right, out=out)
        _wait(device)
        took.append(time.perf_counter() - began)
    return 2.0 * side**3 * times / min(took[1:])


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
