"""Which folders are runs, and where a report of them may go."""

import os
import shutil
from pathlib import Path

import pytest

from pipeline.errors import ConfigError
from pipeline.launch.cli import main
from pipeline.launch.tables import find_runs
from tests.report.synthetic import write_run


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_report_needs_run_folders(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(here)]) == 2
    assert "no run folder" in capsys.readouterr().err
    (here / "a" / "b").mkdir(parents=True)
    (here / "a" / "b" / "config.yaml").write_text("")
    (here / "a" / "b" / "environment.json").write_text("{}")
    wandb_own = here / "a" / "b" / "wandb" / "run-1" / "files"
    wandb_own.mkdir(parents=True)
    (wandb_own / "config.yaml").write_text("")
    assert find_runs([here, here / "a"]) == [here / "a" / "b"]


def test_a_run_that_lost_a_file_is_not_left_out(here: Path) -> None:
    run = write_run(here / "runs", "rope")
    (run / "environment.json").unlink()
    assert find_runs([here]) == [run]
    assert main(["report", str(here)]) == 2


def test_links_to_runs_are_followed_and_none_counts_twice(here: Path) -> None:
    run = write_run(here / "runs", "rope")
    (here / "selected").mkdir()
    (here / "selected" / "a").symlink_to(run)
    (here / "selected" / "b").symlink_to(run)
    (here / "selected" / "above").symlink_to(here)
    assert find_runs([here / "selected"]) == [here / "selected" / "a"]
    assert find_runs([here / "runs", here / "selected"]) == [run]


def test_folders_may_go_while_they_are_looked_through(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(here / "runs", "rope")
    scan = os.scandir

    def changed(path: str | int) -> object:
        if isinstance(path, int):
            # a folder that is being deleted
            return scan(path)
        if path.endswith("evaluation"):
            shutil.rmtree(path)
        if path.endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", changed)
    assert find_runs([here]) == [run]
    (here / "closed").mkdir()
    with pytest.raises(ConfigError, match="closed: cannot be looked into: Permission denied"):
        find_runs([here])


def test_a_folder_of_configurations_is_no_run(here: Path) -> None:
    (here / "config.yaml").write_text("")
    run = write_run(here / "runs", "rope")
    assert find_runs([here]) == [run]


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("", "--out: names no folder"),
        ("runs/compare/rope-L128-s0", "is a run folder. Choose another"),
        ("taken", "is a file"),
    ],
)
def test_a_report_goes_to_a_folder_of_its_own(
    here: Path, capsys: pytest.CaptureFixture[str], out: str, words: str
) -> None:
    run = write_run(here / "runs", "rope")
    (here / "taken").write_text("kept")
    before = sorted(here.rglob("*"))
    try:
        code = main(["report", str(run), "--out", out])
    except SystemExit as ended:
        code = int(str(ended.code))
    assert code == 2 and words in capsys.readouterr().err
    assert sorted(here.rglob("*")) == before
