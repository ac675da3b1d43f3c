"""A disk that refuses at any byte, at fsync or at rename, of every file that a run writes: one
error that names the place; what was there is whole, and nothing partial is taken for whole."""

import errno
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline.checkpoint.export import latest_export, load_export, save_export
from pipeline.checkpoint.state import MOMENTS, Keeper, TrainingState, find_state
from pipeline.config.durable import write_file
from pipeline.config.schema import DataConfig
from pipeline.data.prepare import open_prepared, prepare
from pipeline.errors import StorageError, disk_refused
from pipeline.launch import cli, rank
from pipeline.launch.commands import training
from pipeline.record.evaluation import EvaluationLog, read_values
from pipeline.record.folder import RunFolder
from pipeline.record.metrics import MetricsLog, read_rows
from tests.distributed.ranks import ROOT
from tests.faults.inject import refusing_disk

CODES = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def write_metrics(folder: Path, turn: int) -> None:
    with MetricsLog(folder / "metrics.jsonl") as log:
        log.write({"kind": "train", "step": turn, "loss": 2.5})


def whole_metrics(folder: Path, turn: int) -> None:
    rows = read_rows(folder / "metrics.jsonl")
    assert [row["step"] for row in rows] == list(range(1, turn + 1))


def write_evaluation(folder: Path, turn: int) -> None:
    log = EvaluationLog(folder / "evaluation" / "rows.jsonl", f"evaluation {turn}")
    log.write({"key": "suffix-128", "loss": float(turn)}, {"nats": np.full(50, turn, np.float32)})
    log.finish(["suffix-128"])


def whole_evaluation(folder: Path, turn: int) -> None:
    path = folder / "evaluation" / "rows.jsonl"
    (row,) = read_rows(path)
    assert row["loss"] == turn
    assert (read_values(path, row)["nats"] == turn).all()


def tensors(turn: int) -> dict[str, torch.Tensor]:
    return {"a": torch.full((100,), float(turn)), "b": torch.full((7,), -float(turn))}


def write_export(folder: Path, turn: int) -> None:
    facts = {"step": turn, "tokens": 9, "config_hash": "c"}
    save_export(folder / "checkpoints", tensors(turn), **facts)  # type: ignore[arg-type]


def whole_export(folder: Path, turn: int) -> None:
    latest = latest_export(folder / "checkpoints")
    assert latest.name == f"step-{turn}"
    weights, _ = load_export(latest)
    assert weights.keys() == tensors(turn).keys()
    assert all(torch.equal(weights[name], one) for name, one in tensors(turn).items())


def write_state(folder: Path, turn: int) -> None:
    newest = folder / "checkpoints" / "step-1" if turn > 1 else None
    keeper = Keeper(folder / "checkpoints", 2, {"config_hash": "c"}, newest)
    moments = {name: tensors(turn) for name in MOMENTS}
    keeper.save(TrainingState(turn, 9, 1.0, tensors(turn), moments))


def whole_state(folder: Path, turn: int) -> None:
    found = find_state(folder / "checkpoints")
    # `latest` comes after the checkpoint itself, and nothing depends on it
    assert found is not None and found.bad == () and found.manifest["step"] >= turn


def write_summary(folder: Path, turn: int) -> None:
    try:
        write_file(folder / "summary.json", json.dumps({"turn": turn, "more": "x" * 99}).encode())
    except OSError as error:
        refused = disk_refused(error)
        assert refused is not None
        raise refused from error


def whole_summary(folder: Path, turn: int) -> None:
    assert json.loads((folder / "summary.json").read_text())["turn"] == turn
    assert [path.name for path in folder.iterdir()] == ["summary.json"]


@dataclass(frozen=True)
class Written:
    """What is written, and by which name its file lies there at the end."""

    write: Callable[[Path, int], None]
    whole: Callable[[Path, int], None]
    file: str
    renamed: str = ""

    def refuse(self, folder: Path, name: str, code: int, at: int | str) -> None:
        """Write once, be refused the second time, look, and write the second time again."""
        self.write(folder, 1)
        self.whole(folder, 1)
        with refusing_disk(name, code, at) as refused:
            with pytest.raises(StorageError) as caught:
                self.write(folder, 2)
            assert refused
        said = str(caught.value)
        assert caught.value.exit_code == 74 and str(folder) in said and "\n" not in said
        self.whole(folder, 1)
        self.write(folder, 2)
        self.whole(folder, 2)


METRICS = Written(write_metrics, whole_metrics, "metrics.jsonl")
ROWS = Written(write_evaluation, whole_evaluation, "rows.jsonl", "rows.jsonl.partial")
VALUES = Written(write_evaluation, whole_evaluation, ".npz", ".npz.partial")
WEIGHTS = Written(write_export, whole_export, "weights.pt")
MANIFEST = Written(write_export, whole_export, "manifest.json")
FOLDER = Written(write_export, whole_export, "manifest.json", "step-2.partial")
OPTIMIZER = Written(write_state, whole_state, "optimizer.pt", "step-2.partial")
LATEST = Written(write_state, whole_state, "latest", "latest.partial")
SUMMARY = Written(write_summary, whole_summary, "summary.json", "summary.json.partial")
EVERY = (METRICS, ROWS, VALUES, WEIGHTS, MANIFEST, OPTIMIZER, LATEST, SUMMARY)


def label(value: object) -> str:
    return value.file if isinstance(value, Written) else str(value)


@pytest.mark.parametrize("code", CODES, ids=lambda code: errno.errorcode[code])
@pytest.mark.parametrize("written", EVERY, ids=label)
def test_refused_at_any_byte(tmp_path: Path, written: Written, code: int) -> None:
    measured = tmp_path / "measured"
    measured.mkdir()
    written.write(measured, 1)
    size = max(p.stat().st_size for p in measured.rglob(f"*{written.file}"))
    for at in sorted({0, 1, size // 2, size - 1}):
        folder = tmp_path / f"at-{at}"
        folder.mkdir()
        written.refuse(folder, written.file, code, at)


@pytest.mark.parametrize(
    ("written", "step"),
    [
        *((one, "fsync") for one in (WEIGHTS, MANIFEST, OPTIMIZER, LATEST, SUMMARY)),
        *((one, "rename") for one in (ROWS, VALUES, FOLDER, OPTIMIZER, LATEST, SUMMARY)),
    ],
    ids=label,
)
def test_refused_when_made_durable(tmp_path: Path, written: Written, step: str) -> None:
    name = written.renamed if step == "rename" else written.file
    written.refuse(tmp_path, name, errno.ENOSPC, step)


@pytest.mark.parametrize(("name", "at"), [(".tokens", 100), ("manifest", 3), ("manifest", "fsync")])
def test_a_corpus_that_was_half_prepared_is_not_taken_for_whole(
    tmp_path: Path, name: str, at: int | str
) -> None:
    text = "\n\n".join(f"Document {n} is about the number {n * n}." for n in range(400))
    (tmp_path / "corpus.txt").write_text(text)
    config = DataConfig(
        source=str(tmp_path / "corpus.txt"),
        prepared=str(tmp_path / "prepared"),
        vocab=300,
        tokenizer_bytes=10_000,
    )
    with refusing_disk(name, errno.ENOSPC, at) as refused:
        with pytest.raises(StorageError) as caught:
            prepare(config)
        assert refused
    assert caught.value.exit_code == 74 and str(tmp_path / "prepared") in str(caught.value)
    assert [p for p in (tmp_path / "prepared").iterdir() if p.name.startswith("corpus")] == []
    assert open_prepared(prepare(config).folder).corpus_sha256


@pytest.mark.parametrize("code", CODES)
def test_what_nobody_expected_to_be_refused_ends_with_74_as_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(code, "refused", "/runs/a/summary.json")

    monkeypatch.setattr(RunFolder, "open", full)
    assert rank.main(["train", "run", "prepared"]) == 74
    monkeypatch.setattr(training, "load", full)
    assert cli.main(["prepare", "config.yaml"]) == 74
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all("error: /runs/a/summary.json: cannot be written: refused" in said for said in lines)


def test_a_mistake_of_the_program_is_not_blamed_on_the_disk() -> None:
    assert disk_refused(FileNotFoundError(errno.ENOENT, "no such file", "x")) is None


def test_a_real_limit_on_the_size_of_files_is_met_as_well(tmp_path: Path) -> None:
    code = """
import resource, signal, sys
from pathlib import Path
import torch
from pipeline.checkpoint.export import save_export
from pipeline.errors import StorageError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
facts = {"tokens": 1, "config_hash": "c"}
save_export(Path(sys.argv[1]), {"a": torch.ones(20000)}, step=1, **facts)
resource.setrlimit(resource.RLIMIT_FSIZE, (40000, 40000))
try:
    save_export(Path(sys.argv[1]), {"a": torch.ones(20000)}, step=2, **facts)
except StorageError as error:
    print(error)
    sys.exit(error.exit_code)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "checkpoints")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 74, done.stderr
    assert str(tmp_path / "checkpoints" / "step-2") in done.stdout
    latest = latest_export(tmp_path / "checkpoints")
    assert latest.name == "step-1" and load_export(latest)[0]["a"].sum() == 20000
