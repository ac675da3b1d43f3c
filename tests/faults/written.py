"""What a run writes, one file at a time, and how each behaves on a disk that refuses."""

import errno
import functools
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline.checkpoint.export import latest_export, load_export, save_export
from pipeline.checkpoint.state import MOMENTS, Keeper, TrainingState, find_state
from pipeline.config.durable import write_file
from pipeline.config.redact import canonical_yaml
from pipeline.config.schema import Config
from pipeline.errors import StorageError, disk_refused
from pipeline.launch import probe
from pipeline.record.evaluation import EvaluationLog, read_values
from pipeline.record.folder import RunFolder
from pipeline.record.metrics import MetricsLog, read_rows
from tests.faults.inject import refusing_disk
from tests.launch.made_origin import small_config
from tests.launch.test_resuming import go_on

CODES = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
FREE = re.compile(r"\d+ bytes are free there")


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


@functools.cache
def first_config() -> Config:
    return small_config(Path("runs"))


def config_in(runs: Path) -> Config:
    return replace(first_config(), runs=str(runs))


def create_run(folder: Path, turn: int) -> RunFolder:
    run = RunFolder.create(config_in(folder), name=f"run-{turn}")
    run.release()
    return run


def made_runs(folder: Path) -> dict[str, bool]:
    """The runs there, none of them half made, and whether each is finished."""
    runs = [RunFolder(path) for path in sorted((folder / "first").iterdir())]
    for run in runs:
        assert canonical_yaml(config_in(folder)) in run.config.read_text()
        assert json.loads(run.environment.read_text())
        assert not list(run.path.glob("*.partial")) and not (run.path / "lock").exists()
    return {run.path.name: run.finished for run in runs}


def whole_run(folder: Path, turn: int) -> None:
    assert made_runs(folder) == {f"run-{n}": False for n in range(1, turn + 1)}


def finish_run(folder: Path, turn: int) -> None:
    create_run(folder, turn).mark_finished()


def whole_end(folder: Path, turn: int) -> None:
    # the second is made, and stays unfinished where the disk refused the marker
    assert {"run-2": False} | made_runs(folder) == {"run-1": True, "run-2": turn == 2}


def write_restart(folder: Path, turn: int) -> None:
    run = RunFolder(folder / "first" / "run-1")
    if not run.path.exists():
        create_run(folder, 1)
        with MetricsLog(run.metrics) as log:
            log.write({"kind": "train", "step": 1, "loss": 2.5})
    go_on(config_in(folder), run)


def whole_restarts(folder: Path, turn: int) -> None:
    run = RunFolder(folder / "first" / "run-1")
    assert [row["step"] for row in read_rows(run.restarts)] == [0] * turn
    assert read_rows(run.metrics) == []


def write_probes(folder: Path, turn: int) -> None:
    rows = [{"probe": "attention", "distance": 1.5, "turn": turn}] * 9
    probe._write(folder / "probes" / "rows.jsonl", rows)


def whole_probes(folder: Path, turn: int) -> None:
    assert [row["turn"] for row in read_rows(folder / "probes" / "rows.jsonl")] == [turn] * 9


@dataclass(frozen=True)
class Written:
    """What is written, by which name its file lies there at the end, and under which it was
    written if that is another."""

    write: Callable[[Path, int], object]
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
        assert FREE.search(said), said
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
CONFIG = Written(create_run, whole_run, "config.yaml", "config.yaml.partial")
ENVIRONMENT = Written(create_run, whole_run, "environment.json", "environment.json.partial")
FINISHED = Written(finish_run, whole_end, "finished", "finished.partial")
RESTARTS = Written(write_restart, whole_restarts, "restarts.jsonl")
PROBES = Written(write_probes, whole_probes, "rows.jsonl", "rows.jsonl.partial")
EVERY = (
    METRICS, ROWS, VALUES, WEIGHTS, MANIFEST, OPTIMIZER, LATEST, SUMMARY, CONFIG, ENVIRONMENT,
    FINISHED, RESTARTS, PROBES,
)  # fmt: skip
