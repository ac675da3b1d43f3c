"""`python -m pipeline plan`: its figures, its refusals, and that they are what a run takes."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from pipeline.config.compose import load
from pipeline.config.schema import Config
from pipeline.launch.cli import main
from pipeline.launch.planning.memory import rank_memory
from pipeline.launch.planning.trace import Place
from pipeline.launch.planning.zero import Zero
from pipeline.model.decoder import Decoder, parameter_counts
from pipeline.model.flops import attention_flops, step_flops
from tests.bench.counting import IN_PLACE
from tests.distributed.ranks import ROOT, run_ranks
from tests.distributed.toy import toy_config
from tests.launch.plan_worker import config_of
from tests.launch.planning.test_time import bench_of

DEMO = str(ROOT / "configs" / "demo.yaml")
TINY = ["position=rope", "train_length=64", "eval_lengths=[64,128]", "model.layers=2"]


def planned(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["plan", DEMO, *TINY, *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_json_and_page_say_the_same_and_nothing_is_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = planned(capsys)
    assert main(["plan", DEMO, *TINY]) == 0
    page = capsys.readouterr().out
    (run,) = found["runs"]
    assert f"{run['parameters']['all']:,}" in page
    assert f"{run['rank']['peak'] / 2**30:,.2f}" in page
    for row in found["details"]["stages"]:
        assert f"{row['peak'] / 2**20:,.1f}" in page
    assert run["hours"] is None and "--flops" in page and "<=" not in page
    assert not list(tmp_path.iterdir())


def test_a_sweep_is_one_table_of_what_differs_in_more_than_the_seed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = planned(capsys, "sweep={position: [rope, learned], seed: [0, 1, 2]}")
    assert [run["name"] for run in found["runs"]] == ["rope", "learned"]
    rope, learned = (run["parameters"] for run in found["runs"])
    assert learned["position"] == learned["all"] - rope["all"] == 64 * 128
    assert found["shown"] == max(found["runs"], key=lambda run: run["rank"]["peak"])["name"]


def test_time_is_flops_by_the_rate_that_was_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Of two ranks at 1e12 each; a bench on a CPU measured the machine that both are on."""
    (run,) = planned(capsys, "--flops", "1e12")["runs"]
    assert run["hours"] == pytest.approx(run["run_flops"] / 2e12 / 3600)
    bench = tmp_path / "bench.json"
    bench.write_text(bench_of("cpu", {100: 1e11, 1000: 1e12}, 2.0))
    (run,) = planned(capsys, "--bench", str(bench))["runs"]
    assert run["hours"] == pytest.approx(run["run_flops"] / 0.5e11 / 3600)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--gpus", "3"], "--gpus=3 (trainer.nodes=1, trainer.processes=3)"),
        (["--gpus", "0"], "--gpus=0 is not allowed"),
        (["--gpus", str(10**30)], f"--gpus={10**30} is not allowed"),
        (["--gpus", "65537"], "trainer.nodes, 1 to 65536"),
        (["--gpu-memory", "-1"], "--gpu-memory=-1"),
        (["--gpu-memory", "0"], "--gpu-memory=0"),
        (["--gpu-memory", "1e300"], "0.0009765625 to 1048576 GiB"),
        (["--gpu-memory", "inf"], "--gpu-memory=inf"),
        (["--gpu-memory", "nan"], "--gpu-memory=nan"),
        (["--flops", "nan"], "--flops=nan"),
        (["--flops", "0"], "--flops=0"),
        (["--flops=-1e12"], "--flops=-1"),
        (["--flops", "inf"], "--flops=inf"),
        (["--flops", "1e300"], "1 to 1e+24 FLOP per second"),
        (["--flops", "1e-300"], "--flops=1e-300"),
        (["--flops", "1", "--bench", "x"], "give one of them"),
        (["--bench", "missing.json"], "--bench=missing.json is no bench.json"),
    ],
)
def test_what_makes_no_sense_is_refused(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", DEMO, *TINY, *options]) == 2
    assert said in capsys.readouterr().err


def test_groups_need_fit_only_the_gpus_that_are_planned_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Not the two ranks of the file."""
    found = planned(capsys, "trainer.sequence_parallel=4", "--gpus", "4")
    assert found["details"]["ranks"] == 4


def test_the_page_says_what_of_the_encoding_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    sweep = "sweep={position: [none, xlnet, alibi]}"
    none, xlnet, alibi = planned(capsys, sweep)["runs"]
    assert main(["plan", DEMO, *TINY, sweep]) == 0
    page = capsys.readouterr().out
    assert f"  {xlnet['encoding_flops_per_token'] / 1e6:.1f}  tile" in page
    assert f"<= {alibi['encoding_flops_per_token'] / 1e6:.1f}  tile" in page
    assert none["encoding_flops_per_token"] == 0 and "   0.0  sdpa" in page
    assert "encoding: MFLOP/token that the encoding" in page
    assert "<=: at most" in page and "python -m pipeline bench" in page


def test_the_longest_sequence_fills_the_memory_and_no_more(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """On 4 GPUs: a sequence that is longer by a twentieth does not fit."""
    found = planned(capsys, "--gpus", "4", "--gpu-memory", "8")
    rows = found["details"]["sharings"]
    assert [row["sequence_parallel"] for row in rows] == [1, 2, 4]
    with torch.device("meta"):
        decoder = Decoder(config := demo())
    zero = Zero(1, parameter_counts(decoder)[0], 4, 4, device="cuda")
    for row in rows:
        parts = row["sequence_parallel"]

        def peak(length: int, parts: int = parts) -> int:
            place = Place(length, 1, parts)
            return int(rank_memory(config, zero, place)["peak"])

        assert peak(row["longest"]) <= 8 * 2**30 < peak(row["longest"] * 21 // 20)
    assert rows[2]["longest"] == pytest.approx(4 * rows[0]["longest"], rel=0.25)


def demo() -> Config:
    return load(Path(DEMO), TINY)[0]


def test_flops_are_those_that_torch_counts() -> None:
    """On the real decoder with plain attention: torch counts the future half of attention too,
    which causal kernels leave out and we do not count."""
    config, length = toy_config("none"), 512
    decoder, counter = Decoder(config), FlopCounterMode(display=False, custom_mapping=IN_PLACE)
    tokens = torch.zeros(1, length, dtype=torch.int64)
    with sdpa_kernel(SDPBackend.MATH), counter:
        decoder(tokens, tokens, torch.arange(length)[None]).sum().backward()
    future = config.model.layers * attention_flops(config.model, length)
    ours = step_flops(config.model, config.data.vocab, length) + future
    assert ours == pytest.approx(counter.get_total_flops(), rel=0.02)


def test_zero_parts_what_it_says_it_parts() -> None:
    """1000 parameters in fp32 on 4 ranks, in bytes; a GPU has the bucket of stage 3 all along."""
    one, three = (Zero(stage, 1000, 4, 4) for stage in (1, 3))
    shares = {"masters": 1000, "moments": 2000}
    assert one.kept == {"weights": 4000, **shares, "gradients": 0, "bucket": 0}
    assert three.kept == {"weights": 1000, **shares, "gradients": 1000, "bucket": 4000}
    assert Zero(3, 1000, 4, 4, device="cuda").kept["bucket"] == 4 * 500_000_000
    # gradients in the bucket, and in order
    assert one.during_reduction == 8000
    # alone, in order already, and its share
    assert Zero(1, 1000, 1, 4).during_reduction == 8000
    # weights that are gathered, gradients in order, and on a CPU what gloo copies
    assert three.during_reduction == 4000 + 4000 + 4000
    assert Zero(3, 1000, 4, 4, device="cuda").during_reduction == 8000
    assert Zero(3, 1000, 1, 4).during_reduction == 8000
    assert one.exchanged == {"gradients": 6000, "weights": 3000}


SIZES = {
    "activations": {"width": 256, "layers": 4, "heads": 4, "mlp_width": 768},
    "weights": {"width": 512, "layers": 8, "heads": 8, "mlp_width": 1536},
    "length": {"width": 128, "layers": 4, "heads": 4, "mlp_width": 384},
}


# of two ranks: how they share the work, and sequences of a step
SHARED = {
    "sequence": {"processes": 2, "sequence_parallel": 2, "batch_sequences": 1},
    "data": {"processes": 2, "batch_sequences": 2},
    "data, ZeRO-2": {"processes": 2, "batch_sequences": 2, "zero_stage": 2},
    "data, ZeRO-3": {"processes": 2, "batch_sequences": 2, "zero_stage": 3},
}


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize(
    ("size", "vocab", "length", "shared"),
    [
        ("activations", 2048, 2048, None),
        ("weights", 8192, 256, None),
        ("length", 2048, 8192, None),
        ("length", 2048, 8192, "sequence"),
        ("weights", 8192, 256, "sequence"),
        ("activations", 2048, 2048, "data"),
        ("weights", 8192, 256, "data"),
        ("weights", 8192, 256, "data, ZeRO-2"),
        ("activations", 2048, 2048, "data, ZeRO-3"),
        ("weights", 8192, 256, "data, ZeRO-3"),
    ],
)
def test_a_rank_takes_the_memory_that_was_planned(
    size: str,
    vocab: int,
    length: int,
    shared: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Resident memory of a training in fp32, on one rank or on each of two, within 15 %."""
    wanted = {"model": SIZES[size], "vocab": vocab, "length": length}
    wanted |= {"trainer": SHARED[shared]} if shared else {}
    config = config_of(wanted)
    trainer = config.trainer
    with torch.device("meta"):
        parameters = parameter_counts(Decoder(config))[0]
    zero = Zero(trainer.zero_stage, parameters, trainer.world, 4)
    place = Place(length, 1, trainer.sequence_parallel)
    expected = rank_memory(config, zero, place)["peak"]
    (tmp_path / "wanted.json").write_text(json.dumps(wanted))
    # as in pipeline/bench/memory.py: glibc keeps freed blocks below it
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", str(2**20))
    said = run_ranks(trainer.world, "tests.launch.plan_worker", str(tmp_path / "wanted.json"))
    grown = json.loads(said.splitlines()[-1])
    print(f"planned {expected / 2**20:.0f} MiB, taken {[round(n / 2**20) for n in grown]}")
    assert grown == [pytest.approx(expected, rel=0.15)] * trainer.world
