"""Intervals of a share: how sure a success rate out of few trials is."""

import math

Z_95 = 1.959963984540054


def wilson(successes: int, n: int, z: float = Z_95) -> tuple[float, float]:
    """The Wilson score interval of successes / n, by default of 95 %.

    (p + z^2/2n -+ z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n): Wilson 1927, JASA 22(158), 209-212.
    Unlike p -+ z sqrt(p(1-p)/n) it stays within [0, 1] and has a width at p = 0 and p = 1, where
    few successes or failures must not look like certainty.

    Args:
        successes: 0 .. n.
        n: trials, at least 1, independent of each other.
        z: standard normal quantile of half the interval.

    Raises:
        ValueError: there are no trials, or not 0 .. n successes.
    """
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"{successes} successes out of {n} trials are no share")
    p = successes / n
    middle = p + z * z / (2 * n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    # exactly 0 and 1 at the ends, where rounding would leave 1e-17
    low = 0.0 if successes == 0 else (middle - half) / scale
    high = 1.0 if successes == n else (middle + half) / scale
    return low, high
