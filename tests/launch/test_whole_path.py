"""From text to table on two real ranks: train.py, then evaluate and report on what it left."""

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.record.metrics import read_rows
from tests.distributed.ranks import ROOT
from tests.launch.made_study import command, write_study
from tests.training.resume_worker import TIMES

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two finished runs on a small made-up corpus; returns the folder that holds the rest."""
    folder: Path = tmp_path_factory.mktemp("study")
    write_study(folder, "learned, t5")
    done = command("train.py", folder / "study.yaml")
    (folder / "stdout").write_text(done.stdout)
    return folder


def run_folder(study: Path, position: str = "t5") -> Path:
    return study / "runs" / "path" / f"{position}-L33-s0"


def rows_without_time(path: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k not in TIMES} for row in read_rows(path)]


def test_the_table_and_the_page_are_there(study: Path) -> None:
    printed = (study / "stdout").read_text()
    assert "learned" in printed and "t5" in printed and "not defined beyond 33" in printed
    page = study / "runs" / "path" / "report" / "index.html"
    assert str(page) in printed and page.stat().st_size > 10_000


def test_train_rows_tell_speed_and_memory(study: Path) -> None:
    """MFU is in proportion to tokens per second; memory only grows, up to that of the summary."""
    rows = read_rows(run_folder(study) / "metrics.jsonl")
    train = [row for row in rows if row["kind"] == "train"]
    shares = [row["mfu"] / row["tokens_per_second"] for row in train]
    assert shares == pytest.approx([shares[0]] * 3) and 0 < train[0]["mfu"] < 1.2
    held = [row["peak_memory_bytes"] for row in train]
    most = json.loads((run_folder(study) / "summary.json").read_text())["peak_memory_bytes"]
    assert 50 * 2**20 < held[0] <= held[1] <= held[2] <= most


def test_training_wrote_every_row(study: Path) -> None:
    rows = rows_without_time(run_folder(study) / "metrics.jsonl")
    train = [row for row in rows if row["kind"] == "train"]
    assert [row["step"] for row in train] == [2, 4, 6]
    assert [row["tokens"] for row in train] == [2 * 8 * 33, 4 * 8 * 33, 6 * 8 * 33]
    short = [(r["step"], r["protocol"], r["length"]) for r in rows if r["kind"] == "evaluation"]
    assert short == [(s, "suffix", n) for s in (3, 6) for n in (16, 33, 66, 132)]


def test_evaluating_again_on_one_rank_gives_the_same_numbers(study: Path) -> None:
    path = run_folder(study) / "evaluation" / "rows.jsonl"
    before = read_rows(path)
    command("-m", "pipeline", "evaluate", run_folder(study),
            "trainer.processes=1", "trainer.sequence_parallel=1")  # fmt: skip
    after = read_rows(path)
    assert len(before) == len(after) == 4 * 3 + 2
    # of another evaluation, and rounded otherwise
    own = ("evaluation_sha256", "row_sha256", "values")
    for old, new in zip(before, after, strict=True):
        assert {k: v for k, v in old.items() if isinstance(v, str | int) and k not in own} == {
            k: v for k, v in new.items() if isinstance(v, str | int) and k not in own
        }
        assert new["loss"] == pytest.approx(old["loss"], abs=1e-5)


def test_evaluate_refuses_to_change_the_model(study: Path) -> None:
    done = command("-m", "pipeline", "evaluate", run_folder(study), "model.width=64", expect=2)
    assert "model.width" in done.stderr and "evaluate." in done.stderr


def test_running_again_keeps_what_is_finished(study: Path) -> None:
    before = (run_folder(study) / "metrics.jsonl").stat().st_mtime_ns
    done = command("train.py", study / "study.yaml")
    assert done.stderr.count("is finished; kept as it is") == 2
    assert (run_folder(study) / "metrics.jsonl").stat().st_mtime_ns == before


def test_the_saved_configuration_repeats_training_bit_for_bit_with_wandb_as_without(
    study: Path,
) -> None:
    saved = run_folder(study) / "config.yaml"
    command("train.py", saved, f"runs={study}/again", "wandb.mode=auto")
    again = study / "again" / "path" / "t5-L33-s0"
    (segment,) = (again / "wandb").glob("offline-run-*/*.wandb")
    assert segment.stat().st_size > 10_000 and not (run_folder(study) / "wandb").exists()
    first, second = (rows_without_time(f / "metrics.jsonl") for f in (run_folder(study), again))
    assert first == second
    manifests = [
        json.loads((f / "checkpoints" / "step-6" / "manifest.json").read_text())
        for f in (run_folder(study), again)
    ]
    assert manifests[0]["tokens"] == manifests[1]["tokens"] == 6 * 8 * 33
    weights = [manifest["files"]["weights.pt"]["sha256"] for manifest in manifests]
    assert weights[0] == weights[1]
    losses = [
        [row["loss"] for row in read_rows(f / "evaluation" / "rows.jsonl")]
        for f in (run_folder(study), again)
    ]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


def test_one_task_of_a_sweep_under_torchrun(study: Path) -> None:
    """The way srun starts ranks: every rank runs train.py itself."""
    out = study / "joined"
    command(
        *("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "train.py"),
        *(study / "study.yaml", f"runs={out}", "--task", "1"),
    )
    joined = out / "path" / "t5-L33-s0"
    assert (joined / "finished").exists()
    assert rows_without_time(joined / "metrics.jsonl") == rows_without_time(
        run_folder(study) / "metrics.jsonl"
    )


def test_a_checkpoint_of_another_configuration_is_refused(study: Path) -> None:
    """alibi, rope and none have the same weights by name and shape: only the hash tells."""
    config = run_folder(study) / "config.yaml"
    text = config.read_text()
    assert "buckets: 32" in text
    config.write_text(text.replace("max_distance: 128", "max_distance: 64"))
    done = command("-m", "pipeline", "evaluate", run_folder(study), expect=3)
    config.write_text(text)
    assert "config.yaml is not what " in done.stderr


def test_a_changed_corpus_is_refused(study: Path) -> None:
    """By evaluate, and by the study when it would keep a finished run."""
    more = study / "corpus" / "more.txt"
    more.write_text("text that was not there in training")
    for arguments in (("-m", "pipeline", "evaluate", run_folder(study)),
                      ("train.py", study / "study.yaml")):  # fmt: skip
        assert "is not what" in command(*arguments, expect=2).stderr
    more.unlink()


def test_evaluate_takes_one_set_of_settings(study: Path) -> None:
    sweep = "sweep={evaluate.split: [test, validation]}"
    done = command("-m", "pipeline", "evaluate", run_folder(study), sweep, expect=2)
    assert "one set of settings" in done.stderr


def test_runs_scored_on_different_text_get_tables_of_their_own(study: Path) -> None:
    out = study / "apart"
    sweep = "sweep={evaluate.documents: [2, 3]}"
    small = ("position=none", "trainer.max_steps=3", f"runs={out}")
    done = command("train.py", study / "study.yaml", *small, sweep)
    assert "evaluate.documents=2" in done.stdout and "evaluate.documents=3" in done.stdout
    assert done.stdout.count("report: ") == 2
    again = command("-m", "pipeline", "report", out, "--out", out / "report")
    assert again.stdout.count("report: ") == 2


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_when_the_command_is_stopped_its_ranks_stop_too(
    study: Path, number: int, code: int
) -> None:
    out = study / f"stopped{number}"
    arguments = [str(study / "study.yaml"), "position=none", "trainer.max_steps=1000000"]
    parent = subprocess.Popen(
        [sys.executable, "train.py", *arguments, f"runs={out}"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    metrics = out / "path" / "none-L33-s0" / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and metrics.stat().st_size > 0, 90)
    parent.send_signal(number)
    said, _ = parent.communicate(timeout=60)
    assert parent.returncode == code
    if number == signal.SIGINT:
        assert "stopped by you" in said
    wait_for(lambda: not ranks_of(out), 20)


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.1)


def ranks_of(folder: Path) -> list[str]:
    """Living rank processes of a runs folder, by their command line."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            text = entry.read_bytes().decode(errors="replace")
            if "pipeline.launch.rank" in text and str(folder) in text:
                found.append(text)
    return found


def test_a_damaged_checkpoint_is_refused(study: Path) -> None:
    weights = run_folder(study, "learned") / "checkpoints" / "step-6" / "weights.pt"
    whole = bytearray(weights.read_bytes())
    whole[len(whole) // 2] ^= 1
    weights.write_bytes(whole)
    done = command("-m", "pipeline", "evaluate", run_folder(study, "learned"), expect=3)
    assert "weights.pt: sha256" in done.stderr
