"""Intervals cover what they say, on made-up documents whose true loss is known."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from pipeline.evaluate import bootstrap
from pipeline.evaluate.bootstrap import (
    RESAMPLES,
    Reals,
    expanded_percentile,
    intervals,
    resampled,
    resampled_ratios,
)

DOCUMENTS, TARGETS, DRAWS = 32, 64.0, 500
# Three standard deviations of the share of 500 draws covered, if 95 % are.
SLACK = 3 * math.sqrt(0.95 * 0.05 / DRAWS)
Draw = Callable[[np.random.Generator, tuple[int, int]], Reals]
DIFFERENCES: dict[str, tuple[Draw, float]] = {
    "normal": (lambda draw, size: draw.normal(0.01, 0.05, size), 0.01),
    "exponential": (lambda draw, size: draw.exponential(0.1, size) - 0.05, 0.05),
    "lognormal": (
        lambda draw, size: 0.05 * draw.lognormal(0.0, 0.6, size) - 0.04,
        0.05 * math.exp(0.18) - 0.04,
    ),
}


def covered(low: Reals, high: Reals, truth: float) -> float:
    return float(np.mean((low <= truth) & (truth <= high)))


@pytest.mark.parametrize("kind", DIFFERENCES)
def test_95_of_100_intervals_cover_the_true_difference(kind: str) -> None:
    make, truth = DIFFERENCES[kind]
    differences = make(np.random.default_rng(1), (DOCUMENTS, DRAWS))
    low, high = intervals(differences * TARGETS, np.full(DOCUMENTS, TARGETS))
    assert abs(covered(low, high, truth) - 0.95) <= SLACK


def test_intervals_cover_where_documents_have_different_numbers_of_tokens() -> None:
    # Long documents are easier, so a mean of document means would miss the mean over tokens.
    possible = np.arange(20.0, 400.0)
    truth = 3.0 - 0.004 * float(np.sum(possible**2) / np.sum(possible))
    draw, found = np.random.default_rng(2), []
    for _ in range(DRAWS):
        tokens = draw.choice(possible, DOCUMENTS)
        means = 3.0 - 0.004 * tokens + 0.1 * draw.normal(size=DOCUMENTS)
        found.append(intervals((means * tokens)[:, None], tokens)[:, 0])
    low, high = np.array(found).T
    assert abs(covered(low, high, truth) - 0.95) <= SLACK


def test_intervals_are_those_of_a_slow_loop() -> None:
    draw = np.random.default_rng(3)
    sums, tokens = draw.gamma(2.0, 3.0, 12), draw.integers(1, 9, 12).astype(float)
    ratio = sum(sums) / sum(tokens)

    def error(s: Reals, m: Reals) -> float:
        r = sum(s) / sum(m)
        squares = sum((x - r * n) ** 2 for x, n in zip(s, m, strict=True))
        return float(math.sqrt(squares) / sum(m))

    students = []
    for times in resampled(12):
        who = np.repeat(np.arange(12), times.astype(int))
        s, m = sums[who], tokens[who]
        students.append((sum(s) / sum(m) - ratio) / error(s, m))
    students.sort()
    own = error(sums, tokens)
    # of 1999 values, the 50th from either end
    expected = [ratio - students[1949] * own, ratio - students[49] * own]
    assert intervals(sums[:, None], tokens)[:, 0] == pytest.approx(expected, rel=1e-9)


def test_paired_is_narrower_than_unpaired_where_documents_vary() -> None:
    draw = np.random.default_rng(4)
    hard = draw.lognormal(1.0, 0.4, (DOCUMENTS, 1))
    a, b = (hard + shift + 0.05 * draw.normal(size=(DOCUMENTS, 1)) for shift in (0.0, 0.1))
    tokens = np.ones(DOCUMENTS)
    paired, own = intervals(a - b, tokens), [intervals(x, tokens) for x in (a, b)]
    width = float(paired[1, 0] - paired[0, 0])
    unpaired = math.hypot(*(float(x[1, 0] - x[0, 0]) for x in own))
    assert width < unpaired / 5
    assert paired[1, 0] < 0.0


def test_the_interval_of_the_opposite_difference_is_the_opposite_interval() -> None:
    sums = np.random.default_rng(5).lognormal(size=(16, 3))
    low, high = intervals(sums, np.ones(16))
    opposite = intervals(-sums, np.ones(16))
    assert np.array_equal(opposite, [-high, -low])


def test_documents_count_as_much_as_they_have_tokens() -> None:
    tokens = np.array([1.0] * 8 + [1000.0] * 8)
    sums = np.array([5.0] * 8 + [1000.0 + i for i in range(8)])[:, None]
    low, high = intervals(sums, tokens)[:, 0]
    assert 1.0 < low < 1.01 < high < 1.05
    ratios = resampled_ratios(sums, tokens)
    who = np.repeat(np.arange(16), resampled(16)[7].astype(int))
    assert ratios.shape == (RESAMPLES, 1)
    assert ratios[7, 0] == pytest.approx(sums[who].sum() / tokens[who].sum())


def test_without_any_difference_the_interval_is_a_point() -> None:
    assert np.array_equal(intervals(np.zeros((8, 2)), np.full(8, 64.0)), np.zeros((2, 2)))


def test_one_document_that_differs_is_no_ground_for_an_interval() -> None:
    sums = np.zeros((8, 1))
    sums[3] = 1.0
    assert not np.isfinite(intervals(sums, np.ones(8))).all()


def test_resamples_depend_on_nothing_but_the_number_of_documents() -> None:
    first = resampled(32)
    resampled.cache_clear()
    np.random.default_rng(0).normal()
    assert np.array_equal(resampled(32), first)
    assert first.shape == (RESAMPLES, 32)
    assert np.array_equal(first.sum(axis=1), np.full(RESAMPLES, 32.0))
    # Drawn once by numpy 2.4; another number would be another interval in every report.
    assert first[0, :8].tolist() == [1, 1, 2, 1, 0, 3, 0, 0]


def test_statistics_do_not_depend_on_what_is_computed_with_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sums = np.random.default_rng(6).lognormal(size=(16, 5))
    together = intervals(sums, np.ones(16))
    monkeypatch.setattr(bootstrap, "_CHUNK", 2)
    assert intervals(sums, np.ones(16)) == pytest.approx(together, rel=1e-12)


def test_expanded_percentiles_are_as_wide_as_t_intervals_of_normal_values() -> None:
    ranks = np.arange(1.0, RESAMPLES + 1)
    low, high = expanded_percentile(ranks, 32)
    # Phi(-sqrt(32 / 31) 2.0395) = 0.01915, of 2000 the 38th from either end
    assert (low, high) == (38.0, 1962.0)
    assert expanded_percentile(ranks, 10_000) == (49.0, 1951.0)
