"""The command as a whole: what it prints and leaves, and what a failed subject looks like."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.bench import run
from pipeline.bench.memory import Peak
from pipeline.bench.options import Subject, read_options
from pipeline.launch.cli import main
from pipeline.model.flops import attention_flops

SMALL = [
    "model.layers=1", "model.width=64", "model.heads=2", "model.mlp_width=96", "data.vocab=300",
    "trainer.threads=1",
]  # fmt: skip


def _bench(out: Path, *options: str) -> dict[str, Any]:
    assert main(["bench", *SMALL, "--repeats", "2", "--out", str(out), *options]) == 0
    found: dict[str, Any] = json.loads((out / "bench.json").read_text())
    return found


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process for each subject, and small matrix products."""
    monkeypatch.setattr(run, "measure_peak", lambda subject, config, threads: Peak(2**20))
    monkeypatch.setattr("pipeline.bench.gemm.SIDE", {"cpu": 32})
    monkeypatch.setattr("pipeline.bench.gemm.LEAST_FLOPS", {"cpu": 1e5})


def test_a_bench_leaves_every_sample_a_table_and_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.bench.gemm.LEAST_FLOPS", {"cpu": 1e5})
    monkeypatch.setattr("pipeline.bench.gemm.SIDE", {"cpu": 32})
    out = tmp_path / "b"
    record = _bench(out, "--positions", "alibi", "--lengths", "600", "--measure", "step")
    (row,) = record["results"]
    assert row["subject"] == "alibi" and row["failure"] is None
    assert len(row["seconds"]) == 2 and min(row["seconds"]) > 0
    assert row["ratio"] == 1.0 and row["ratios"] == [1.0, 1.0]
    assert row["tokens_per_second"] == pytest.approx(600 / row["median_seconds"])
    assert 2**20 < row["peak_bytes"] < 2**28
    assert row["bytes_per_token"] == row["peak_bytes"] / 600
    best = max(p["flops_per_second"] for p in record["products"] if p["precision"] == "fp32")
    assert row["mfu"] == pytest.approx(row["flops"] / row["median_seconds"] / best)
    assert record["threads"] == 1 and record["environment"]["packages"]["torch"]
    assert len(record["load_average"]) == 2 and record["configs"]["alibi"]["model"]["width"] == 64
    printed = capsys.readouterr().out
    assert "1.00  alibi" in printed and f"{row['parameters']:,}" in printed
    assert (out / "bench.png").read_bytes()[:4] == b"\x89PNG"
    before = (out / "bench.json").read_bytes()
    again = ["--positions", "alibi", "--lengths", "16", "--measure", "step", "--out", str(out)]
    assert main(["bench", *SMALL, *again]) == 2
    assert "already holds a bench.json" in capsys.readouterr().err
    assert (out / "bench.json").read_bytes() == before


def test_attention_is_measured_beside_torchs_kernel(light: None, tmp_path: Path) -> None:
    record = _bench(
        tmp_path, "--positions", "rope,t5", "--lengths", "16,32", "--measure", "attention"
    )
    rows = record["results"]
    names = [(row["subject"], row["length"]) for row in rows]
    assert names == [(s, n) for n in (16, 32) for s in ("sdpa", "rope", "t5")]
    assert all(row["yardstick"] == "sdpa" and row["ratio"] > 0 for row in rows)
    assert [row["parameters"] for row in rows[:3]] == [0, 0, 64]
    model = read_options(
        SMALL, positions="rope", lengths="16", measure="step", against="", repeats=1, out=None
    ).config.model
    assert rows[0]["flops"] == attention_flops(model, 16)


def test_bf16_is_measured_against_the_bf16_peak(light: None, tmp_path: Path) -> None:
    options = ["--positions", "rope", "--lengths", "16", "trainer.precision=bf16"]
    record = _bench(tmp_path, *options)
    best = max(p["flops_per_second"] for p in record["products"] if p["precision"] == "bf16")
    for row in record["results"]:
        assert row["mfu"] == pytest.approx(row["flops"] / row["median_seconds"] / best)


def test_a_subject_that_does_not_fit_is_said_and_not_timed(
    light: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def peak(subject: Subject, config: Any, threads: int) -> Peak:
        return Peak(failure="no memory") if subject.position == "rope" else Peak(2**20)

    monkeypatch.setattr(run, "measure_peak", peak)
    record = _bench(tmp_path, "--positions", "rope,alibi", "--lengths", "16", "--measure", "step")
    failed, timed = record["results"]
    assert failed["failure"] == "no memory" and "seconds" not in failed
    assert len(timed["seconds"]) == 2 and "ratio" not in timed
    assert "failed: rope at 16: no memory" in capsys.readouterr().out


def test_a_folder_that_cannot_be_made_is_refused_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    small = ["--positions", "rope", "--lengths", "16", "--measure", "step"]
    assert main(["bench", *SMALL, *small, "--out", str(tmp_path / "file" / "b")]) == 74
    assert "--out=" in capsys.readouterr().err


def test_what_the_encoding_refuses_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["--positions", "rope", "--lengths", "16", "--measure", "step"]
    assert main(["bench", *SMALL, "position.base=-1.0", *small]) == 2
    assert "base" in capsys.readouterr().err and not list(tmp_path.iterdir())
