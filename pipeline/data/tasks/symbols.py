"""The tokens that tasks are written in, all in one place.

Symbols are the byte tokens of the tokenizer: every vocabulary has them, in one meaning. Text uses
the token of a byte only where no piece of the vocabulary covers it, so in ordinary text they hardly
occur, and the bytes 0xC0, 0xC1 and 0xF5 to 0xFF occur in no UTF-8 text at all. What frames an
example is one of the latter:

    0xC0          `ask`: ends what is given; the answer follows, in some tasks after a question
    0xC1          `filler`: says nothing; makes the example as long as was asked for
    0xF5 - 0xFF   the markers, one for each task in the order of `MARKED`

What examples are made of are ASCII bytes, no two of these groups sharing one:

    '0' - '9'              `digits`
    'A' - 'Z', 'a' - 'z'   `letters`, ascending
    '+', '=', ';'          `plus`, `equals`, `end` (of a statement)
"""

import numpy as np
import numpy.typing as npt

from pipeline.data.tokenizer import Tokenizer

Ids = npt.NDArray[np.int64]

# A task keeps its marker for good: new names are added at the end.
MARKED = (
    "copy",
    "reverse",
    "addition",
    "sort",
    "majority",
    "parity",
    "recall",
    "passkey",
    "multi_key",
    "multi_value",
    "variable_tracking",
)
_FIRST_MARKER = 0xF5


class Symbols:
    """Ids of the symbols in one vocabulary; `digits` [10] and `letters` [52] are int64, the rest
    single ids."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._bytes = tokenizer.byte_ids
        self.bos = tokenizer.bos
        self.ask, self.filler = self._of(0xC0), self._of(0xC1)
        self.plus, self.equals, self.end = (self._of(ord(sign)) for sign in "+=;")
        self.digits: Ids = self._bytes[ord("0") : ord("9") + 1]
        self.letters: Ids = np.concatenate(
            [self._bytes[ord("A") : ord("Z") + 1], self._bytes[ord("a") : ord("z") + 1]]
        )

    def marker(self, task: str) -> int:
        """The id that begins the examples of a task and of no other."""
        return self._of(_FIRST_MARKER + MARKED.index(task))

    def text(self, words: str) -> Ids:
        """int64 [tokens of `words`]: a piece of text, as the tokenizer splits it."""
        return np.array(self._tokenizer.encode(words), dtype=np.int64)

    def _of(self, byte: int) -> int:
        return int(self._bytes[byte])
