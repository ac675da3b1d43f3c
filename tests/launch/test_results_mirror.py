"""What W&B gets at the end of a run, beside its rows."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pipeline.evaluate.tasks import depth_means
from pipeline.launch.results_mirror import COLUMNS, mirror_results, mirror_tasks
from pipeline.record.folder import RunFolder
from pipeline.record.metrics import read_rows
from tests.report.synthetic import write_run
from tests.report.test_tasks import write_tasks


class Heard:
    """Stands for a mirror; keeps what it is handed."""

    def __init__(self, sends: bool = True) -> None:
        self.sends = sends
        self.rows: list[dict[str, Any]] = []
        self.images: dict[str, Path] = {}
        self.tables: dict[str, list[dict[str, Any]]] = {}
        self.figures: dict[str, Any] = {}

    def log(self, row: dict[str, Any]) -> None:
        self.rows.append(row)

    def image(self, name: str, path: Path) -> None:
        self.images[name] = path

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        self.tables[name] = [dict(zip(columns, row, strict=True)) for row in rows]

    def summary(self, values: Mapping[str, Any]) -> None:
        self.figures.update(values)


def told(folder: Path, mirror: Heard) -> None:
    mirror_tasks(mirror, RunFolder(folder))  # type: ignore[arg-type]


def test_needles_get_their_means_and_their_heatmap(tmp_path: Path) -> None:
    folder, mirror = write_tasks(write_run(tmp_path, "learned"), "learned"), Heard()
    told(folder, mirror)
    assert mirror.rows == depth_means(read_rows(folder / "evaluation" / "rows.jsonl"))
    assert [(row["task"], row["length"]) for row in mirror.rows] == [
        ("passkey", 64), ("passkey", 128),
    ]  # fmt: skip
    (path,) = mirror.images.values()
    assert list(mirror.images) == ["eval/passkey_heatmap"]
    assert path.parent == folder / "wandb" and path.read_bytes().startswith(b"\x89PNG\r\n")


def test_a_picture_that_fails_is_said_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no canvas")

    monkeypatch.setattr("pipeline.report.heatmap.needle_figure", broken)
    folder, mirror = write_tasks(write_run(tmp_path, "rope"), "rope"), Heard()
    told(folder, mirror)
    assert "needle-passkey.png could not be drawn (no canvas)" in capsys.readouterr().err
    assert len(mirror.rows) == 4 and not mirror.images


def test_nothing_is_made_for_nobody_or_without_tasks(tmp_path: Path) -> None:
    without, folder = write_run(tmp_path, "t5"), write_run(tmp_path, "rope")
    for run, sends in ((without, True), (write_tasks(folder, "rope"), False)):
        mirror = Heard(sends)
        told(run, mirror)
        assert not mirror.rows and not mirror.images and not (run / "wandb").exists()


def test_cost_and_quality_are_figures_and_every_row_is_in_a_table(tmp_path: Path) -> None:
    folder, mirror = write_tasks(write_run(tmp_path, "learned"), "learned"), Heard()
    summary = json.loads((folder / "summary.json").read_text())
    mirror_results(mirror, RunFolder(folder), summary)  # type: ignore[arg-type]
    rows = read_rows(folder / "evaluation" / "rows.jsonl")
    suffix = {row["length"]: row["loss"] for row in rows if row["protocol"] == "suffix"}
    assert suffix[2048] is None and mirror.figures == {
        "cost/parameters": 1_050_000, "cost/position_parameters": 16384,
        "cost/tokens_per_second": summary["tokens_per_second"],
        "cost/peak_memory_bytes": 700 * 2**20, "cost/train_seconds": 61.0,
        "quality/suffix_loss_L64": suffix[64], "quality/suffix_loss_L128": suffix[128],
    }  # fmt: skip
    (table,) = mirror.tables.values()
    assert table == [{column: row.get(column) for column in COLUMNS} for row in rows]
    assert list(mirror.tables) == ["eval/rows"] and list(mirror.images) == ["eval/passkey_heatmap"]
