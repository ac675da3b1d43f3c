"""The nats that runs keep: which files are read, and which are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.errors import DataError
from pipeline.report.collect import collect
from pipeline.report.values import read_values
from tests.report.synthetic import write_kept, write_run, write_values


def test_a_file_that_was_left_behind_is_named(tmp_path: Path) -> None:
    run = write_kept(tmp_path, "rope")
    (run / "evaluation" / "values" / "suffix-256.npz").unlink()
    missing = read_values(collect([run])).missing
    assert missing["rope"].startswith("compare/rope-L128-s0 lacks values/suffix-256.npz; ")


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
    (run / "evaluation" / "values" / "suffix-256.npz").write_bytes(b"PK damaged")
    with pytest.raises(DataError, match="cannot be read"):
        read_values(collect([run]))
