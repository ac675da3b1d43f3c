"""Usable length: up to which length a model stays about as good as within its train length."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

TOLERANCE = 0.02  # of the best suffix loss within the train length


def usable_lengths(
    lengths: Sequence[int], losses: npt.NDArray[np.float64], train_length: int
) -> npt.NDArray[np.int64]:
    """Up to which length the suffix loss stays within 2 % of the best within `train_length`.

    Within the train length the longest such length counts; beyond it, lengths count until the
    first one that is worse, so that a loss that comes back down makes nothing usable.

    Args:
        lengths: C lengths, ascending.
        losses: [R, C] suffix loss at each length, of R models or resamples; infinite where it is
            not defined.
        train_length: tokens in a training sequence.

    Returns:
        [R] one of `lengths` each; 0 where no loss is known within the train length.
    """
    grid = np.asarray(lengths, dtype=np.int64)
    inside = grid <= train_length
    if not inside.any():
        return np.zeros(len(losses), dtype=np.int64)
    best = losses[:, inside].min(axis=1, keepdims=True)
    good = losses <= (1.0 + TOLERANCE) * best
    longest = np.where(good[:, inside], grid[inside], 0).max(axis=1)
    unbroken = np.logical_and.accumulate(good[:, ~inside], axis=1)
    beyond = np.where(unbroken, grid[~inside], 0).max(axis=1, initial=0)
    found: npt.NDArray[np.int64] = np.where(np.isfinite(best[:, 0]), np.maximum(longest, beyond), 0)
    return found
