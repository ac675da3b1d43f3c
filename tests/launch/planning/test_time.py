"""FLOPs and hours of a run: what of them is the encoding's, and by which rate."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import ConfigError
from pipeline.launch.planning.asked import Asked
from pipeline.launch.planning.figures import Planned
from pipeline.launch.planning.products import added_flops
from tests.distributed.ranks import ROOT

DEMO = ROOT / "configs" / "demo.yaml"
TINY = ["train_length=64", "eval_lengths=[64,128]", "model.layers=2", "position=xlnet"]


def summary(asked: Asked, *more: str) -> tuple[Planned, dict[str, Any]]:
    one = Planned(asked.configs(DEMO, [*TINY, *more])[0], asked)
    return one, one.summary()


def bench_of(device: str, flops: dict[int, float], seconds: float, position: str = "rope") -> str:
    """A bench.json of whole steps: FLOPs by length, each in so many seconds."""
    step = {"measure": "step", "maker": "farsight", "failure": None, "position": position}
    rows = [
        {**step, "length": n, "flops": one, "median_seconds": seconds} for n, one in flops.items()
    ]
    return json.dumps({"device": device, "results": rows})


def test_time_has_what_the_encoding_multiplies() -> None:
    one, found = summary(Asked(flops=1e12))
    trainer = one.config.trainer
    added = found["encoding_flops_per_token"]
    assert added * 64 == added_flops(one.config, "cpu") > 0
    tokens = 64 * trainer.batch_sequences * trainer.max_steps
    assert found["run_flops"] == pytest.approx(tokens * (found["flops_per_token"] + added))
    assert found["hours"] == pytest.approx(found["run_flops"] / 2e12 / 3600)


def test_a_bench_measured_the_encoding_in_model_flops_per_second(tmp_path: Path) -> None:
    (bench := tmp_path / "bench.json").write_text(bench_of("cpu", {64: 1e9}, 1.0, "xlnet"))
    one, found = summary(Asked(bench=bench))
    trainer = one.config.trainer
    tokens = 64 * trainer.batch_sequences * trainer.max_steps
    assert found["hours"] == pytest.approx(tokens * found["flops_per_token"] / 1e9 / 3600)


@pytest.mark.parametrize(("flops", "seconds"), [(1e9, 0.0), (0.0, 1.0), (1e9, float("nan"))])
def test_a_bench_without_a_rate_is_refused(flops: float, seconds: float, tmp_path: Path) -> None:
    (bench := tmp_path / "bench.json").write_text(bench_of("cpu", {64: flops}, seconds, "xlnet"))
    with pytest.raises(ConfigError, match=f"--bench={bench}"):
        summary(Asked(bench=bench))


def test_gpus_are_not_planned_by_the_rate_of_a_cpu(tmp_path: Path) -> None:
    (bench := tmp_path / "bench.json").write_text(bench_of("cpu", {64: 1e9}, 1.0, "xlnet"))
    with pytest.raises(ConfigError, match="was measured on a CPU, and --gpus=2 plans for GPUs"):
        summary(Asked(gpus=2, bench=bench))


def test_an_encoding_that_is_dropped_multiplies_until_then() -> None:
    one, found = summary(Asked(), "trainer.max_steps=200", "model.drop_position_after=40")
    each = found["flops_per_token"] * 200 + found["encoding_flops_per_token"] * 40
    assert found["encoding_flops_per_token"] > 0
    assert found["run_flops"] == pytest.approx(64 * one.config.trainer.batch_sequences * each)
