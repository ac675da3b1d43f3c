"""ZeRO 1/2/3 x sequence_parallel 1/2 x accumulation 1/2 x encodings of every mechanism, rings, and
every other encoding, on two real processes, and some on four, against one plain-torch process: the
numbers must not depend on how the work is shared."""

import functools
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.positions import registry
from tests.distributed.matrix_cases import (
    CANCELLED,
    Case,
    bf16_cases,
    case_name,
    cases,
    four_rank_cases,
    other_bf16_cases,
    other_cases,
    precision_of,
    ring_cases,
)
from tests.distributed.plain import Plain, train
from tests.distributed.ranks import run_ranks
from tests.distributed.toy import LENGTH, STEPS, toy_config

pytestmark = pytest.mark.distributed
FAST = [*cases(), *ring_cases(), *other_cases(1), *bf16_cases()]
SLOW = [*other_cases(2), *other_bf16_cases(), *four_rank_cases()]
# a part of the matrix by name; the mutation runner needs one case, not all
WANTED = os.environ.get("FARSIGHT_MATRIX", "")
every_case = pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case_name(case), marks=marks)
        for group, marks in ((FAST, ()), (SLOW, pytest.mark.slow))
        for case in group
        if WANTED in case_name(case)
    ],
)


@functools.cache
def plain(position: str, accumulate: int = 1, precision: str = "fp32") -> Plain:
    """One process has no micro-batches; `accumulate` only says whether embeddings are tied."""
    shared = {"processes": 1, "sequence_parallel": 1, "accumulate": accumulate}
    return train(toy_config(position, **shared, precision=precision))


def plain_of(case: Case) -> Plain:
    return plain(case["position"], case["accumulate"], precision_of(case))


def size_of(name: str, case: Case, reference: Plain) -> float:
    """What the error of a gradient is a share of: its largest entry, if it is not noise."""
    size = float(reference.gradients[name].abs().max())
    if name in CANCELLED.get((case["position"], precision_of(case)), ()):
        own = [g for n, g in reference.gradients.items() if n.startswith("position.")]
        return max(float(gradient.abs().max()) for gradient in own)
    # zero in truth, as of a number added to whole rows: noise
    return size if size >= 1e-6 * reference.norms[0] else reference.norms[0]


@pytest.fixture(scope="module")
def sharded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What the ranks saw, by case, of the cases asked for."""
    own = (item for item in request.session.items if getattr(item, "module", 0) is request.module)
    calls = [getattr(item, "callspec", None) for item in own]
    asked = {case_name(call.params["case"]): call.params["case"] for call in calls if call}
    found: dict[str, Any] = {}
    for world in (2, 4):
        chosen = [case for case in asked.values() if case.get("processes", 2) == world]
        if chosen:
            folder: Path = tmp_path_factory.mktemp("matrix")
            (folder / "cases.json").write_text(json.dumps(chosen))
            out = folder / "results.pt"
            worker = "tests.distributed.matrix_worker"
            run_ranks(world, worker, str(out), str(folder / "cases.json"), timeout=1200.0)
            found |= torch.load(out, weights_only=True)
    return found


@every_case
def test_sharded_training_equals_plain_torch(case: Case, sharded: dict[str, Any]) -> None:
    """fp32 to rounding. bf16 against one process of bf16 to 2e-2, its weights left out: steps of
    SGD carry its rounding on."""
    seen, reference = sharded[case_name(case)], plain_of(case)
    exact = "precision" not in case
    rows = [row for row in seen["rows"] if row["kind"] == "train"]
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    for row, loss, norm in zip(rows, reference.losses, reference.norms, strict=True):
        assert row["loss"] == pytest.approx(loss, abs=2e-6 if exact else 2e-2)
        assert row["gradient_norm"] / norm == pytest.approx(1.0, abs=1e-5 if exact else 2e-2)
    assert seen["gradients"].keys() == reference.gradients.keys() == seen["weights"].keys()
    for name, gradient in reference.gradients.items():
        error = (seen["gradients"][name].view_as(gradient) - gradient).abs().max()
        limit = 1e-5 if exact else 2e-2
        assert error <= limit * size_of(name, case, reference), f"gradient of {name}"
    for name, weight in reference.weights.items() if exact else ():
        error = (seen["weights"][name].view_as(weight) - weight).abs().max()
        assert error <= 1e-5 * weight.abs().max(), f"{name} after {STEPS} steps"
    assert seen["equal"], "the ranks hold different weights"


@every_case
def test_short_evaluations_do_not_depend_on_the_sharding(
    case: Case, sharded: dict[str, Any]
) -> None:
    """They run inside the engine, under ZeRO-3 too; each equals the plain model of that step."""
    reference = plain_of(case)
    rows = [row for row in sharded[case_name(case)]["rows"] if row["kind"] == "evaluation"]
    assert [(row["step"], row["length"]) for row in rows] == [
        (step, length) for step in (2, 4) for length in (8, LENGTH, 2 * LENGTH)
    ]
    limit = 2e-2 if "precision" in case else 1e-6
    for row in rows:
        assert row["precision"] == precision_of(case)
        expected = reference.suffix_losses[row["step"], row["length"]]
        assert (row["loss"] is None) == (expected is None)
        if expected is not None:
            assert row["loss"] == pytest.approx(expected, abs=limit)


def test_matrix_is_whole() -> None:
    """Every encoding in fp32 and in bf16, its weights in parts and its sequences on two ranks."""
    assert len(cases()) == 72 + 24 + 2 and len(ring_cases()) == 21 and len(four_rank_cases()) == 4
    assert len({case_name(case) for case in FAST + SLOW}) == len(FAST + SLOW)
    for precision in ("fp32", "bf16"):
        tried = [case for case in FAST + SLOW if precision_of(case) == precision]
        split = {
            case["position"]
            for case in tried
            if case["zero_stage"] == 3 and case["sequence_parallel"] == 2
        }
        assert split == set(registry.names())
    assert plain("rope").norms[0] > toy_config("rope").optimizer.gradient_clip, "clipping must bite"
