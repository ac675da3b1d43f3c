"""Mass by distance and resolution, where the answer is known."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from pipeline.evaluate.probes.attention import AttentionMass, bin_edges
from pipeline.evaluate.probes.resolution import AttentionResolution, resolution

LENGTH, TRAINED = 20, 6


def causal(scores: Tensor, queries: list[int]) -> Tensor:
    """scores [h,S,S] -> the rows of the queries, minus infinity after each of them."""
    ahead = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(ahead, -math.inf)[:, queries]


def mass_of(scores: Tensor, queries: list[int]) -> list[dict[str, object]]:
    """Of one layer, from two documents alike."""
    found = AttentionMass(1, len(scores), scores.shape[-1], TRAINED)
    for _ in range(2):
        found.add(0, causal(scores, queries), torch.tensor(queries))
    return found.rows()


def test_bins_double_and_hold_every_distance() -> None:
    assert bin_edges(1) == [0, 1]
    assert bin_edges(8) == [0, 1, 2, 4, 8]
    assert bin_edges(9) == [0, 1, 2, 4, 8, 16]


@pytest.mark.parametrize(
    ("back", "number"), [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (7, 3), (8, 4)]
)
def test_all_weight_at_one_distance(back: int, number: int) -> None:
    i = torch.arange(LENGTH)
    scores = torch.where(i[:, None] - i == back, 0.0, -math.inf)[None]
    (row,) = mass_of(scores, [9, 12, 19])
    assert row["distance"] == back
    assert row["mass"] == [float(n == number) for n in range(6)]
    assert row["beyond"] == float(back >= TRAINED)


def test_uniform_attention_reaches_half_of_what_is_there() -> None:
    queries = [7, 11, 18]
    rows = mass_of(torch.zeros(2, LENGTH, LENGTH), queries)
    assert [(row["layer"], row["head"]) for row in rows] == [(0, 0), (0, 1)]
    for row in rows:
        assert row["distance"] == pytest.approx(sum(i / 2 for i in queries) / 3, abs=1e-12)
        beyond = sum((i + 1 - TRAINED) / (i + 1) for i in queries) / 3
        assert row["beyond"] == pytest.approx(beyond, abs=1e-12)


def test_mass_and_pairs_equal_a_slow_loop() -> None:
    torch.manual_seed(0)
    scores, queries = torch.randn(2, LENGTH, LENGTH), [0, 3, 8, 19]
    for head, row in enumerate(mass_of(scores, queries)):
        mass, pairs, distance = [0.0] * 6, [0] * 6, 0.0
        for i in queries:
            total = sum(math.exp(scores[head, i, j]) for j in range(i + 1))
            for j in range(i + 1):
                place = 0 if i == j else int(math.log2(i - j)) + 1
                weight = math.exp(scores[head, i, j]) / total / len(queries)
                mass[place] += weight
                pairs[place] += 2  # documents
                distance += weight * (i - j)
        assert row["mass"] == pytest.approx(mass, abs=1e-6)
        assert row["pairs"] == pairs and row["distance"] == pytest.approx(distance, abs=1e-6)


def test_what_is_no_number_gives_none() -> None:
    scores = torch.zeros(2, LENGTH, LENGTH)
    scores[1] = math.nan
    sound, broken = mass_of(scores, [9])
    assert sound["mass"] is not None
    assert (broken["mass"], broken["distance"], broken["beyond"]) == (None, None, None)


def slow_resolution(s: list[float]) -> float:
    """Sun et al. 2022, the definition, term by term."""
    top = sum(math.exp(a) * (math.exp(a) - math.exp(b)) for a, b in itertools.pairwise(s))
    return top / sum(math.exp(a) for a in s[:-1]) ** 2


def test_resolution_is_that_of_the_paper() -> None:
    torch.manual_seed(1)
    s = torch.randn(3, 9, dtype=torch.float64)
    expected = [slow_resolution(row.tolist()) for row in s]
    assert resolution(s).tolist() == pytest.approx(expected, abs=1e-12)
    assert resolution(s + 1000.0).tolist() == pytest.approx(expected, abs=1e-9)


def test_resolution_of_flat_falling_rising_and_hidden_scores() -> None:
    n = torch.arange(12, dtype=torch.float64)
    values = [float(resolution(-slope * n)) for slope in (2.0, 1.0, 0.1, 0.0, -0.1)]
    assert values == sorted(values, reverse=True)
    assert values[3] == 0.0 and values[4] < 0.0
    # what is hidden has e^s = 0: as if the sequence ended there
    hidden = torch.where(n < 5, -n, -math.inf)
    assert float(resolution(hidden)) == pytest.approx(
        float(resolution(torch.cat([-n[:5], torch.tensor([-math.inf])]))), abs=1e-15
    )


def test_every_distance_is_a_mean_over_the_same_queries() -> None:
    """A number added to whole rows changes nothing, whichever rows they are."""
    torch.manual_seed(2)
    scores, queries = torch.randn(2, LENGTH, LENGTH), [6, 9, 19]
    found = AttentionResolution(1, 2, queries[0])
    moved = AttentionResolution(1, 2, queries[0])
    for _ in range(2):
        found.add(0, causal(scores, queries), torch.tensor(queries))
        higher = scores + 3.0 * torch.arange(LENGTH)[:, None]
        moved.add(0, causal(higher, queries), torch.tensor(queries))
    for head, (row, other) in enumerate(zip(found.rows(), moved.rows(), strict=True)):
        means = [sum(float(scores[head, i, i - n]) for i in queries) / 3 for n in range(7)]
        assert row["resolution"] == pytest.approx(slow_resolution(means), abs=1e-6)
        assert other["resolution"] == pytest.approx(row["resolution"], abs=1e-5)
        assert row["distances"] == 6


def test_a_distance_hidden_from_one_query_adds_nothing() -> None:
    scores, queries = torch.zeros(1, LENGTH, LENGTH), [6, 9, 19]
    scores[0, 9, 9 - 4] = -math.inf
    found = AttentionResolution(1, 1, queries[0])
    found.add(0, causal(scores, queries), torch.tensor(queries))
    (row,) = found.rows()
    # five distances are left, and one step from something to nothing
    assert row["resolution"] == pytest.approx(1.0 / 25.0, abs=1e-12)


def test_resolution_of_what_is_no_number_is_none() -> None:
    found = AttentionResolution(1, 1, 3)
    found.add(0, torch.full((1, 1, LENGTH), math.nan), torch.tensor([3]))
    assert found.rows()[0]["resolution"] is None
