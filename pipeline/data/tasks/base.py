"""What a task is: prompts whose answer is known exactly, of any length from `least` on.

An example is bos, perhaps fillers, the marker of the task, the rest of the prompt and the answer,
all of it token ids: nothing is split into tokens again, so that lengths and depths are exact.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pipeline.data.tasks.haystack import Haystack
from pipeline.data.tasks.symbols import Ids, Symbols

HEAD = 2  # tokens of every example before its own: bos and the marker


@dataclass(frozen=True)
class Example:
    """A prompt and its answer.

    `tokens` int64 [n], bos first: the last `answer` of them, at least one, are the answer and all
    before are the prompt. `depth` is where the needle that is asked for begins: tokens before it /
    tokens of the prompt; None in tasks without such a needle.
    """

    tokens: Ids
    answer: int
    depth: float | None = None

    @property
    def length(self) -> int:
        """Tokens shown to the model: all but the last of the answer, which is only predicted."""
        return len(self.tokens) - 1


class Task:
    """One task in one vocabulary; `example` is a function of its arguments alone."""

    name: ClassVar[str]
    about: ClassVar[str]  # one line: the prompt, and what the answer is
    has_depth: ClassVar[bool] = False  # whether an example takes a depth

    def __init__(self, symbols: Symbols, haystack: Haystack) -> None:
        self.symbols, self.haystack = symbols, haystack
        self.marker = symbols.marker(self.name)

    @property
    def least(self) -> int:
        """The shortest length, in tokens shown, that an example can have."""
        raise NotImplementedError

    @property
    def choices(self) -> Ids:
        """Every id that a token of an answer can be, ascending."""
        raise NotImplementedError

    def answer_tokens(self, length: int) -> int:
        """Tokens of the answer of every example of this length."""
        raise NotImplementedError

    def shown(self, length: int) -> int | None:
        """How many answers of the right form the prompt of this length holds, the right one among
        them: whoever copies one of them, without finding out which is asked for, is right as often
        as one of so many. None where the prompt does not hold the right one."""
        return None

    def example(
        self, length: int, draw: np.random.Generator, depth: float | None = None
    ) -> Example:
        """An example of exactly `length` tokens shown.

        `depth` in [0, 1] is where the needle begins, as a share of the room it has: 0 = first in
        the text, 1 = last; None = drawn at random. Raises ValueError for a length below `least`, a
        depth outside [0, 1], or any depth where the task has none; DataError if the haystack is
        too short.
        """
        if length < self.least:
            raise ValueError(f"{self.name}: length {length} is below {self.least}")
        if depth is not None and not (self.has_depth and 0.0 <= depth <= 1.0):
            raise ValueError(f"{self.name}: depth {depth} is not possible")
        example = self._made(length, draw, depth)
        assert example.length == length, (self.name, length, example.length)
        return example

    def _made(self, length: int, draw: np.random.Generator, depth: float | None) -> Example:
        raise NotImplementedError

    def _framed(self, prompt: Ids, answer: Ids, length: int) -> Example:
        """bos, as many fillers as `length` asks for, the marker, `prompt` and `answer`."""
        fillers = length + 1 - (HEAD + len(prompt) + len(answer))
        start = [self.symbols.bos, *[self.symbols.filler] * fillers, self.marker]
        return Example(np.concatenate([start, prompt, answer]), len(answer))
