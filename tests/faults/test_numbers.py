"""A loss or a gradient that is not finite, on one of two ranks: all stop before the update."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.distributed.ranks import run_ranks
from tests.faults.inject import ranks_as
from tests.faults.numbers_worker import CASES, STEP, case_name
from tests.launch.made_study import command, write_study

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, Any]]]:
    """What every rank was left with, by case."""
    out: Path = tmp_path_factory.mktemp("numbers") / "left.pt"
    run_ranks(2, "tests.faults.numbers_worker", str(out))
    found: list[dict[str, dict[str, Any]]] = torch.load(out, weights_only=True)
    return found


@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_every_rank_stops_with_the_weights_as_they_were(
    left: list[dict[str, dict[str, Any]]], case: tuple[Any, ...]
) -> None:
    for rank in left:
        assert rank[case_name(case)]["compared"] > 10_000
        assert rank[case_name(case)]["changed"] == 0.0


@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_step_rank_tensor_and_batch_are_named_on_every_rank(
    left: list[dict[str, dict[str, Any]]], case: tuple[Any, ...]
) -> None:
    what, _, rank = case[:3]
    named = "the loss" if what == "loss" else f"the gradient norm of {what}"
    batch = left[rank][case_name(case)]["batch"]
    assert batch != left[1 - rank][case_name(case)]["batch"]
    for found in left:
        assert found[case_name(case)]["said"].startswith(
            f"step {STEP + 1}: {named} is not finite on rank {rank}, whose batch is {batch}. "
            "Stopped before the optimizer step: no weight was changed by it"
        )


@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_only_the_steps_before_are_recorded(
    left: list[dict[str, dict[str, Any]]], case: tuple[Any, ...]
) -> None:
    assert left[0][case_name(case)]["steps"] == list(range(1, STEP + 1))


def test_the_command_ends_with_4_and_leaves_no_checkpoint_of_that_step(tmp_path: Path) -> None:
    """The gradient of one rank breaks in step 4 of 6; every step leaves a checkpoint."""
    code = ranks_as("tests.faults.poisoned_rank", "1", "3", "blocks.0.attention.qkv", "nan")
    study = write_study(tmp_path, "rope")
    settings = ("trainer.save_every=1", "trainer.keep=9")
    done = command("-c", code, "train", study, *settings, expect=4)
    named = "error: step 4: the gradient norm of blocks.0.attention.qkv is not finite on rank 1, "
    assert named in done.stderr and "Traceback" not in done.stderr
    run = tmp_path / "runs" / "path" / "rope-L33-s0"
    assert {path.name for path in (run / "checkpoints").glob("step-*")} == {
        "step-1", "step-2", "step-3",
    }  # fmt: skip
    assert not (run / "trained.json").exists() and not (run / "lock").exists()
