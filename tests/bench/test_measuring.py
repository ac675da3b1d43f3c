"""Rounds, ratios, matrix products and memory."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from pipeline.bench import timing
from pipeline.bench.gemm import Product, peak, rates
from pipeline.bench.memory import measure_peak
from pipeline.bench.options import Subject, read_options

CPU = torch.device("cpu")
MIB = 2**20


def test_every_round_runs_every_subject_and_the_first_is_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []
    clock = iter([9.0, 9.0, 1.0, 2.0, 3.0, 4.0])

    def seconds(run: Callable[[], None], device: torch.device) -> float:
        run()
        return next(clock)

    monkeypatch.setattr(timing, "seconds", seconds)
    said: list[str] = []
    runs = {"a": lambda: done.append("a"), "b": lambda: done.append("b")}
    took = timing.interleaved(runs, 2, CPU, said.append)
    assert done == said == ["a", "b"] * 3
    assert took == {"a": [1.0, 3.0], "b": [2.0, 4.0]}


def test_a_ratio_is_taken_within_rounds() -> None:
    # a neighbour slows the second round threefold: the medians would say 30 / 10
    assert timing.paired_ratio([20.0, 60.0, 30.0], [10.0, 30.0, 10.0]) == 2.0


def test_seconds_are_wall_seconds() -> None:
    assert 0.05 <= timing.seconds(lambda: time.sleep(0.05), CPU) < 5.0


def test_a_product_does_the_arithmetic_it_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.bench.gemm.LEAST_FLOPS", {"cpu": 1e6})
    product = Product("bf16", 64, 32, 16)
    with FlopCounterMode(display=False) as counter:
        product.runner(CPU)()
    assert counter.get_total_flops() == product.flops(CPU) == pytest.approx(1e6, rel=0.05)
    other = Product("bf16", 32, 32, 16)
    found = rates({product: [1.0, 2.0, 9.0], other: [1e3] * 3}, CPU)
    assert found[product] == product.flops(CPU) / 2.0 == peak(found, "bf16")


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux tells")
@pytest.mark.parametrize(
    ("stays", "gone", "left", "peak"), [(64, 96, 40, 96), (0, 0, 64, 64), (8, 16, 40, 40)]
)
def test_the_peak_is_what_a_run_needs_beyond_what_stays(
    stays: int, gone: int, left: int, peak: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sizes in MiB, in a process of its own, as subjects are: this one gives out again what it has
    freed, which is resident already."""
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", str(MIB))
    command = [sys.executable, "-m", "tests.bench.peak_worker", *map(str, (stays, gone, left))]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == pytest.approx(peak, abs=3)


def _subject(length: int) -> Subject:
    return Subject("step", "farsight", "learned", length, "learned")


def test_a_subject_that_fails_in_its_process_says_why() -> None:
    options = read_options(
        ["model.layers=1"], positions="learned", lengths="16", measure="step", against="",
        repeats=1, out=None,
    )  # fmt: skip
    found = measure_peak(_subject(17), options.config, 1)
    assert found.bytes is None and found.failure is not None
    assert "not defined beyond 16 tokens" in found.failure


def test_a_process_that_is_killed_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = tmp_path / "python"
    stand_in.write_text("#!/bin/sh\nkill -9 $$\n")
    stand_in.chmod(0o755)
    monkeypatch.setattr("pipeline.bench.memory.sys.executable", str(stand_in))
    options = read_options(
        [], positions="rope", lengths="16", measure="step", against="", repeats=1, out=None
    )
    found = measure_peak(_subject(16), options.config, 1)
    assert found.failure == "killed by signal 9 (9 is often a lack of memory)"
