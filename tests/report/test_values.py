"""The nats that runs keep: which files are read, and which are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.errors import DataError
from pipeline.record.metrics import read_rows
from pipeline.report.collect import collect
from pipeline.report.values import read_values
from tests.report.synthetic import (
    write_extended,
    write_kept,
    write_rows,
    write_run,
    write_values,
)


def edit(run: Path, protocol: str, length: int, **changes: Any) -> None:
    """Change fields of one row of a run."""
    path = run / "evaluation" / "rows.jsonl"
    rows = read_rows(path)
    (row,) = (row for row in rows if (row["protocol"], row["length"]) == (protocol, length))
    row.update(changes)
    write_rows(path, rows)


@pytest.mark.parametrize("name", ["suffix-256", "window-control-128"])
def test_a_file_that_was_left_behind_is_refused_by_name(tmp_path: Path, name: str) -> None:
    run = write_kept(tmp_path, "rope")
    read_values(collect([run]))
    (run / "evaluation" / "values" / f"{name}.npz").unlink()
    with pytest.raises(DataError, match=rf"{name}\.npz: missing, so .* cannot be checked"):
        read_values(collect([run]))


@pytest.mark.parametrize(
    ("protocol", "length"),
    [("suffix", 512), ("window control", 128)],
)
@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("loss", 1.0, r"its mean is \d.\d+ and the loss of its row 1.000000"),
        ("standard_error", 0.5, r"its standard error is 0.\d+ and .* of its row 0.500000"),
        ("standard_error", None, r"its standard error is 0.\d+ and .* of its row null"),
        ("scored_tokens", 64, r"holds \(\d+,\) values instead of those of 64 scored tokens of 32"),
        ("defined", False, "its row is not defined, and so has no values"),
    ],
)
def test_a_row_that_was_changed_is_refused(
    tmp_path: Path, protocol: str, length: int, field: str, value: object, words: str
) -> None:
    run = write_kept(tmp_path, "rope")
    edit(run, protocol, length, **{field: value})
    file = rf"{protocol.replace(' ', '-')}-{length}\.npz"
    with pytest.raises(DataError, match=f"{file}: {words}"):
        read_values(collect([run]))


def test_rows_of_an_extension_are_held_against_their_values(tmp_path: Path) -> None:
    run = write_run(tmp_path, "rope")
    path = write_extended(run, "yarn", "scale=4", change=0.5)
    write_values(path)
    read_values(collect([run]))
    rows = read_rows(path)
    rows[0]["loss"] += 0.001
    write_rows(path, rows)
    with pytest.raises(DataError, match=r"yarn-scale=4/values/suffix-64\.npz: its mean is "):
        read_values(collect([run]))


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("loss", 0.25, "its mean is 0.625000 and the loss"),
        ("rank", 1.0, "its mean rank is 1.500000 and the rank"),
        ("exact_match", 1.0, "its share of exact answers is 0.500000 and the exact_match"),
    ],
)
def test_rows_of_tasks_are_held_against_their_values(
    tmp_path: Path, field: str, value: float, words: str
) -> None:
    """Their examples may have answers of any size."""
    run = write_run(tmp_path, "rope")
    path = run / "evaluation" / "rows.jsonl"
    row = {
        "protocol": "task", "task": "copy", "defined": True, "loss": 0.625, "rank": 1.5,
        "exact_match": 0.5, "examples": 2, "documents": 2, "scored_tokens": 4, "depth": None,
        "choices": 4, "chance": 2.5, "chance_exact_match": 0.1, "real_length": 64.0,
        "real_depth": None, "suffix_tokens": None, "standard_error": None, "values": "copy.npz",
    }  # fmt: skip
    write_rows(path, [*read_rows(path), {**read_rows(path)[0], **row}])
    (path.parent / "values").mkdir()
    arrays: dict[str, Any] = {"nats": [0.5, 0.5, 0.5, 1.0], "rank": [1, 1, 2, 2], "exact": [1, 0]}
    np.savez(path.parent / "values" / "copy.npz", **arrays)
    read_values(collect([run]))
    edit(run, "task", 64, **{field: value})
    with pytest.raises(DataError, match=rf"copy\.npz: {words}"):
        read_values(collect([run]))


def test_values_of_different_size_are_refused_with_both_files(tmp_path: Path) -> None:
    one = write_kept(tmp_path, "rope")
    two = write_run(tmp_path, "t5", row={"documents": 16})
    write_values(two / "evaluation" / "rows.jsonl")
    with pytest.raises(DataError) as caught:
        read_values(collect([one, two]))
    for run in (one, two):
        assert str(run / "evaluation" / "values" / "suffix-64.npz") in str(caught.value)
    assert "(32, 64) and (16, 64)" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"nats": np.zeros(2047)}, r"holds \(2047,\) values instead of those of 32 documents"),
        ({"nats": np.full(2048, 9.0)}, "its mean is 9.000000 and the loss of its row"),
        ({"other": np.zeros(2048)}, "cannot be read"),
    ],
)
def test_values_that_do_not_belong_to_their_row_are_refused(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    run = write_kept(tmp_path, "rope")
    np.savez(run / "evaluation" / "values" / "suffix-256.npz", **change)
    with pytest.raises(DataError, match=rf"suffix-256\.npz: {words}"):
        read_values(collect([run]))
    for damaged in (b"PK damaged", b"garbage", b""):
        (run / "evaluation" / "values" / "suffix-256.npz").write_bytes(damaged)
        with pytest.raises(DataError, match="cannot be read") as caught:
            read_values(collect([run]))
        assert "pickle" not in str(caught.value)
