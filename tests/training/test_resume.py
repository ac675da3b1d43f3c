"""Training that is broken off and goes on is bit for bit the training that was not."""

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.data.module import MicroBatches
from pipeline.parallel.mesh import Mesh
from pipeline.positions.registry import names
from pipeline.training.start import build_decoder
from tests.distributed.ranks import run_ranks
from tests.distributed.toy import LENGTH, ToySequences
from tests.sampling import commit_here, sampled
from tests.training.resume_worker import (
    BOUNDARY,
    MIDDLE,
    STEPS,
    WORLDS,
    Case,
    everywhere,
    exact_cases,
)

pytestmark = pytest.mark.distributed
# a part of the cases by name; the mutation runner needs few, not all
WANTED = os.environ.get("FARSIGHT_MATRIX", "")
CASES = [case for case in exact_cases() if WANTED in case.name]


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out: Path = tmp_path_factory.mktemp("resumed")
    run_ranks(2, "tests.training.resume_worker", "exact", str(out), WANTED, timeout=1200.0)
    results: dict[str, Any] = torch.load(out / "exact.pt", weights_only=True)
    return results


def same(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Weights, moments and tokens; a difference of 0 in every number."""
    assert one["tokens"] == other["tokens"]
    assert one["weights"].keys() == other["weights"].keys()
    for name, weight in one["weights"].items():
        assert torch.equal(weight, other["weights"][name]), name
        for moment in one["moments"]:
            found = [run["moments"][moment][name] for run in (one, other)]
            assert torch.equal(*found), f"{moment} of {name}"


def same_as_whole(whole: dict[str, Any], parts: dict[int, dict[str, Any]]) -> None:
    for step, part in parts.items():
        same(whole, part)
        rows = [row for row in whole["rows"] if row["step"] > step]
        assert rows and part["rows"] == rows
        assert part["clock"] == sorted(part["clock"]) and part["clock"][0] > 0


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_resumed_training_is_bit_for_bit_the_whole_one(
    case: Case, resumed: dict[str, Any]
) -> None:
    """Checkpoints change nothing, and resuming from one, under other global random states,
    changes nothing."""
    seen = resumed[case.name]
    same(seen["plain"], seen["saved"])
    assert seen["plain"]["rows"] == seen["saved"]["rows"]
    assert seen["resumed"].keys() == set(case.steps)
    same_as_whole(seen["plain"], seen["resumed"])
    losses = [row["loss"] for row in seen["plain"]["rows"] if row["kind"] == "train"]
    assert len(losses) == STEPS == len(set(losses))


@pytest.mark.slow
def test_every_encoding_resumes_after_every_step(tmp_path: Path) -> None:
    """`FARSIGHT_RESUMED=N` in the environment tries N encodings, others at every commit."""
    count = int(os.environ.get("FARSIGHT_RESUMED", "0"))
    wanted = sampled([case.name for case in everywhere()], count, commit_here(), str)
    job = ("tests.training.resume_worker", "everywhere", str(tmp_path), " ".join(wanted))
    run_ranks(2, *job, timeout=1800.0)
    results = torch.load(tmp_path / "everywhere.pt", weights_only=True)
    assert list(results) == wanted
    for seen in results.values():
        same(seen["plain"], seen["saved"])
        assert len(seen["resumed"]) == STEPS - 1
        same_as_whole(seen["plain"], seen["resumed"])


@pytest.mark.skipif(WANTED not in "repeated", reason="not wanted")
def test_a_training_resumed_again_and_again_is_the_whole_one(resumed: dict[str, Any]) -> None:
    seen = resumed["repeated"]
    assert len(seen["resumed"]) == 4
    same_as_whole(seen["plain"], seen["resumed"])


def test_every_encoding_and_every_stage_is_among_the_cases() -> None:
    assert [case.position for case in everywhere()] == list(names())
    cases = exact_cases()
    whole = [case for case in cases if {1, STEPS - 1} <= set(case.steps)]
    assert {(c.zero_stage, c.precision) for c in whole} == {
        (stage, p) for stage in (1, 2, 3) for p in ("fp32", "bf16")
    }
    assert len(ToySequences()) * 2 == BOUNDARY * 4, "an epoch ends with this step"


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One rank begins, two go on; two begin, and go on otherwise or as one."""
    out: Path = tmp_path_factory.mktemp("moved")
    found: dict[str, Any] = {}
    for world, job in ((1, "begin"), (2, "moved"), (1, "alone")):
        run_ranks(world, "tests.training.resume_worker", job, str(out), "")
        found[job] = torch.load(out / f"{job}.pt", weights_only=True)
    return found


def near(whole: dict[str, Any], part: dict[str, Any]) -> None:
    rows = [row for row in whole["rows"] if row["step"] > MIDDLE]
    assert [(r["kind"], r["step"]) for r in rows] == [(r["kind"], r["step"]) for r in part["rows"]]
    for one, other in zip(rows, part["rows"], strict=True):
        assert one["tokens"] == other["tokens"]
        assert one["loss"] == pytest.approx(other["loss"], abs=1e-5), one["step"]
        if one["kind"] == "train":
            norms = one["gradient_norm"], other["gradient_norm"]
            assert norms[0] == pytest.approx(norms[1], rel=1e-4), one["step"]
    assert whole["tokens"] == part["tokens"]


@pytest.mark.skipif(WANTED not in "moved", reason="not wanted")
def test_another_world_goes_on_with_the_same_losses(moved: dict[str, Any]) -> None:
    """Other sequence groups, ZeRO stages and numbers of ranks; losses to 1e-5."""
    for name in WORLDS:
        near(moved["moved"][name]["began"], moved["moved"][name]["resumed"])
    for parallel in (1, 2):
        near(moved["begin"]["alone"], moved["moved"][f"1 -> sp{parallel}"]["resumed"])
    near(moved["moved"]["sp2 -> dp2"]["began"], moved["alone"]["moved-0"])
    near(moved["moved"]["dp2 -> sp2"]["began"], moved["alone"]["moved-1"])


@pytest.mark.skipif(WANTED not in "moved", reason="not wanted")
def test_a_checkpoint_has_the_validation_loss_of_its_own_step(moved: dict[str, Any]) -> None:
    """That at the train length; none where no short evaluation came with it."""
    rows = [row for row in moved["begin"]["alone"]["rows"] if row["kind"] == "evaluation"]
    losses = {row["step"]: row["loss"] for row in rows if row["length"] == LENGTH}
    assert losses.keys() == {2, 4, 6, STEPS} and len(set(losses.values())) == 4
    expected = {step: losses.get(step) for step in range(1, STEPS)}
    assert moved["begin"]["judged"] == expected


@pytest.mark.slow
@pytest.mark.skipif(WANTED not in "moved", reason="not wanted")
def test_four_ranks_go_on_from_one_and_one_or_two_from_four(tmp_path: Path) -> None:
    found: dict[str, Any] = {}
    for world, job in ((1, "begin"), (4, "four"), (1, "after four"), (2, "after four")):
        run_ranks(world, "tests.training.resume_worker", job, str(tmp_path), "")
        found[f"{job} {world}"] = torch.load(tmp_path / f"{job}.pt", weights_only=True)
    for parts in (1, 2, 4):
        near(found["begin 1"]["alone"], found["four 4"][f"1 -> 4, sp{parts}"])
    for world in (1, 2):
        near(found["four 4"]["began"], found[f"after four {world}"]["resumed"])


def global_batches(world: int, sequence_parallel: int, accumulate: int, first: int) -> list[str]:
    """sha256 of tokens, labels and ids of all ranks together, for each step from `first` on."""
    case = Case("", "rope", (), sequence_parallel=1, accumulate=accumulate, ids="randomized")
    config = case.config
    scheme = build_decoder(config).position_ids
    meshes = [Mesh(world, rank, sequence_parallel) for rank in range(world)]
    ranks = [MicroBatches(ToySequences(), config, mesh, scheme, 0, first) for mesh in meshes]
    found = []
    for step in range(STEPS - first):
        rows = []
        for micro in range(accumulate):
            items = [rank[step * accumulate + micro] for rank in ranks]
            for group in range(0, world, sequence_parallel):
                own = items[group : group + sequence_parallel]
                parts = [torch.cat([item[key] for item in own], 1) for key in ("tokens", "labels")]
                rows.append(torch.cat([*parts, own[0]["ids"]], 1))
        found.append(hashlib.sha256(torch.cat(rows).numpy().tobytes()).hexdigest())
    return found


@pytest.mark.parametrize(
    ("world", "sequence_parallel", "accumulate"),
    [(1, 1, 1), (1, 1, 4), (2, 1, 2), (2, 2, 1), (4, 1, 1), (4, 2, 2), (4, 4, 1)],
)
def test_every_world_goes_on_with_the_same_global_batches(
    world: int, sequence_parallel: int, accumulate: int
) -> None:
    whole = global_batches(1, 1, 1, 0)
    assert len(set(whole)) == STEPS
    for first in (1, BOUNDARY, STEPS - 1):
        assert global_batches(world, sequence_parallel, accumulate, first) == whole[first:]


@pytest.mark.parametrize("first", [0, 1, 2, 5, 7])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_batches_of_a_resumed_training_are_the_rest_of_the_whole(
    first: int, accumulate: int
) -> None:
    """Ids drawn at random included."""
    case = Case("", "rope", (), sequence_parallel=1, accumulate=accumulate, ids="randomized")
    config, mesh = case.config, Mesh()
    scheme = build_decoder(config).position_ids
    whole = MicroBatches(ToySequences(), config, mesh, scheme)
    rest = MicroBatches(ToySequences(), config, mesh, scheme, 0, first)
    assert len(rest) == (STEPS - first) * accumulate
    for number in range(len(rest)):
        one, other = whole[first * accumulate + number], rest[number]
        assert one["step"] == other["step"] == first + number // accumulate
        for key in ("ids", "tokens", "labels"):
            assert torch.equal(one[key], other[key]), key
