"""Intervals over documents: how far a loss could move had other documents been drawn.

Whole documents are resampled, since the tokens of one are not independent, and every number of a
comparison is taken from the same ones: a difference is paired, and what makes a document hard for
both sides cancels.

A loss is nats over tokens, so its statistic is the ratio r = sum_i s_i / sum_i m_i of sums s_i and
tokens m_i. Intervals are bootstrap-t: what is resampled is (r* - r) / se*, with the standard error
of the ratio by linearisation, se^2 = sum_i (s_i - r m_i)^2 / (sum_i m_i)^2 (Efron and Tibshirani
1993, An Introduction to the Bootstrap, section 12.5; for small samples Hesterberg 2015, American
Statistician 69, 371-386, arXiv 1411.5279; the error of a ratio: Cochran 1977, chapter 6).

Chosen by simulation: percent of 4000 draws of 32 documents whose 95 % interval covers the truth.

    document differences       bootstrap-t   expanded percentile   percentile    BCa
    normal                            95.5                  95.3         94.4   94.0
    exponential                       94.8                  93.2         92.0   92.5
    lognormal, sigma 0.5              94.4                  93.7         92.4   92.4
    lognormal, sigma 1                92.6                  89.6         88.0   89.4
    lognormal minus lognormal         91.3                  93.8         92.4   88.2
"""

import math
from functools import cache

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, stdtrit

Reals = npt.NDArray[np.float64]

TAIL = 0.025  # what an interval leaves out on each side: 95 %
RESAMPLES = 1999  # (RESAMPLES + 1) TAIL is whole, so a quantile is one of the resampled values
LEAST_DOCUMENTS = 8  # fewer are too often drawn as one document again and again
_CHUNK = 128  # statistics resampled at once: some megabytes


@cache
def resampled(documents: int) -> Reals:
    """[RESAMPLES, documents]: how often each document is drawn.

    A function of the number of documents alone: the same data have the same interval, anywhere.
    """
    draw = np.random.Generator(np.random.PCG64([documents, RESAMPLES]))
    even = np.full(documents, 1.0 / documents)
    return draw.multinomial(documents, even, size=RESAMPLES).astype(np.float64)


def intervals(sums: Reals, tokens: Reals) -> Reals:
    """95 % bootstrap-t intervals of sums / tokens over documents.

    Args:
        sums: [documents, M] nats of each document, or differences of nats, of M statistics.
        tokens: [documents] tokens behind each sum; a document counts as much as it has tokens.

    Returns:
        [2, M]: lower and upper ends. Infinite where too few documents differ to tell.
    """
    documents = len(tokens)
    assert documents >= LEAST_DOCUMENTS, f"no interval from {documents} documents"
    drawn = resampled(documents).T
    total, drawn_total, squares = tokens.sum(), tokens @ drawn, tokens**2 @ drawn
    found = np.empty((2, sums.shape[1]))
    for start in range(0, sums.shape[1], _CHUNK):
        some = sums.T[start : start + _CHUNK]
        ratio = some.sum(axis=1, keepdims=True) / total
        rest = some - ratio * tokens
        error = np.sqrt((rest**2).sum(axis=1)) / total
        moved = rest @ drawn / drawn_total
        spread = rest**2 @ drawn - 2 * moved * ((rest * tokens) @ drawn) + moved**2 * squares
        with np.errstate(divide="ignore", invalid="ignore"):
            student = moved * drawn_total / np.sqrt(np.maximum(spread, 0.0))
        student[error == 0.0] = 0.0
        low, high = _ends(student, TAIL)
        with np.errstate(invalid="ignore"):
            ends = [ratio[:, 0] - high * error, ratio[:, 0] - low * error]
        found[:, start : start + _CHUNK] = np.where(error == 0.0, ratio[:, 0], ends)
    return found


def resampled_ratios(sums: Reals, tokens: Reals) -> Reals:
    """sums [documents, M] -> [RESAMPLES, M]: sums / tokens of each resample."""
    drawn = resampled(len(tokens))
    found: Reals = drawn @ sums / (drawn @ tokens)[:, None]
    return found


def expanded_percentile(values: Reals, documents: int) -> tuple[float, float]:
    """Ends of a 95 % interval of a statistic that has no standard error, from its resamples.

    The percentile interval, widened to what t intervals are for this many documents: tails of
    Phi(-sqrt(n / (n - 1)) t_{0.975, n - 1}) (Hesterberg 2015, the expanded percentile interval).

    Args:
        values: [RESAMPLES] the statistic of each resample.
        documents: documents in a resample, n.
    """
    assert documents >= LEAST_DOCUMENTS, f"no interval from {documents} documents"
    quantile = stdtrit(documents - 1, 1.0 - TAIL)
    tail = float(ndtr(-math.sqrt(documents / (documents - 1)) * quantile))
    low, high = _ends(values[None], tail)
    return float(low[0]), float(high[0])


def _ends(values: Reals, tail: float) -> tuple[Reals, Reals]:
    """The `tail` and 1 - `tail` quantiles of each row, by rank from either end alike."""
    rank = max(1, math.floor((RESAMPLES + 1) * tail + 1e-9))
    ordered = np.partition(values, (rank - 1, RESAMPLES - rank), axis=1)
    return ordered[:, rank - 1], ordered[:, RESAMPLES - rank]
