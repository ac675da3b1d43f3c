"""Four gloo ranks: one sequence over four, two groups of two, rings of four and of two."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.parallel.shard import token_slice
from pipeline.positions import registry
from tests.distributed.ranks import run_ranks
from tests.distributed.toy import LENGTH, toy_config
from tests.parallel.exchange_worker import MESHES, MODIFIED, NUMBERED, ROWS, serves

pytestmark = pytest.mark.distributed
SHARED = [(p, *mesh) for p in registry.names() for mesh in MESHES if serves(p, *mesh)]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    out: Path = tmp_path_factory.mktemp("exchange") / "results.json"
    run_ranks(4, "tests.parallel.exchange_worker", str(out))
    seen: list[dict[str, Any]] = json.loads(out.read_text())
    return seen


@pytest.mark.parametrize(("parts", "ring"), MESHES)
def test_the_exchange_moves_every_token_and_head_to_its_place(
    parts: int, ring: int, ranks: list[dict[str, Any]]
) -> None:
    """Odd lengths, and lengths shorter than the group, included."""
    shared = parts // ring
    held = 8 // shared
    for rank, results in enumerate(ranks):
        part = rank % shared
        assert results[f"heads-{parts}-{ring}"] == list(range(part * held, (part + 1) * held))
        assert results[f"round-trip-{parts}-{ring}"] == 0.0
        station = rank % parts // shared
        assert {token % ring for token in results[f"tokens-{parts}-{ring}"]} == {station}


@pytest.mark.parametrize(("position", "parts", "ring"), SHARED)
def test_loss_and_gradients_equal_one_rank(
    position: str, parts: int, ring: int, ranks: list[dict[str, Any]]
) -> None:
    for results in ranks:
        loss, gradient = results[f"gradients-{parts}-{ring}-{position}"]
        assert loss <= 2e-6 and gradient <= 1e-5


@pytest.mark.parametrize(("parts", "ring"), MESHES)
@pytest.mark.parametrize("name", MODIFIED)
def test_modified_attention_equals_one_rank(
    name: str, parts: int, ring: int, ranks: list[dict[str, Any]]
) -> None:
    for results in ranks:
        loss, gradient = results[f"modified-{parts}-{ring}-{name}"]
        assert loss <= 2e-6 and gradient <= 1e-5


@pytest.mark.parametrize(("parts", "ring"), MESHES)
@pytest.mark.parametrize("name", NUMBERED)
def test_drawn_position_ids_equal_one_rank(
    name: str, parts: int, ring: int, ranks: list[dict[str, Any]]
) -> None:
    for results in ranks:
        loss, gradient = results[f"numbered-{parts}-{ring}-{name}"]
        assert loss <= 2e-6 and gradient <= 1e-5


@pytest.mark.parametrize(("position", "parts", "ring"), SHARED)
def test_every_protocol_gives_the_same_numbers(
    position: str, parts: int, ring: int, ranks: list[dict[str, Any]]
) -> None:
    """Losses of whole documents; fp32 merges parts of a ring: 1.03e-6 for tener on four."""
    for results in ranks:
        error = results[f"evaluation-{parts}-{ring}-{position}"]
        assert error <= (1e-6 if ring == 1 else 2e-6)


@pytest.mark.parametrize(("parts", "ring"), MESHES)
def test_tasks_give_the_same_rows(parts: int, ring: int, ranks: list[dict[str, Any]]) -> None:
    for results in ranks:
        assert results[f"tasks-{parts}-{ring}"] == []


@pytest.mark.parametrize(("parts", "ring"), MESHES)
def test_bytes_sent_are_those_of_the_formula(
    parts: int, ring: int, ranks: list[dict[str, Any]]
) -> None:
    """Per layer, forward and again backward: q, k, v and the output of the rank's tokens are
    traded for heads; k and v of a stripe travel R - 1 stations, their gradients R."""
    config, shared = toy_config("rope"), parts // ring
    layers, width, rows = config.model.layers, config.model.width, ROWS * parts // 4
    stripe = -(-LENGTH // ring)
    for rank, results in enumerate(ranks):
        station = rank % parts // shared
        held = len(range(station, LENGTH, ring))
        traded = 0 if shared == 1 else 2 * 4 * rows * -(-held // shared) * width
        passed = 0 if ring == 1 else (3 * ring - 2) * 2 * rows * stripe * width // shared
        assert results[f"traffic-{parts}-{ring}"] == {
            "all_to_all": 4 * layers * traded,
            "ring": 4 * layers * passed,
        }


@pytest.mark.parametrize("length", [0, 1, 2, 7, 8, 9, 21])
@pytest.mark.parametrize(
    ("parts", "ring"), [(1, 1), (2, 1), (3, 1), (8, 1), (2, 2), (3, 3), (4, 2), (8, 4)]
)
def test_parts_tile_a_sequence(length: int, parts: int, ring: int) -> None:
    held = [i for p in range(parts) for i in range(length)[token_slice(length, parts, p, ring)]]
    assert sorted(held) == list(range(length))
    if ring == 1:
        assert held == sorted(held)
