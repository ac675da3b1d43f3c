"""Variable tracking."""

import numpy as np

from pipeline.data.tasks.base import HEAD, Example, Task
from pipeline.data.tasks.needles import DIGITS, scattered
from pipeline.data.tasks.symbols import Ids

_CHAINS, _VARIABLES = 2, 5  # the second chain distracts
_STATEMENT = 4  # tokens of "B=A;"
_STATEMENTS = _CHAINS * (DIGITS - 1 + _VARIABLES * _STATEMENT)  # the first has DIGITS for A
_TEXT = _CHAINS * _VARIABLES  # least tokens of text


class VariableTracking(Task):
    """vt of RULER (Hsieh et al. 2024, arXiv:2404.06654): "A=12345;", "B=A;", "C=B;" and so on lie
    in text, among those of another chain. Given 12345, the answer is A, B, C, D, E.

    All variables rather than the value of the last one, as in RULER: every token of the answer is
    one hop more, and none can be had without the one before. Variables are different letters.
    """

    name = "variable_tracking"
    about = "text that holds two chains of assignments, a value -> the variables that have it"

    @property
    def least(self) -> int:
        """The statements, a token of text for each, and the question."""
        return HEAD + _STATEMENTS + _TEXT + DIGITS + _VARIABLES

    @property
    def choices(self) -> Ids:
        """All letters."""
        return np.sort(self.symbols.letters)

    def answer_tokens(self, length: int) -> int:
        """The variables of a chain."""
        return _VARIABLES

    def shown(self, length: int) -> int | None:
        """The variables of each chain."""
        return _CHAINS

    def _made(self, length: int, draw: np.random.Generator, depth: float | None) -> Example:
        symbols = self.symbols
        drawn = draw.permutation(symbols.letters)[: _CHAINS * _VARIABLES]
        names = drawn.reshape(_CHAINS, _VARIABLES)
        numbers = draw.choice(10**DIGITS, size=_CHAINS, replace=False)
        values = symbols.digits[numbers[:, None] // 10 ** np.arange(DIGITS)[::-1] % 10]
        chains = [iter(self._statements(*one)) for one in zip(names, values, strict=True)]
        turns = draw.permutation(np.repeat(np.arange(_CHAINS), _VARIABLES))
        text = self.haystack.text(length - self.least + _TEXT, draw)
        context = scattered(text, [next(chains[turn]) for turn in turns], draw)
        prompt = np.concatenate([*context, [symbols.ask], values[0]])
        return self._framed(prompt, names[0], length)

    def _statements(self, names: Ids, value: Ids) -> list[Ids]:
        """Of one chain, in order: each variable is given what the one before has."""
        given = [value, *names[:-1, None]]
        equals, end = [self.symbols.equals], [self.symbols.end]
        return [
            np.concatenate([[name], equals, what, end])
            for name, what in zip(names, given, strict=True)
        ]
