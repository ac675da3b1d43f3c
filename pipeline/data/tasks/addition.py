"""Addition, digit by digit."""

import numpy as np

from pipeline.data.tasks.base import HEAD, Example, Task
from pipeline.data.tasks.symbols import Ids


class Addition(Task):
    """Two numbers and their sum, each with its lowest digit first, the sum one digit wider than the
    wider number: its last digit, the carry, is 0 or 1.

    Lowest digits first, because a digit of the sum then follows from what stands before it: in the
    usual order even the first one depends on all carries, which models of this size do not learn,
    so that the task would tell no encoding from another (Lee et al. 2023, arXiv:2307.03381; Zhou et
    al. 2024, arXiv:2402.09371). Digits are independent and uniform. The narrower number, either of
    the two, is at most two digits narrower, as the length asks for. Guessing each token alone is
    right less often than can be had: the carry is one of two digits, not of ten.
    """

    name = "addition"
    about = "two numbers, lowest digit first -> their sum, lowest digit first"

    @property
    def least(self) -> int:
        """Two digits and one: shorter ones do not exist at every length."""
        return HEAD + 7

    @property
    def choices(self) -> Ids:
        """All digits."""
        return np.sort(self.symbols.digits)

    def answer_tokens(self, length: int) -> int:
        """One more than the wider number has."""
        return self._width(length) + 1

    def _width(self, length: int) -> int:
        """Digits w of the wider number: HEAD + 2 signs + at most 3 w tokens are shown."""
        return -((HEAD + 2 - length) // 3)

    def _made(self, length: int, draw: np.random.Generator, depth: float | None) -> Example:
        wide = self._width(length)
        narrow = length - (HEAD + 2) - 2 * wide
        numbers = [draw.integers(10, size=wide), draw.integers(10, size=narrow)]
        first, second = numbers if draw.random() < 0.5 else numbers[::-1]
        digits = self.symbols.digits
        prompt = np.insert(digits[np.append(first, second)], len(first), self.symbols.plus)
        prompt = np.append(prompt, self.symbols.ask)
        return self._framed(prompt, digits[_sum(*numbers)], length)


def _sum(wide: Ids, narrow: Ids) -> Ids:
    """Digits [w + 1] of the sum of numbers of w and at most w digits, all lowest first.

    A digit receives a carry if, of those below it, the last whose two digits do not add up to
    nine has more than nine.
    """
    sums = np.zeros(len(wide) + 1, dtype=np.int64)
    sums[:-1] = wide
    sums[: len(narrow)] += narrow
    deciding = np.where(sums != 9, np.arange(len(sums)), -1)
    last = np.maximum.accumulate(deciding)[:-1]
    sums[1:] += (last >= 0) & (sums[last] > 9)
    digits: Ids = sums % 10
    return digits
