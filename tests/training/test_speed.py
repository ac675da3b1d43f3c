"""MFU: the formula's FLOPs beside a measured matrix product."""

import pytest
import torch
from torch.utils.benchmark import Timer

from pipeline.training import speed
from pipeline.training.speed import Speedometer, peak_memory

CPU = torch.device("cpu")


def test_mfu_is_a_share_of_the_measured_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "_product_rate", lambda device, dtype: 2.0e9)
    monkeypatch.setattr(speed, "peak_memory", lambda device: 5 * 2**20 + 1000)
    meter = Speedometer(CPU, torch.float32)
    assert meter.mfu(5e8) == 0.25
    assert meter.words(5e8) == "MFU 25%, 5 MiB"


def test_the_peak_is_that_of_a_product() -> None:
    """Near one timed by torch here, of 2 n^3 FLOPs; no random number is drawn for it."""
    state = torch.get_rng_state()
    peak = Speedometer(CPU, torch.float32).peak
    assert torch.equal(torch.get_rng_state(), state)  # training draws what it always drew
    side = 1024
    left = torch.ones(side, side)
    timer = Timer("left @ left", globals={"left": left},
                  num_threads=torch.get_num_threads())  # fmt: skip
    best = min(timer.timeit(1).mean for _ in range(60))
    assert 0.6 < peak / (2 * side**3 / best) < 1.7


def test_peak_memory_grows_with_what_is_held() -> None:
    before = peak_memory(CPU)
    held = torch.ones(before // 4 + 2**24)
    assert peak_memory(CPU) - before > held.numel() and held[0] == 1
