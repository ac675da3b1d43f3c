"""Answers of one token that depend on every token of the prompt: majority and parity."""

import numpy as np

from pipeline.data.tasks.base import HEAD, Example, Task
from pipeline.data.tasks.symbols import Ids

_FEW = 4  # letters that stand for election


class _Counting(Task):
    """x_1 ... x_n, the sign to answer, and one of `choices`, out of which the x are as well."""

    def answer_tokens(self, length: int) -> int:
        """One."""
        return 1

    def _made(self, length: int, draw: np.random.Generator, depth: float | None) -> Example:
        size = length - HEAD - self.answer_tokens(length)
        drawn = draw.integers(len(self.choices), size=size)
        answer = self._answer(drawn, draw)
        prompt = np.append(self.choices[drawn], self.symbols.ask)
        return self._framed(prompt, self.choices[[answer]], length)

    def _answer(self, drawn: Ids, draw: np.random.Generator) -> int:
        """The answer to `drawn`, which may be changed so that there is one."""
        raise NotImplementedError


class Majority(_Counting):
    """The most frequent of four letters.

    Letters are drawn uniformly. Of letters in a tie one is drawn, and takes the place of another
    one of them once: no letter is favoured, so that each is the answer equally often.
    """

    name = "majority"
    about = "letters A to D -> the most frequent one"

    @property
    def least(self) -> int:
        """Three letters."""
        return HEAD + 4

    @property
    def choices(self) -> Ids:
        """A to D."""
        return self.symbols.letters[:_FEW]

    def _answer(self, drawn: Ids, draw: np.random.Generator) -> int:
        counts = np.bincount(drawn, minlength=_FEW)
        first = np.flatnonzero(counts == counts.max())
        winner, *others = draw.permutation(first)
        if others:
            drawn[draw.choice(np.flatnonzero(drawn == others[0]))] = winner
        return int(winner)


class Parity(_Counting):
    """The parity of independent fair bits, which is a fair bit itself (Delétang et al. 2023)."""

    name = "parity"
    about = "bits -> 1 if the number of ones is odd, else 0"

    @property
    def least(self) -> int:
        """Two bits."""
        return HEAD + 3

    @property
    def choices(self) -> Ids:
        """The digits 0 and 1."""
        return self.symbols.digits[:2]

    def _answer(self, drawn: Ids, draw: np.random.Generator) -> int:
        return int(drawn.sum() % 2)
