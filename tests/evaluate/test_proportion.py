"""Intervals of a share against published ones."""

import pytest

from pipeline.evaluate.proportion import wilson


def test_wilson_intervals_are_those_of_the_formula() -> None:
    """Tabulated by Newcombe 1998, Statistics in Medicine 17, table I."""
    for successes, n, low, high in (
        (81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718), (29, 29, 0.8830, 1.0),
    ):  # fmt: skip
        assert wilson(successes, n) == pytest.approx((low, high), abs=5e-5)
    assert wilson(0, 5)[0] == 0.0 and wilson(5, 5)[1] == 1.0
    for wrong in ((1, 0), (-1, 4), (5, 4)):
        with pytest.raises(ValueError, match="no share"):
            wilson(*wrong)
