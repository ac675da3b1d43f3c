"""Four gloo ranks: one sequence over four, and two groups of two."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.parallel.shard import token_slice
from pipeline.positions import registry
from tests.distributed.ranks import run_ranks

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    out: Path = tmp_path_factory.mktemp("exchange") / "results.json"
    run_ranks(4, "tests.parallel.exchange_worker", str(out))
    seen: list[dict[str, Any]] = json.loads(out.read_text())
    return seen


@pytest.mark.parametrize("parts", [2, 4])
def test_the_exchange_moves_every_token_and_head_to_its_place(
    parts: int, ranks: list[dict[str, Any]]
) -> None:
    """Odd lengths, and lengths shorter than the group, included."""
    held = 8 // parts
    for rank, results in enumerate(ranks):
        part = rank % parts
        assert results[f"heads-{parts}"] == list(range(part * held, (part + 1) * held))
        assert results[f"round-trip-{parts}"] == 0.0


@pytest.mark.parametrize("parts", [2, 4])
@pytest.mark.parametrize("position", registry.names())
def test_loss_and_gradients_equal_one_rank(
    position: str, parts: int, ranks: list[dict[str, Any]]
) -> None:
    for results in ranks:
        loss, gradient = results[f"gradients-{parts}-{position}"]
        assert loss <= 1e-5 and gradient <= 1e-5


@pytest.mark.parametrize("parts", [2, 4])
@pytest.mark.parametrize("position", registry.names())
def test_every_protocol_gives_the_same_numbers(
    position: str, parts: int, ranks: list[dict[str, Any]]
) -> None:
    for results in ranks:
        assert results[f"evaluation-{parts}-{position}"] <= 1e-5


@pytest.mark.parametrize("length", [0, 1, 2, 7, 8, 9, 21])
@pytest.mark.parametrize("parts", [1, 2, 3, 4, 8])
def test_parts_tile_a_sequence(length: int, parts: int) -> None:
    held = [i for p in range(parts) for i in range(length)[token_slice(length, parts, p)]]
    assert held == list(range(length))
