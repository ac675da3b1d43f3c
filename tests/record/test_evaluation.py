"""Rows of an evaluation that is broken off at any point, and started again."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.errors import DataError, StorageError
from pipeline.record.evaluation import EvaluationLog, read_values, row_sha256
from pipeline.record.metrics import read_rows

KEYS = ("suffix-16", "suffix-32", "sliding-16", "per-position-32")


def measured(key: str, by: float = 1.0) -> tuple[dict[str, Any], dict[str, Any]]:
    if key.startswith("per"):
        return {"key": key, "loss": by}, {}
    return {"key": key, "loss": by}, {"nats": np.full(5, by, np.float32)}


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def evaluate(path: Path, identity: str = "a" * 64, by: float = 1.0, stop: int = 99) -> list[str]:
    """Write the rows that are not known, at most `stop` of them; returns their keys."""
    made: list[str] = []
    log = EvaluationLog(path, identity)
    for key in KEYS:
        if key in log.known:
            continue
        if len(made) == stop:
            return made
        log.write(*measured(key, by))
        made.append(key)
    if stop > len(KEYS):
        log.finish(KEYS)
    return made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "evaluation" / "rows.jsonl"


def test_rows_are_written_with_their_values(path: Path) -> None:
    assert evaluate(path) == list(KEYS)
    rows = read_rows(path)
    assert [row["key"] for row in rows] == list(KEYS)
    for row in rows:
        expected = measured(row["key"])[1]
        found = read_values(path, row)
        assert found.keys() == expected.keys()
        assert all((found[name] == expected[name]).all() for name in expected)
    assert {row["evaluation_sha256"] for row in rows} == {"a" * 64}
    assert not list(path.parent.rglob("*.partial"))


@pytest.mark.parametrize("stop", range(5))
def test_broken_off_after_any_row_it_goes_on_and_ends_the_same(
    stop: int, path: Path, tmp_path: Path
) -> None:
    evaluate(tmp_path / "whole" / "rows.jsonl")
    evaluate(path, stop=stop)
    assert not path.exists()
    assert evaluate(path) == list(KEYS[stop:])
    assert contents(path.parent) == contents(tmp_path / "whole")


def test_a_line_or_values_cut_short_are_measured_again(path: Path, tmp_path: Path) -> None:
    evaluate(tmp_path / "whole" / "rows.jsonl")
    evaluate(path, stop=3)
    partial = path.with_name("rows.jsonl.partial")
    partial.write_bytes(partial.read_bytes()[:-4])
    cut = next((path.parent / "values").glob("suffix-16-*.npz"))
    cut.write_bytes(cut.read_bytes()[:-1])
    assert evaluate(path) == ["suffix-16", "sliding-16", "per-position-32"]
    assert sorted(row["key"] for row in read_rows(path)) == sorted(KEYS)
    values = {k: v for k, v in contents(path.parent).items() if k.startswith("values")}
    assert (
        values.items()
        == {k: v for k, v in contents(tmp_path / "whole").items() if k.startswith("values")}.items()
    )


def test_a_row_that_was_changed_is_measured_again(path: Path) -> None:
    evaluate(path, stop=3)
    partial = path.with_name("rows.jsonl.partial")
    partial.write_text(partial.read_text().replace("1.0", "1.5", 1))
    assert evaluate(path) == ["suffix-16", "per-position-32"]
    rows = read_rows(path)
    assert [row["loss"] for row in rows] == [1.0] * 4
    assert [row["row_sha256"] for row in rows] == [row_sha256(row) for row in rows]


def test_the_digest_of_a_row_is_of_all_it_holds_whatever_its_types_and_order() -> None:
    row = {"key": "a", "loss": 0.1 + 0.2, "losses": (1.0, 2.5), "shares": {8: 1, 16: 2}}
    kept = json.loads(json.dumps(row))
    found = row_sha256(row)
    assert (
        found == row_sha256(dict(reversed(kept.items()))) == row_sha256({**kept, "row_sha256": 1})
    )
    for changed in ({"loss": 0.3}, {"losses": [2.5, 1.0]}, {"more": None}, {"key": 0}):
        assert row_sha256({**kept, **changed}) != found


def test_rows_of_another_evaluation_stay_until_the_new_ones_are_whole(path: Path) -> None:
    evaluate(path)
    before = contents(path.parent)
    assert evaluate(path, "b" * 64, 2.0, stop=2) == list(KEYS[:2])
    assert before.items() <= contents(path.parent).items()
    assert all(
        (read_values(path, row).get("nats", np.ones(1)) == 1.0).all() for row in read_rows(path)
    )
    assert evaluate(path, "b" * 64, 2.0) == list(KEYS[2:])
    assert [row["loss"] for row in read_rows(path)] == [2.0] * 4
    named = {row["values"] for row in read_rows(path) if "values" in row}
    assert {file.name for file in (path.parent / "values").iterdir()} == named


@pytest.mark.parametrize("before", [False, True])
def test_killed_after_the_last_row_it_is_finished_all_the_same(before: bool, path: Path) -> None:
    if before:
        evaluate(path, "b" * 64, 2.0)
    assert evaluate(path, stop=4) == list(KEYS)
    assert evaluate(path) == []
    assert [row["loss"] for row in read_rows(path)] == [1.0] * 4
    named = {row["values"] for row in read_rows(path) if "values" in row}
    assert {file.name for file in (path.parent / "values").iterdir()} == named
    assert not list(path.parent.rglob("*.partial"))


def test_a_partial_file_of_another_evaluation_is_not_taken_over(path: Path) -> None:
    evaluate(path, stop=3)
    assert evaluate(path, "b" * 64, 2.0) == list(KEYS)
    assert {row["evaluation_sha256"] for row in read_rows(path)} == {"b" * 64}


def test_a_finished_one_is_not_written_again(path: Path) -> None:
    evaluate(path)
    written = path.stat().st_mtime_ns
    assert evaluate(path) == []
    assert path.stat().st_mtime_ns == written


@pytest.mark.parametrize("name", ["../rows-0123456789ab.npz", "a/b-0123456789ab.npz", "x.npz", 3])
def test_values_are_read_from_their_folder_alone(name: object, path: Path) -> None:
    evaluate(path)
    with pytest.raises(DataError, match="is no name of a file of values"):
        read_values(path, {"values": name})


def test_exchanged_and_missing_values_are_refused(path: Path) -> None:
    evaluate(path)
    first, second = read_rows(path)[:2]
    folder = path.parent / "values"
    (folder / first["values"]).write_bytes((folder / second["values"]).read_bytes() + b"x")
    with pytest.raises(DataError, match="damaged or exchanged"):
        read_values(path, first)
    (folder / first["values"]).unlink()
    with pytest.raises(DataError, match="cannot be read.*evaluate the run again"):
        read_values(path, first)


def test_a_pickle_is_not_loaded(path: Path, tmp_path: Path) -> None:
    """An object array runs code when it is loaded; its name with the right digits does not help."""
    import hashlib
    import io

    class Canary:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "canary",))

    buffer = io.BytesIO()
    np.savez_compressed(buffer, nats=np.array([Canary()], dtype=object))
    digits = hashlib.sha256(buffer.getvalue()).hexdigest()[:12]
    folder = path.parent / "values"
    folder.mkdir(parents=True)
    (folder / f"x-{digits}.npz").write_bytes(buffer.getvalue())
    with pytest.raises(DataError, match="cannot be read"):
        read_values(path, {"values": f"x-{digits}.npz"})
    assert not (tmp_path / "canary").exists()


@pytest.fixture
def refusing(path: Path) -> Iterator[Path]:
    path.parent.mkdir()
    (path.parent / "values").write_text("a file where a folder should be")
    yield path


def test_a_disk_that_refuses_is_said(refusing: Path) -> None:
    with pytest.raises(StorageError, match="cannot be written"):
        evaluate(refusing)
