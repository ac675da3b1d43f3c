import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.errors import DataError
from pipeline.record.metrics import read_rows
from pipeline.report.collect import collect
from tests.report.synthetic import write_extended, write_rows, write_run


def test_a_run_that_is_not_finished_is_refused(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "rope")
    (folder / "finished").unlink()
    with pytest.raises(DataError, match="rope-L128-s0 holds a run that is not finished"):
        collect([folder])


@pytest.mark.parametrize("file", ["finished", "config.yaml"])
def test_a_run_that_was_finished_under_another_configuration_is_refused(
    tmp_path: Path, file: str
) -> None:
    folder = write_run(tmp_path, "rope")
    with (folder / file).open("a") as changed:
        changed.write("more: 1\n")
    with pytest.raises(DataError, match="config.yaml was changed after the run finished, or "):
        collect([folder])


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a run folder"):
        collect([tmp_path])
    with pytest.raises(DataError, match="no run folder given"):
        collect([])


@pytest.mark.parametrize("content", ["", "{", "[1]", "a: [", "\x00"])
def test_a_damaged_file_is_named(tmp_path: Path, content: str) -> None:
    for name in ("summary.json", "config.yaml", "environment.json"):
        folder = write_run(tmp_path / name, "rope")
        (folder / name).write_text(content)
        with pytest.raises(DataError, match=name):
            collect([folder])


def damage(path: Path, line: int, **changes: Any) -> None:
    """Change one row of a file; a change to ... takes the key away."""
    rows = read_rows(path)
    changed = {**rows[line], **changes}
    rows[line] = {key: value for key, value in changed.items() if value is not ...}
    write_rows(path, rows)


@pytest.mark.parametrize(
    ("name", "key"),
    [("summary.json", "parameters"), ("environment.json", "python"), ("config.yaml", "position")],
)
def test_a_file_without_keys_is_named_with_the_first(tmp_path: Path, name: str, key: str) -> None:
    folder = write_run(tmp_path, "rope")
    (folder / name).write_text("{}")
    with pytest.raises(DataError, match=rf"{name}: has no `{key}"):
        collect([folder])


@pytest.mark.parametrize("key", ["position", "train_length", "seed"])
def test_a_configuration_without_a_key_is_refused(tmp_path: Path, key: str) -> None:
    folder = write_run(tmp_path, "rope")
    path = folder / "config.yaml"
    settings = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**settings, key: None}))
    with pytest.raises(DataError, match=rf"config\.yaml: (`{key}` = null|has no `{key}\.)"):
        collect([folder])
    del settings[key]
    path.write_text(yaml.safe_dump(settings))
    with pytest.raises(DataError, match=rf"config\.yaml: has no `{key}"):
        collect([folder])


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (0, "protocol"), (0, "length"), (0, "defined"), (0, "loss"), (0, "documents"),
        (0, "scored_tokens"), (0, "split"), (0, "text_sha256"), (0, "seed"), (0, "train_length"),
        (0, "tokens"), (0, "suffix_tokens"), (1, "stride"), (-2, "suffix_tokens"), (-1, "bin"),
        (-1, "losses"),
    ],
)  # fmt: skip
def test_an_evaluation_row_without_a_key_is_named(tmp_path: Path, line: int, key: str) -> None:
    folder = write_run(tmp_path, "rope")
    path = folder / "evaluation" / "rows.jsonl"
    number = range(1, len(read_rows(path)) + 1)[line]
    damage(path, line, **{key: ...})
    with pytest.raises(DataError, match=rf"rows\.jsonl:{number}: has no `{key}`"):
        collect([folder])


def test_a_defined_row_needs_a_loss(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "rope")
    damage(folder / "evaluation" / "rows.jsonl", 0, loss=None)
    with pytest.raises(DataError, match=r"rows\.jsonl:1: `loss` = null must be int or float"):
        collect([folder])


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (0, "kind"), (0, "tokens"), (0, "loss"), (-1, "tokens"), (-1, "protocol"), (-1, "length"),
        (-1, "loss"),
    ],
)  # fmt: skip
def test_a_metrics_row_without_a_key_is_named(tmp_path: Path, line: int, key: str) -> None:
    folder = write_run(tmp_path, "rope")
    path = folder / "metrics.jsonl"
    damage(path, line, **{key: ...})
    with pytest.raises(DataError, match=rf"metrics\.jsonl:\d+: has no `{key}`"):
        collect([folder])


def test_rows_of_an_extension_are_taken_for_those_of_no_other(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "rope")
    own = folder / "evaluation" / "rows.jsonl"
    path = write_extended(folder, "yarn", "scale=4")
    moved = path.parent.with_name("yarn-scale=8")
    path.parent.rename(moved)
    with pytest.raises(DataError, match=r"yarn-scale=8.*:1: .*'yarn scale=4' among those of 'yarn"):
        collect([folder])
    moved.rename(path.parent)
    damage(path, 2, extension_settings="scale=2")
    with pytest.raises(DataError, match=r"rows\.jsonl:3: a row of extension 'yarn scale=2' among"):
        collect([folder])
    damage(path, 2, extension_settings=...)
    with pytest.raises(DataError, match=r"rows\.jsonl:3: has no `extension_settings`"):
        collect([folder])
    path.replace(own)
    with pytest.raises(DataError, match="'yarn scale=4' among those of the trained encoding"):
        collect([folder])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    for number, name in enumerate(("summary.json", "metrics.jsonl", "evaluation/rows.jsonl")):
        folder = write_run(tmp_path / str(number), "rope")
        (folder / name).unlink()
        with pytest.raises(DataError, match=name):
            collect([folder])


def test_rows_without_a_suffix_loss_are_refused(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "rope")
    (folder / "evaluation" / "rows.jsonl").write_text(json.dumps({"protocol": "sliding"}) + "\n")
    with pytest.raises(DataError, match=r"rows\.jsonl: no row of protocol 'suffix'"):
        collect([folder])
