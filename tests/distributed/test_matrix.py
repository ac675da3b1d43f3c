"""ZeRO 1/2/3 x sequence_parallel 1/2 x accumulation 1/2 x encodings of every mechanism, and rings,
on two real processes, against one plain-torch process: the numbers must not depend on how the work
is shared."""

import functools
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.distributed.plain import Plain, train
from tests.distributed.ranks import run_ranks
from tests.distributed.toy import (
    LENGTH,
    STEPS,
    bf16_cases,
    case_name,
    cases,
    ring_cases,
    toy_config,
)

pytestmark = pytest.mark.distributed
# a part of the matrix by name; the mutation runner needs one case, not all
WANTED = os.environ.get("FARSIGHT_MATRIX", "")
CASES = [case for case in cases() + ring_cases() + bf16_cases() if WANTED in case_name(case)]


@functools.cache
def plain(position: str, accumulate: int = 1) -> Plain:
    """One process has no micro-batches; `accumulate` only says whether embeddings are tied."""
    return train(toy_config(position, processes=1, sequence_parallel=1, accumulate=accumulate))


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out: Path = tmp_path_factory.mktemp("matrix") / "results.pt"
    run_ranks(2, "tests.distributed.matrix_worker", str(out), WANTED)
    results: dict[str, Any] = torch.load(out, weights_only=True)
    return results


@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_sharded_training_equals_plain_torch(case: dict[str, Any], sharded: dict[str, Any]) -> None:
    """fp32 to rounding; bf16 to 2e-2, its weights left out: steps of SGD carry its rounding on."""
    seen = sharded[case_name(case)]
    reference = plain(case["position"], case["accumulate"])
    exact = "precision" not in case
    rows = [row for row in seen["rows"] if row["kind"] == "train"]
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    for row, loss, norm in zip(rows, reference.losses, reference.norms, strict=True):
        assert row["loss"] == pytest.approx(loss, abs=1e-5 if exact else 2e-2)
        assert row["gradient_norm"] / norm == pytest.approx(1.0, abs=1e-4 if exact else 2e-2)
    assert seen["gradients"].keys() == reference.gradients.keys() == seen["weights"].keys()
    for name, gradient in reference.gradients.items():
        error = (seen["gradients"][name].view_as(gradient) - gradient).abs().max()
        limit = 1e-5 if exact else 2e-2
        size = float(gradient.abs().max())
        if size < 1e-6 * reference.norms[0]:
            size = reference.norms[0]  # zero in truth, as of a number added to whole rows: noise
        assert error <= limit * size, f"gradient of {name}"
    for name, weight in reference.weights.items() if exact else ():
        error = (seen["weights"][name].view_as(weight) - weight).abs().max()
        assert error <= 1e-5 * weight.abs().max(), f"{name} after {STEPS} steps"
    assert seen["equal"], "the ranks hold different weights"


@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_short_evaluations_do_not_depend_on_the_sharding(
    case: dict[str, Any], sharded: dict[str, Any]
) -> None:
    """They run inside the engine, under ZeRO-3 too; each equals the plain model of that step."""
    reference = plain(case["position"], case["accumulate"])
    rows = [row for row in sharded[case_name(case)]["rows"] if row["kind"] == "evaluation"]
    assert [(row["step"], row["length"]) for row in rows] == [
        (step, length) for step in (2, 4) for length in (8, LENGTH, 2 * LENGTH)
    ]
    limit = 2e-2 if "precision" in case else 1e-5
    for row in rows:
        assert row["precision"] == case.get("precision", "fp32")
        expected = reference.suffix_losses[row["step"], row["length"]]
        assert (row["loss"] is None) == (expected is None)
        if expected is not None:
            assert row["loss"] == pytest.approx(expected, abs=limit)


def test_matrix_is_whole() -> None:
    assert len(cases()) == 72 + 24 + 2 and len(ring_cases()) == 20
    every = cases() + ring_cases() + bf16_cases()
    assert len({case_name(case) for case in every}) == len(every)
    assert plain("rope").norms[0] > toy_config("rope").optimizer.gradient_clip, "clipping must bite"
