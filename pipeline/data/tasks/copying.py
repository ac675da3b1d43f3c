"""Sequences that are written out again: copy, reverse and sort."""

import numpy as np

from pipeline.data.tasks.base import HEAD, Example, Task
from pipeline.data.tasks.symbols import Ids


class _Rewriting(Task):
    """x_1 ... x_n, the sign to answer, and the same n letters in the order of `_answer`."""

    @property
    def least(self) -> int:
        """One letter."""
        return HEAD + 2

    @property
    def choices(self) -> Ids:
        """All letters."""
        return np.sort(self.symbols.letters)

    def answer_tokens(self, length: int) -> int:
        """n; an odd length has a filler."""
        return (length - HEAD) // 2

    def _made(self, length: int, draw: np.random.Generator, depth: float | None) -> Example:
        letters = self.symbols.letters
        drawn = draw.integers(len(letters), size=self.answer_tokens(length))
        prompt = np.append(letters[drawn], self.symbols.ask)
        return self._framed(prompt, letters[self._answer(drawn)], length)

    def _answer(self, drawn: Ids) -> Ids:
        raise NotImplementedError


class Copy(_Rewriting):
    """Copy (Graves et al. 2014, section 4.1; Kazemnejad et al. 2023)."""

    name = "copy"
    about = "letters -> the same letters"

    def shown(self, length: int) -> int | None:
        """The letters themselves."""
        return 1

    def _answer(self, drawn: Ids) -> Ids:
        return drawn


class Reverse(_Rewriting):
    """Reverse (Kazemnejad et al. 2023)."""

    name = "reverse"
    about = "letters -> the same letters backwards"

    def _answer(self, drawn: Ids) -> Ids:
        return drawn[::-1]


class Sort(_Rewriting):
    """Sort (Kazemnejad et al. 2023); letters may stand several times, in both."""

    name = "sort"
    about = "letters -> the same letters ascending (A-Z before a-z)"

    def _answer(self, drawn: Ids) -> Ids:
        return np.sort(drawn)
