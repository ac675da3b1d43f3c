"""Tests over seeds against textbooks, scipy and slow loops."""

import math
import statistics

import numpy as np
import pytest
from scipy.stats import ttest_rel

from pipeline.evaluate.seeds import half_width, holm, paired


def test_the_paired_t_test_is_that_of_scipy() -> None:
    draw = np.random.default_rng(0)
    for count in (2, 3, 5, 12):
        a, b = draw.normal(2.0, 0.1, count), draw.normal(2.05, 0.1, count)
        found, expected = paired(list(a - b)), ttest_rel(a, b)
        interval = expected.confidence_interval(0.95)
        assert found.p == pytest.approx(expected.pvalue, rel=1e-9)
        assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-9)
        assert found.mean == pytest.approx(np.mean(a - b))


def test_half_an_interval_is_t_standard_errors() -> None:
    # two-sided 5 % points of Student's t: 12.706 with 1 degree of freedom, 4.303 with 2
    assert half_width(0.1, 2) == pytest.approx(1.2706, abs=1e-4)
    assert half_width(1.0, 3) == pytest.approx(4.3027, abs=1e-4)
    deviation = statistics.stdev([1.0, 2.0, 4.0])
    found = paired([1.0, 2.0, 4.0])
    assert found.high - found.mean == pytest.approx(4.3027 * deviation / math.sqrt(3), abs=1e-4)


def test_differences_that_are_all_alike_have_a_p_value_all_the_same() -> None:
    assert paired([0.0, 0.0, 0.0]).p == 1.0
    assert (paired([0.5, 0.5]).p, paired([0.5, 0.5]).low) == (0.0, 0.5)


def test_holm_as_computed_by_hand() -> None:
    # Ascending: 0.005 x 4 = 0.02, 0.01 x 3 = 0.03, 0.03 x 2 = 0.06, and 0.04 x 1 = 0.04 is raised
    # to the 0.06 before it.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def test_holm_rejects_what_the_step_down_procedure_rejects() -> None:
    draw = np.random.default_rng(1)
    rejections = 0
    for _ in range(200):
        p = [float(x) for x in draw.uniform(0.0, 0.2, 6) ** 2]
        p[1] = p[4]
        corrected = holm(p)
        for alpha in (0.01, 0.05, 0.1):
            expected = step_down(p, alpha)
            assert [value <= alpha for value in corrected] == expected
            rejections += sum(expected)
    assert 200 < rejections < 3000


def step_down(p: list[float], alpha: float) -> list[bool]:
    """Holm 1979: while the smallest p left is at most alpha / (number left), reject it."""
    rejected, left = [False] * len(p), list(range(len(p)))
    while left:
        smallest = min(left, key=lambda i: p[i])
        if p[smallest] > alpha / len(left):
            break
        rejected[smallest] = True
        left.remove(smallest)
    return rejected
