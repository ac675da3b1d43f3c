"""Prints the MiB that pipeline.bench.memory.step_peak finds for a run of known sizes."""

import sys

import torch

from pipeline.bench.cases import Case
from pipeline.bench.memory import step_peak

MIB = 2**20


def main() -> None:
    stays, gone, left = (int(size) * MIB // 4 for size in sys.argv[1:])
    kept: list[torch.Tensor] = []
    grads: list[torch.Tensor] = []

    def run() -> None:
        grads.clear()
        if not kept:
            torch.ones(4 * stays)  # a first run may take more than those that count
            kept.append(torch.ones(stays))
        torch.ones(gone)  # freed before the next
        grads.append(torch.ones(left))

    found = step_peak(Case(run, grads.clear, 0), torch.device("cpu"))
    assert found is not None
    print(found / MIB)


if __name__ == "__main__":
    main()
