"""Associative recall."""

import numpy as np

from pipeline.data.tasks.base import HEAD, Example, Task
from pipeline.data.tasks.symbols import Ids

_KEY = _VALUE = 2  # letters of a key, digits of a value
_PAIR = _KEY + _VALUE


class Recall(Task):
    """Pairs of keys and values, and one of the keys again: its value is the answer.

    What an induction head does, which has seen [A][B] and reads [A] (Olsson et al. 2022); with one
    query of the associative recall of Arora et al. 2023 (arXiv:2312.04927). Keys are two letters
    and values two digits, so that no key is found between two pairs. All keys differ as far as
    there are letters for it (2704 keys); beyond, the others repeat and the one asked for still
    stands once. Values are independent and uniform, and so is the place of the key asked for.
    """

    name = "recall"
    about = "pairs of two letters and two digits, two of these letters -> their digits"

    @property
    def least(self) -> int:
        """Two pairs."""
        return HEAD + 2 * _PAIR + _PAIR

    @property
    def choices(self) -> Ids:
        """All digits."""
        return np.sort(self.symbols.digits)

    def answer_tokens(self, length: int) -> int:
        """The digits of a value."""
        return _VALUE

    def shown(self, length: int) -> int | None:
        """One value in every pair."""
        return self._pairs(length)

    def _pairs(self, length: int) -> int:
        return (length - HEAD) // _PAIR - 1

    def _made(self, length: int, draw: np.random.Generator, depth: float | None) -> Example:
        letters, digits = self.symbols.letters, self.symbols.digits
        pairs = self._pairs(length)
        every = draw.permutation(len(letters) ** _KEY)
        keys = np.insert(np.resize(every[1:], pairs - 1), asked := draw.integers(pairs), every[0])
        rows = np.empty((pairs, _PAIR), dtype=np.int64)
        rows[:, :_KEY] = letters[np.stack(np.divmod(keys, len(letters)), axis=1)]
        rows[:, _KEY:] = digits[draw.integers(10, size=(pairs, _VALUE))]
        question = np.append(self.symbols.ask, rows[asked, :_KEY])
        return self._framed(np.append(rows, question), rows[asked, _KEY:], length)
