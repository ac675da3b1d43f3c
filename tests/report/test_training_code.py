"""Runs that other code trained are not put side by side, whatever measured them."""

import json
from pathlib import Path

import pytest

from pipeline.errors import DataError
from pipeline.report.collect import collect
from tests.report.synthetic import write_extended, write_run

ONE, OTHER = "ab" * 32, "ef" * 32


def trained_by(folder: Path, *codes: str) -> Path:
    """That run, as this code would have left it; without any, older than the field."""
    path = folder / "summary.json"
    summary = json.loads(path.read_text())
    del summary["training_sha256"]
    path.write_text(json.dumps({**summary, **({"training_sha256": codes} if codes else {})}))
    return folder


def test_runs_trained_by_other_code_are_refused(tmp_path: Path) -> None:
    """Although all were measured by one."""
    one = trained_by(write_run(tmp_path, "rope"), ONE)
    two, same = (trained_by(write_run(tmp_path, "alibi", seed), ONE) for seed in (0, 1))
    collect([one, two, same])
    trained_by(two, OTHER)
    with pytest.raises(DataError) as caught:
        collect([one, two, same])
    message = str(caught.value)
    assert "do not belong in one table: they were trained by different code" in message
    assert f"training_sha256 differs, or changed on the way (abababababab in {one}, " in message
    assert f"efefefefefef in {two})" in message


@pytest.mark.parametrize("other", [(ONE,), (OTHER,), (ONE, OTHER), (OTHER, ONE)])
def test_a_run_of_two_codes_stands_beside_no_other(tmp_path: Path, other: tuple[str, ...]) -> None:
    """Not even beside one of the same two: they may have changed at another step."""
    mixed = trained_by(write_run(tmp_path, "rope"), ONE, OTHER)
    write_extended(mixed, "yarn", "scale=4")
    collect([mixed])
    beside = trained_by(write_run(tmp_path, "alibi"), *other)
    with pytest.raises(DataError, match=f"abababababab then efefefefefef in {mixed}, "):
        collect([mixed, beside])


def test_a_new_encoding_stands_beside_those_that_were_trained_before(tmp_path: Path) -> None:
    """The files of one encoding are compared among its own runs alone."""
    runs = [
        trained_by(write_run(tmp_path, "rope"), f"{ONE}:{ONE}"),
        trained_by(write_run(tmp_path, "alibi"), f"{ONE}:{OTHER}"),
    ]
    again = trained_by(write_run(tmp_path, "alibi", 1), f"{ONE}:{OTHER}")
    collect([*runs, again])
    trained_by(again, f"{ONE}:{ONE}")
    with pytest.raises(DataError, match=f"efefefefefef in {runs[1]}, abababababab in {again}"):
        collect([*runs, again])


def test_of_runs_that_were_trained_on_those_before_them_count_too(tmp_path: Path) -> None:
    """By what trained them: both went on under the same code."""
    runs = []
    for name, before in (("rope", ONE), ("alibi", OTHER)):
        runs.append(trained_by(write_run(tmp_path, name), ONE))
        path = runs[-1] / "summary.json"
        ancestor = {
            "run": "tasks/x", "config_hash": "0", "step": 5, "tokens": 5, "train_length": 16,
            "extension": "none", "weights_sha256": "0", "training_sha256": [before],
        }  # fmt: skip
        path.write_text(json.dumps({**json.loads(path.read_text()), "lineage": [ancestor]}))
        collect(runs[-1:])
    with pytest.raises(DataError, match=f"abababababab in {runs[0]}, efefefefefef in {runs[1]}"):
        collect(runs)


def test_of_a_run_older_than_the_field_the_code_is_not_known(tmp_path: Path) -> None:
    """It is no disagreement, but none between two others is hidden by it."""
    old = trained_by(write_run(tmp_path, "rope"))
    one, other = (write_run(tmp_path, name) for name in ("alibi", "t5"))
    collect([old, trained_by(one, ONE), trained_by(other, ONE)])
    with pytest.raises(DataError, match="training_sha256 differs"):
        collect([old, one, trained_by(other, OTHER)])
