"""Intervals and tests over seeds: how far a loss could move had the model been trained again.

Runs of one seed read the same data in the same order, so encodings are compared seed by seed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

from pipeline.evaluate.bootstrap import TAIL


@dataclass(frozen=True)
class Paired:
    """A mean difference with the ends of its 95 % t interval; `p` of no difference, two-sided."""

    mean: float
    low: float
    high: float
    p: float


def half_width(standard_error: float, count: int) -> float:
    """Half the 95 % t interval of a mean of `count` values, at least 2."""
    return float(stdtrit(count - 1, 1.0 - TAIL)) * standard_error


def paired(differences: Sequence[float]) -> Paired:
    """Student's paired t-test of one difference per seed, at least two of them.

    p is 1 where all differences are 0, and 0 where they are equal but not 0.
    """
    values = np.asarray(differences, dtype=np.float64)
    count, mean = len(values), float(values.mean())
    error = float(values.std(ddof=1)) / math.sqrt(count)
    if error == 0.0:
        return Paired(mean, mean, mean, 1.0 if mean == 0.0 else 0.0)
    half = half_width(error, count)
    return Paired(mean, mean - half, mean + half, 2.0 * float(stdtr(count - 1, -abs(mean) / error)))


def holm(values: Sequence[float]) -> list[float]:
    """p values corrected for how many there are, in the order given (Holm 1979).

    The k-th smallest of m becomes max over j <= k of min(1, (m - j + 1) p_j). Those at most alpha
    can be called differences together, with a chance of at most alpha that any of them is none.
    """
    p = np.asarray(values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    scaled = np.minimum(1.0, p[order] * np.arange(len(p), 0, -1))
    corrected = np.empty_like(p)
    corrected[order] = np.maximum.accumulate(scaled)
    return [float(value) for value in corrected]
