"""What rank 0 finds or fails with reaches every rank, and none is left waiting for it."""

from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.errors import CheckpointError
from pipeline.parallel.agree import told_by_first
from tests.distributed.ranks import run_ranks
from tests.parallel.agree_worker import FAILURES

USERS = [name for name in FAILURES if name not in ("other of the system", "of a programmer")]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    out: Path = tmp_path_factory.mktemp("told") / "told.pt"
    run_ranks(2, "tests.parallel.agree_worker", str(out), timeout=120.0)
    every: list[dict[str, Any]] = torch.load(out, weights_only=True)
    return every


@pytest.mark.distributed
def test_a_result_is_that_of_rank_0_on_all(told: list[dict[str, Any]]) -> None:
    for rank in told:
        assert rank["result"] == {"result": ("step-4", "by rank 0")}
        assert rank["nothing"] == {"result": None}


@pytest.mark.distributed
@pytest.mark.parametrize("name", USERS)
def test_an_error_is_the_same_on_all(name: str, told: list[dict[str, Any]]) -> None:
    error = FAILURES[name]()
    first, other = (rank[name] for rank in told)
    if name == "full disk":
        assert first["kind"] == "OSError" and "/runs/a/rows" in first["words"]
        assert (other["kind"], other["code"]) == ("StorageError", 74)
        assert "/runs/a/rows: cannot be written: No space left" in other["words"]
        return
    assert first == other
    assert other["kind"] == type(error).__name__
    assert other["words"] == str(error)
    assert other["code"] == error.exit_code  # type: ignore[attr-defined]
    assert other["more"] == vars(error)


@pytest.mark.distributed
@pytest.mark.parametrize("name", ["other of the system", "of a programmer"])
def test_what_is_no_users_stays_what_it_is_and_stops_the_others(
    name: str, told: list[dict[str, Any]]
) -> None:
    error = FAILURES[name]()
    first, other = (rank[name] for rank in told)
    assert (first["kind"], first["words"]) == (type(error).__name__, str(error))
    assert other["kind"] == "FarsightError"
    assert other["words"] == f"rank 0 failed: {error!r}"


def test_one_process_alone_does_it_itself() -> None:
    def fail() -> None:
        raise CheckpointError("bad")

    assert told_by_first(lambda: 7) == 7
    with pytest.raises(CheckpointError, match="bad"):
        told_by_first(fail)
