"""One label on one rank, shard or micro-batch at 2 nats and nine on another at 10: the loss is
(2 + 9 x 10) / 10 = 9.2 nats a token, not the mean of the two means, 6.0 (pytorch/torchtitan 4167).
And none at all, which costs nothing and moves no weight."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.distributed.ranks import run_ranks
from tests.distributed.toy import VOCAB
from tests.faults.uneven_worker import CASES, COSTS, Case

pytestmark = pytest.mark.distributed

WIDTH = 32


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out: Path = tmp_path_factory.mktemp("uneven") / "results.pt"
    run_ranks(2, "tests.faults.uneven_worker", str(out))
    results: dict[str, Any] = torch.load(out, weights_only=True)
    return results


def exact_gradient(case: Case) -> Tensor:
    """Of the head, fp64: the mean over all labels of (softmax - onehot) x the stream."""
    gradient = torch.zeros(VOCAB, WIDTH, dtype=torch.float64)
    labels = [token for sequence in case.sequences for token in sequence.values()]
    for token in labels:
        right = math.exp(-COSTS[token])
        slope = torch.full((VOCAB,), (1.0 - right) / (VOCAB - 1), dtype=torch.float64)
        slope[token] = right - 1.0
        gradient[:, token] += slope * math.sqrt(WIDTH) / len(labels)
    return gradient


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_label_counts_once_wherever_it_lies(case: Case, seen: dict[str, Any]) -> None:
    found = seen["trained"][case.name]
    first, _ = found["rows"]
    assert first["tokens"] == 10
    assert first["loss"] == pytest.approx(9.2, abs=1e-5)
    expected = exact_gradient(case)
    assert float((found["gradient"] - expected).abs().max()) <= 1e-5 * float(expected.abs().max())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_step_without_any_label_costs_nothing_and_moves_nothing(
    case: Case, seen: dict[str, Any]
) -> None:
    found = seen["trained"][case.name]
    first, second = found["rows"]
    assert (second["loss"], second["gradient_norm"], second["tokens"]) == (0.0, 0.0, 10)
    assert first["gradient_norm"] > 0.0 and found["finite"]
    # what moved in both steps is what the first gave
    assert float((found["moved"] - found["gradient"]).abs().max()) <= 1e-5


@pytest.mark.parametrize("sequence_parallel", [1, 2])
def test_a_tested_text_weighs_by_targets_too(sequence_parallel: int, seen: dict[str, Any]) -> None:
    assert seen["tested"][sequence_parallel] == pytest.approx(9.2, abs=1e-5)
