"""Numbers measured otherwise are not put side by side, and it is said by what they differ."""

import json
from pathlib import Path

import pytest

from pipeline.errors import DataError
from pipeline.report.collect import collect
from tests.report.synthetic import write_extended, write_rows, write_run


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("precision", "bf16"),
        ("code_sha256", "ef" * 32),
        ("corpus_sha256", "ef" * 32),
        ("tokenizer_sha256", "ef" * 32),
    ],
)
def test_rows_measured_otherwise_are_refused(tmp_path: Path, field: str, value: str) -> None:
    one, two = write_run(tmp_path, "rope"), write_run(tmp_path, "alibi", row={field: value})
    collect([one]), collect([two])
    with pytest.raises(DataError) as caught:
        collect([one, two])
    assert f"{field} differs (" in str(caught.value)
    assert f"{value[:12]} in {two}" in str(caught.value)
    assert "evaluate them again" in str(caught.value)


def test_an_extension_tested_by_other_code_than_the_run_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path, "rope")
    rows = write_extended(run, "yarn", "scale=4")
    collect([run])
    changed = [json.loads(line) | {"code_sha256": "ef" * 32} for line in rows.open()]
    write_rows(rows, changed)
    with pytest.raises(DataError, match=r"code_sha256 differs .*efefefefefef in .* \+ yarn"):
        collect([run])


@pytest.mark.parametrize("cell", [{"depth": 0.5}, {"length": 256}, {"task": "copy"}])
def test_cells_of_tasks_are_held_against_the_same_cell_alone(
    tmp_path: Path, cell: dict[str, object]
) -> None:
    runs = [write_run(tmp_path, name) for name in ("rope", "alibi")]
    for number, run in enumerate(runs):
        path = run / "evaluation" / "rows.jsonl"
        rows = [json.loads(line) for line in path.open()]
        task = {
            **rows[0], "protocol": "task", "task": "passkey", "length": 128, "depth": 0.25,
            "suffix_tokens": None, "exact_match": 0.5, "rank": 1.5, "choices": 10, "chance": 5.5,
            "chance_exact_match": 1e-5, "examples": 4, "real_length": 128.0, "real_depth": 0.25,
        }  # fmt: skip
        other = {**task, "text_sha256": "cd" * 32, **cell}
        write_rows(path, [*rows, task if number == 0 else other])
    collect(runs)
    write_rows(path, [*rows, {**other, "depth": 0.25, "length": 128, "task": "passkey"}])
    with pytest.raises(DataError, match="text_sha256 differs"):
        collect(runs)


def test_an_extension_tested_on_other_weights_than_the_run_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path, "rope", row={"weights_sha256": "ab" * 32})
    rows = write_extended(run, "yarn", "scale=4")
    collect([run])
    changed = [json.loads(line) | {"weights_sha256": "ef" * 32} for line in rows.open()]
    write_rows(rows, changed)
    with pytest.raises(DataError, match="measured on other weights"):
        collect([run])
