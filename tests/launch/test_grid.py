"""One command tests a trained run under every extension that fits it, at every scale."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.config.compose import load
from pipeline.config.label import label
from pipeline.launch import grid
from pipeline.launch.cli import main
from pipeline.launch.retest import Retest
from pipeline.positions import registry
from pipeline.record.metrics import read_rows
from tests.launch.made_study import command, write_study

pytestmark = pytest.mark.distributed

ONE = ("trainer.processes=1", "trainer.sequence_parallel=1")
# what does not fit rope: positions in the input, and learned ones
UNFIT = {"hierarchical"}
SCALED = {
    "interpolation": "scale=2", "ntk": "scale=2", "longrope": "scale=2 factors=[2]",
    "llama3": "factor=2", "leaky_rerope": "factor=2.142857142857143", "self_extend": "group=3",
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run of rope that was tested by the grid at twice its length."""
    folder: Path = tmp_path_factory.mktemp("grid")
    command("train.py", write_study(folder, "rope"), *ONE, "evaluate.task_examples=2",
            "evaluate.tasks=[copy]")  # fmt: skip
    run = folder / "runs" / "path" / "rope-L33-s0"
    done = command("-m", "pipeline", "grid", run, "--scales", "2,4")
    (folder / "said").write_text(done.stdout + done.stderr)
    return run


def folders(run: Path) -> dict[str, Path]:
    return {path.parent.name: path for path in (run / "evaluation").glob("*/rows.jsonl")}


def test_every_extension_that_fits_has_its_rows(run: Path) -> None:
    found = folders(run)
    tested = {read_rows(path)[0]["extension"] for path in found.values()}
    assert tested == set(registry.extension_names()) - UNFIT
    said = (run.parents[2] / "said").read_text()
    for name in UNFIT:
        assert f"note: {name} is left out: " in said
    labels = {
        row["extension"] + " " + row["extension_settings"]
        for path in found.values()
        for row in read_rows(path)
    }
    for name, settings in SCALED.items():
        assert any(re.match(rf"{name} .*{re.escape(settings)}( |$)", x) for x in labels), name
        assert sum(x.startswith(f"{name} ") for x in labels) == 2
    assert sum(x.startswith("window ") for x in labels) == 1
    for one in labels:
        assert f"rope + {one}" in said


def test_each_length_is_a_row_and_nothing_else_is_measured(run: Path) -> None:
    for path in folders(run).values():
        cells = [(row["protocol"], row["length"]) for row in read_rows(path)]
        assert cells == [("suffix", n) for n in (16, 33, 66, 132)] + [("window control", 33)]


def test_given_again_it_measures_what_is_missing(run: Path) -> None:
    found = folders(run)
    found["window-window_share=1"].unlink()
    written = {path: path.stat().st_mtime_ns for path in found.values() if path.exists()}
    command("-m", "pipeline", "grid", run, "--scales", "2,4")
    assert folders(run) == found
    assert all(path.stat().st_mtime_ns == when for path, when in written.items())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scales", "two"], "--scales two: numbers with commas"),
        (["--scales", "1,2"], "above 1; 1 is not one"),
        (["eval_lengths=[16,33]"], "eval_lengths has none beyond it"),
        (["extension=yarn"], "grid tests all of them"),
        (["extension.scale=4"], "grid tests all of them"),
        (["seed=1"], "seed: belongs to how"),
        (["evaluate.documents=2"], "must be comparable"),
        (["evaluate.tasks=[copy]", "evaluate.task_examples=3"], "must be comparable"),
    ],
)
def test_what_it_cannot_do_is_refused(
    arguments: list[str], message: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    assert main(["grid", str(run), *arguments]) == 2
    assert re.search(message, capsys.readouterr().err)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_the_extension_that_a_run_was_trained_under_is_left_to_its_own_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are of the whole suite, and the grid would replace them by a part of it."""
    path = tmp_path / "config.yaml"
    path.write_text(
        "{position: rope, train_length: 256, encoding_length: 128, init_from: before, "
        "extension: {name: yarn, scale: 2.0}, eval_lengths: [64, 256, 512]}"
    )
    folder = SimpleNamespace(config=path, path=tmp_path)
    asked: list[Retest] = []

    def read_test(folder: Any, overrides: list[str], command: str) -> Retest:
        configs = [load(path, found, trains=False)[0] for found in ([], overrides)]
        return Retest(folder, configs[0], configs[1], overrides, [])

    monkeypatch.setattr(grid, "finished_run", lambda path: folder)
    monkeypatch.setattr(grid, "read_test", read_test)
    monkeypatch.setattr(grid, "prepared_text", lambda tests: None)
    monkeypatch.setattr(grid, "run_tests", lambda tests, prepared: asked.extend(tests))
    monkeypatch.setattr(grid, "collect", lambda folders: None)
    monkeypatch.setattr(grid, "text_table", lambda study: "")
    grid.test_grid(tmp_path, [2.0, 4.0], [])
    tested = [label(test.config.extension) for test in asked]
    assert not any(one.startswith("yarn") and "scale=2 " in one for one in tested)
    assert sum(one.startswith("yarn") for one in tested) == 1
    assert sum(one.startswith("interpolation") for one in tested) == 2
