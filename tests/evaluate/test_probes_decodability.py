"""A linear map reads position where it is, and nothing where it is not."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from pipeline.evaluate.probes.decodability import (
    PARTS,
    PENALTIES,
    Decodability,
    explained,
    residual_maps,
    targets,
)

LENGTH, WIDTH, DOCUMENTS = 96, 24, 16


def rows_of(states: list[Tensor]) -> dict[str, dict[str, float]]:
    """Of one state [S,D] per document."""
    probe = Decodability(1, states[0].shape[1], len(states[0]), torch.device("cpu"))
    for number, state in enumerate(states):
        probe.add(0, state, number)
    return {row["target"]: row for row in probe.rows()}


def noise(documents: int = DOCUMENTS) -> list[Tensor]:
    draw = torch.Generator().manual_seed(5)
    return [torch.randn(LENGTH, WIDTH, generator=draw) for _ in range(documents)]


def test_targets_run_from_zero_to_one_and_the_control_is_shuffled() -> None:
    own = targets(LENGTH, 3)
    assert own[0, :2].tolist() == [0.0, 0.0] and own[-1, :2].tolist() == [1.0, 1.0]
    assert own[1].tolist()[:2] == pytest.approx([1 / 95, math.log(2) / math.log(96)])
    assert torch.equal(own[:, 2:].sort(0).values, own[:, :2])
    assert torch.equal(own, targets(LENGTH, 3))
    assert not torch.equal(own[:, 2], targets(LENGTH, 4)[:, 2])
    assert abs(np.corrcoef(own[:, 0], own[:, 2])[0, 1]) < 0.3


def test_position_in_one_direction_is_found_in_documents_never_seen() -> None:
    p = torch.arange(LENGTH)[:, None] / LENGTH
    draw = torch.Generator().manual_seed(6)
    base, direction = torch.randn(2, WIDTH, generator=draw)
    rows = rows_of([base + 0.05 * x + 0.3 * p * direction for x in noise()])
    assert rows["position"]["r2"] > 0.95
    assert rows["log position"]["r2"] > 0.6
    for row in rows.values():
        assert abs(row["control_r2"]) < 0.03


def test_noise_shows_nothing() -> None:
    for row in rows_of(noise()).values():
        assert abs(row["r2"]) < 0.03 and abs(row["control_r2"]) < 0.03


def test_what_is_learned_of_the_fitted_documents_alone_does_not_count() -> None:
    """As many features as fitted tokens: the fit is perfect there and worth nothing elsewhere."""
    draw = torch.Generator().manual_seed(8)
    states = [torch.randn(20, 60, generator=draw) for _ in range(4)]
    for row in rows_of(states).values():
        assert row["r2"] < 0.3 and row["control_r2"] < 0.3
        assert row["penalty"] > PENALTIES[0]


def test_a_feature_that_never_varies_is_left_out() -> None:
    constant = [torch.cat([x, torch.full((LENGTH, 1), 3.0)], 1) for x in noise()]
    rows = rows_of([x / x.square().mean(-1, keepdim=True).sqrt() for x in constant])
    still = rows_of([torch.ones(LENGTH, 8) for _ in range(4)])
    assert all(abs(row["r2"]) < 0.03 for row in rows.values())
    assert all(row["r2"] == pytest.approx(0.0, abs=1e-9) for row in still.values())


def test_the_closed_form_is_ridge_regression() -> None:
    """Against gradients and residuals of the tokens themselves."""
    torch.manual_seed(9)
    x, y = torch.randn(2, 50, 5, dtype=torch.float64), torch.rand(2, 50, 4, dtype=torch.float64)
    z = torch.cat([torch.ones(2, 50, 1, dtype=torch.float64), x, y], -1)
    fit, test = z[0].T @ z[0], z[1].T @ z[1]
    maps = residual_maps(fit, 5, 0.3)
    scaled = (x - x[0].mean(0)) / x[0].std(0, unbiased=False)
    centred = y[0] - y[0].mean(0)
    slopes = torch.linalg.solve(
        scaled[0].T @ scaled[0] + 0.3 * 50 * torch.eye(5).double(), scaled[0].T @ centred
    )
    residual = y[1] - y[0].mean(0) - scaled[1] @ slopes
    assert (z[1] @ maps - residual).abs().max() < 1e-12
    worst = (y[1] - y[0].mean(0)).square().sum(0)
    expected = 1 - residual.square().sum(0) / worst
    assert (explained(maps, test, fit, 5) - expected).abs().max() < 1e-12


def test_no_document_is_in_two_parts_and_three_suffice() -> None:
    """The states of the document that is tested are not those the map was fitted on."""
    assert set(PARTS[:3]) == {"fit", "test", "choose"} and len(PARTS) == 4
    p = torch.linspace(-1, 1, LENGTH)[:, None].expand(-1, WIDTH)
    states = [x + 3.0 * p for x in noise(3)]
    assert rows_of(states)["position"]["r2"] > 0.8
    states[PARTS.index("test")] = states[PARTS.index("test")].flip(0)
    assert rows_of(states)["position"]["r2"] < -1.0


def test_states_that_are_no_numbers_give_none() -> None:
    states = noise(4)
    states[1][3, 3] = math.inf
    for row in rows_of(states).values():
        assert row["r2"] is None and row["control_r2"] is None and row["penalty"] is None
