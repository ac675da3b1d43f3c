"""Numbers hidden in text: passkey, multi_key and multi_value.

bos, the marker, text among whose tokens needles are inserted, and the question, whose end is the
beginning of the needle asked for; the answer is how that one goes on. Sentences are split into
tokens once, the key (two letters) and the digits of the number are symbols, one token each.
"""

from itertools import chain, zip_longest
from typing import ClassVar

import numpy as np

from pipeline.data.tasks.base import HEAD, Example, Task
from pipeline.data.tasks.haystack import Haystack
from pipeline.data.tasks.symbols import Ids, Symbols

DIGITS = 5
_KEY = 2  # letters


class _Numbers(Task):
    """`needles` sentences "[before][key][between][number][after]", all of one size, and at least as
    many tokens of text as one of them has."""

    needles: ClassVar[int]
    sentence: ClassVar[tuple[str, str, str]] = (" The key ", " is ", ".")
    question: ClassVar[tuple[str, str]] = (" What is the key ", "?")
    key_letters: ClassVar[int] = _KEY
    answers: ClassVar[int] = 1  # numbers in the answer

    def __init__(self, symbols: Symbols, haystack: Haystack) -> None:
        super().__init__(symbols, haystack)
        self._before, self._between, self._after = map(symbols.text, self.sentence)
        self._ask = [symbols.text(words) for words in self.question]
        key = symbols.letters[: self.key_letters]
        self._size = len(self._needle(key, symbols.digits[:DIGITS]))
        self._question_size = len(self._question(key))

    @property
    def least(self) -> int:
        """Depends on how the vocabulary splits the sentences."""
        tokens = HEAD + (self.needles + 1) * self._size + self._question_size
        return tokens + self.answers * DIGITS - 1

    @property
    def choices(self) -> Ids:
        """All digits."""
        return np.sort(self.symbols.digits)

    def answer_tokens(self, length: int) -> int:
        """The digits of the numbers asked for."""
        return self.answers * DIGITS

    def shown(self, length: int) -> int | None:
        """Numbers in the text; of all that are asked for, there is one set."""
        return self.needles // self.answers

    def _needle(self, key: Ids, number: Ids) -> Ids:
        return np.concatenate([self._before, key, self._between, number, self._after])

    def _question(self, key: Ids) -> Ids:
        ask, mark = self._ask
        return np.concatenate([ask, key, mark, self._before, key, self._between])

    def _room(self, length: int) -> int:
        """Tokens of text and needles."""
        return length + 1 - HEAD - self._question_size - self.answer_tokens(length)

    def _keys(self, count: int, draw: np.random.Generator) -> Ids:
        """[count, letters of a key], all different where keys have letters."""
        letters = self.symbols.letters
        drawn = draw.choice(len(letters) ** _KEY, size=count, replace=False)
        return letters[np.stack(np.divmod(drawn, len(letters)), axis=1)][:, : self.key_letters]

    def _values(self, count: int, draw: np.random.Generator) -> Ids:
        """[count, DIGITS], every digit uniform."""
        return self.symbols.digits[draw.integers(10, size=(count, DIGITS))]


class _Placed(_Numbers):
    """One needle is asked for, at a given depth; the others lie anywhere else."""

    has_depth = True

    def _made(self, length: int, draw: np.random.Generator, depth: float | None) -> Example:
        keys, values = self._keys(self.needles, draw), self._values(self.needles, draw)
        asked, *others = map(self._needle, keys, values)
        question, room = self._question(keys[0]), self._room(length)
        share = draw.random() if depth is None else depth
        before = round(share * (room - self._size))
        after = room - self._size - before
        ahead = self._ahead(before, after, draw)
        text = self.haystack.text(room - self.needles * self._size, draw)
        cut = before - ahead * self._size
        context = [
            *scattered(text[:cut], others[:ahead], draw),
            asked,
            *scattered(text[cut:], others[ahead:], draw),
        ]
        start = [self.symbols.bos, self.marker]
        tokens = np.concatenate([start, *context, question, values[0]])
        return Example(tokens, DIGITS, (HEAD + before) / (len(tokens) - DIGITS))

    def _ahead(self, before: int, after: int, draw: np.random.Generator) -> int:
        """How many of the other needles lie among the `before` tokens: each with the probability of
        lying there, as far as they fit on both sides. They do, as the text is no shorter than one.
        """
        others = self.needles - 1
        drawn = draw.binomial(others, before / max(before + after, 1))
        least, most = max(0, others - after // self._size), min(others, before // self._size)
        return int(np.clip(drawn, least, most))


class Passkey(_Placed):
    """Mohtashami & Jaggi 2023 (arXiv:2305.16300), in text of the corpus instead of one repeated.

    It tests finding and not matching, as there is one number; and finding is easier than in the
    published test, as text hardly ever has the tokens of these digits.
    """

    name = "passkey"
    about = "text that holds a number of five digits -> the number"
    needles = 1
    sentence = (" The pass key", " is ", ".")
    question = (" What is the pass key", "?")
    key_letters = 0


class MultiKey(_Placed):
    """niah_multikey of RULER (Hsieh et al. 2024, arXiv:2404.06654).

    At depth 0 the needle asked for is always the first of the four and at depth 1 always the last,
    so there its place tells it without its key; between them nothing but the key does.
    """

    name = "multi_key"
    about = "text that holds four keys with a number of five digits each, a key -> its number"
    needles = 4


class MultiValue(_Numbers):
    """niah_multivalue of RULER, with three values of one key; all lie anywhere."""

    name = "multi_value"
    about = "text that holds three numbers of five digits -> all of them in order of appearance"
    needles = answers = 3

    def _made(self, length: int, draw: np.random.Generator, depth: float | None) -> Example:
        key, values = self._keys(1, draw)[0], self._values(self.needles, draw)
        text = self.haystack.text(self._room(length) - self.needles * self._size, draw)
        context = scattered(text, [self._needle(key, value) for value in values], draw)
        start = [self.symbols.bos, self.marker]
        tokens = np.concatenate([start, *context, self._question(key), *values])
        return Example(tokens, self.answers * DIGITS)


def scattered(text: Ids, pieces: list[Ids], draw: np.random.Generator) -> list[Ids]:
    """Parts of `text` and, between them, the pieces in their order, at places drawn uniformly."""
    places = np.sort(draw.integers(len(text) + 1, size=len(pieces)))
    parts = zip_longest(np.split(text, places), pieces, fillvalue=text[:0])
    return list(chain.from_iterable(parts))
