"""A task in a vocabulary of any kind, whose answers and lengths a test decides."""

from collections.abc import Callable

import numpy as np

from pipeline.data.tasks.base import Example, Task
from pipeline.data.tasks.symbols import Ids

ANSWER = 3
Answers = Callable[[np.random.Generator], Ids]


def at_random(draw: np.random.Generator) -> Ids:
    """Two of four tokens."""
    return draw.integers(1, 5, 2)


class ToyTask(Task):
    """A random prompt, then what `answer` draws or `prompted` answers; `off` tokens too long."""

    name = "toy"

    def __init__(
        self,
        answer: Answers = at_random,
        prompted: Callable[[np.random.Generator, Ids], Ids] | None = None,
        choices: Ids | None = None,
        off: int = 0,
    ) -> None:
        self.answer, self.prompted, self.off = answer, prompted, off
        self._choices = np.arange(1, 5) if choices is None else choices

    @property
    def least(self) -> int:
        return 4

    @property
    def choices(self) -> Ids:
        return self._choices

    def example(
        self, length: int, draw: np.random.Generator, depth: float | None = None
    ) -> Example:
        size = length + self.off + 1
        if self.prompted is None:
            answer = self.answer(draw)
            prompt = draw.integers(0, 50, size - len(answer))
        else:
            prompt = draw.integers(0, 50, size - ANSWER)
            answer = self.prompted(draw, prompt)
        return Example(np.concatenate([prompt, answer]), len(answer), depth)
