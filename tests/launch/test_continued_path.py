"""A run continued on two real ranks, from the command to the table."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from pipeline.checkpoint.export import load_manifest
from pipeline.config.compose import load
from pipeline.data.prepare import prepare
from pipeline.data.sequences import Sequences, step_indices
from pipeline.launch.cli import main
from pipeline.launch.continued import read_start
from pipeline.record.metrics import read_rows
from pipeline.training.start import build_decoder
from tests.launch.made_study import command, write_study

pytestmark = pytest.mark.distributed

OWN = ("interpolation", "scale=2")
LABEL = "rope (interpolation scale=2, from L33)"


def asked(study: Path) -> list[str]:
    """One rank trained at 33 tokens; two share sequences of 66 and, by ZeRO-3, the weights."""
    return [
        str(study / "study.yaml"),
        f"init_from={study}/runs/path/{{position}}-L33-s{{seed}}",
        *("train_length=66", "extension=interpolation", "extension.scale=2", "experiment=longer"),
        *("trainer.max_steps=4", "trainer.zero_stage=3", "trainer.sequence_parallel=2"),
        "trainer.log_every=1",
    ]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run and of one that continues it."""
    folder: Path = tmp_path_factory.mktemp("continued")
    one = ("trainer.processes=1", "trainer.sequence_parallel=1", "trainer.evaluate_every=0",
           "evaluate.short_documents=8")  # fmt: skip
    command("train.py", write_study(folder, "rope"), *one)
    done = command("train.py", *asked(folder))
    (folder / "stderr").write_text(done.stderr)
    return folder


def run_of(study: Path) -> Path:
    return study / "runs" / "longer" / "rope-L66-s0"


def test_it_is_trained_and_tested_under_the_extension(study: Path) -> None:
    run = run_of(study)
    short = [row for row in read_rows(run / "metrics.jsonl") if row["kind"] == "evaluation"]
    rows = read_rows(run / "evaluation" / "rows.jsonl")
    assert short and rows
    assert {(row["extension"], row["extension_settings"]) for row in [*short, *rows]} == {OWN}
    assert {row["train_length"] for row in rows} == {66}
    control = [row["length"] for row in rows if row["protocol"] == "window control"]
    assert control == [66]
    assert f"rope (interpolation scale=2, from {study}/runs/path/rope-L33-s0)" in (
        (study / "stderr").read_text()
    )


def test_its_first_loss_is_that_of_the_given_weights_on_the_text_that_comes_next(
    study: Path,
) -> None:
    (config,) = load(run_of(study) / "config.yaml", [])
    start, _ = read_start(config)
    decoder = build_decoder(config, start)
    sequences = Sequences(prepare(config.data).split("train"), 66)
    read = [sequences.read(int(i), 0, 66) for i in step_indices(0, 6, 8, len(sequences))]
    tokens, labels = (torch.from_numpy(np.stack(part)) for part in zip(*read, strict=True))
    expected = float(decoder(tokens, labels, torch.arange(66)[None]).detach().mean())
    first = read_rows(run_of(study) / "metrics.jsonl")[0]
    assert (first["kind"], first["step"]) == ("train", 1)
    assert first["loss"] == pytest.approx(expected, abs=1e-5)


def test_its_configuration_and_lineage_say_where_it_is_from(study: Path) -> None:
    saved = yaml.safe_load((run_of(study) / "config.yaml").read_text())
    assert (saved["train_length"], saved["encoding_length"]) == (66, 33)
    (origin,) = json.loads((run_of(study) / "summary.json").read_text())["lineage"]
    before = study / "runs/path/rope-L33-s0"
    held = load_manifest(before / "checkpoints/step-6")
    assert origin == {
        "run": "path/rope-L33-s0",
        "config_hash": held["config_hash"],
        "step": 6,
        "tokens": 6 * 8 * 33,
        "train_length": 33,
        "extension": "none",
        "weights_sha256": held["sha256"],
        "training_sha256": json.loads((before / "summary.json").read_text())["training_sha256"],
    }
    assert len(origin["training_sha256"]) == 1
    tokens = json.loads((run_of(study) / "summary.json").read_text())["tokens"]
    assert tokens == 4 * 8 * 66


def test_it_is_kept_when_it_is_asked_for_again(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *asked(study)]) == 0
    printed = capsys.readouterr()
    assert "is finished; kept as it is" in printed.err and LABEL in printed.out


def test_it_can_be_tested_without_its_extension_and_the_report_shows_all(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = (run_of(study) / "evaluation" / "rows.jsonl").read_bytes()
    done = command("-m", "pipeline", "evaluate", run_of(study), "extension=none")
    assert "in place of interpolation scale=2, which it was trained under" in done.stderr
    assert (run_of(study) / "evaluation" / "rows.jsonl").read_bytes() == own
    rows = read_rows(run_of(study) / "evaluation" / "none" / "rows.jsonl")
    assert {row["extension"] for row in rows} == {"none"}
    assert main(["report", str(study / "runs"), "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    labels = [line.split("  ")[0] for line in printed.splitlines() if "suffix loss" in line]
    assert sorted(labels) == ["rope", LABEL, f"{LABEL} + none"]
    pages = [page.read_text() for page in tmp_path.glob("*/index.html")]
    told = "longer/rope-L66-s0 continues path/rope-L33-s0 (6 steps of 33 tokens a sequence, 1,584 "
    assert sum(told in page for page in pages) == 1
