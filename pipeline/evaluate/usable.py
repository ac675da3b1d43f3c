"""Usable length: up to which length a model stays about as good as within its train length."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

TOLERANCE = 0.02  # of the best suffix loss within the train length


def usable_lengths(
    lengths: Sequence[int], losses: npt.NDArray[np.float64], train_length: int
) -> npt.NDArray[np.int64]:
    """Up to which length the suffix loss stays within 2 % of the best within `train_length`.

    The longest length at which it is, if it is at every length from the train length up to this one
    as well: a loss that comes back down makes nothing usable, neither beyond the train length nor
    when it was worse at the train length itself, where the longest one within it counts. Without
    a loss at the train length, the longest length below it takes its place.

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
    trained = int(inside.sum()) - 1
    unbroken = np.logical_and.accumulate(good[:, trained:], axis=1)
    beyond = np.where(unbroken, grid[trained:], 0).max(axis=1)
    found: npt.NDArray[np.int64] = np.where(np.isfinite(best[:, 0]), np.maximum(longest, beyond), 0)
    return found
