"""Rows that are not those of the run in whose folder they lie."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import DataError
from pipeline.record.evaluation import row_sha256
from pipeline.report.collect import collect
from pipeline.report.reading import read_run
from pipeline.report.values import read_values
from tests.report.synthetic import write_kept, write_run


def lines_of(run: Path) -> list[str]:
    return (run / "evaluation" / "rows.jsonl").read_text().splitlines()


def put(run: Path, lines: list[str], end: str = "\n") -> None:
    (run / "evaluation" / "rows.jsonl").write_text("\n".join(lines) + end)


def test_rows_of_another_run_are_refused(tmp_path: Path) -> None:
    rope, alibi = write_run(tmp_path, "rope"), write_run(tmp_path, "alibi")
    put(rope, lines_of(alibi))
    with pytest.raises(
        DataError, match="rows.jsonl:1: `position` = 'alibi', but the run has 'rope'"
    ):
        read_run(rope)


@pytest.mark.parametrize(
    ("field", "value"),
    [("seed", 9), ("train_length", 64), ("position", "alibi"), ("weights_sha256", "0" * 64),
     ("evaluation_sha256", "0" * 64)],
)  # fmt: skip
def test_one_row_of_another_run_is_refused(field: str, value: Any, tmp_path: Path) -> None:
    run = write_run(tmp_path, "rope", row={"weights_sha256": "a" * 64, "evaluation_sha256": "e"})
    lines = lines_of(run)
    lines[2] = json.dumps({**json.loads(lines[2]), field: value})
    put(run, lines)
    with pytest.raises(DataError, match=f"rows.jsonl:3: `{field}` = "):
        read_run(run)


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [(0, "loss", -1.0), (1, "loss", -1.0), (2, "loss", math.inf), (-2, "loss", -1.0),
     (0, "standard_error", -3.6), (0, "standard_error", math.inf), (0, "standard_error", "0.1"),
     (0, "bits_per_byte", -0.5), (0, "perplexity", math.inf), (-1, "losses", [2.0, -1.0])],
)  # fmt: skip
def test_a_number_that_no_evaluation_gives_is_refused(
    line: int, field: str, value: Any, tmp_path: Path
) -> None:
    run = write_run(tmp_path, "rope")
    lines = lines_of(run)
    # JSON has no infinity, but numbers that no float holds
    lines[line] = json.dumps({**json.loads(lines[line]), field: value}).replace("Infinity", "1e999")
    put(run, lines)
    number = range(1, len(lines) + 1)[line]
    with pytest.raises(DataError, match=rf"rows\.jsonl:{number}: `{field}` = .* at least 0"):
        read_run(run)


def test_a_row_that_stands_twice_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path, "rope")
    lines = lines_of(run)
    put(run, [*lines, json.dumps({**json.loads(lines[1]), "loss": 1.0})])
    with pytest.raises(
        DataError, match=rf"rows.jsonl:{len(lines) + 1}: measures the same as line 2"
    ):
        read_run(run)


def test_a_file_that_was_cut_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path, "rope")
    whole = (run / "evaluation" / "rows.jsonl").read_text()
    (run / "evaluation" / "rows.jsonl").write_text(whole[:-40])
    with pytest.raises(DataError, match=r"rows.jsonl: ends in the middle of a row"):
        read_run(run)


def test_values_that_were_exchanged_are_refused_by_their_name(tmp_path: Path) -> None:
    run = write_kept(tmp_path, "rope")
    values = run / "evaluation" / "values"
    named = values / f"suffix-64-{'0' * 12}.npz"
    shutil.copy(values / "suffix-64.npz", named)
    lines = lines_of(run)
    changed = [line.replace('"suffix-64.npz"', json.dumps(named.name)) for line in lines]
    assert changed != lines
    put(run, changed)
    with pytest.raises(DataError, match="damaged or exchanged"):
        read_values(collect([run]))


def test_a_lineage_that_is_none_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path, "rope")
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps({**summary, "lineage": 5}))
    with pytest.raises(DataError, match=r"summary.json: `lineage` = 5 must be list"):
        read_run(run)


def with_digests(run: Path) -> list[str]:
    """The rows of `run`, written as an evaluation writes them."""
    rows = [json.loads(line) for line in lines_of(run)]
    put(run, [json.dumps({**row, "row_sha256": row_sha256(row)}) for row in rows])
    return lines_of(run)


@pytest.mark.parametrize("protocol", ["sliding", "non-overlapping", "per-position", "suffix"])
def test_a_number_that_was_changed_is_refused(protocol: str, tmp_path: Path) -> None:
    run = write_run(tmp_path, "rope")
    lines = with_digests(run)
    assert len(read_run(run).rows) == len(lines)
    at = next(n for n, line in enumerate(lines) if json.loads(line)["protocol"] == protocol)
    row = json.loads(lines[at])
    row |= {"losses": [9.0, *row["losses"][1:]]} if "losses" in row else {"loss": 9.0}
    put(run, [*lines[:at], json.dumps(row), *lines[at + 1 :]])
    with pytest.raises(DataError, match=rf"rows.jsonl:{at + 1}: is not as it was .*row_sha256"):
        read_run(run)


def test_a_row_without_a_digest_among_others_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path, "rope")
    lines = with_digests(run)
    row = json.loads(lines[-1])
    del row["row_sha256"]
    put(run, [*lines[:-1], json.dumps(row)])
    with pytest.raises(DataError, match=f"rows.jsonl:{len(lines)}: is not as it was"):
        read_run(run)
