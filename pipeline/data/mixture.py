"""Training sequences of text and of tasks, in the shares that `data.mix` gives."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from pipeline.config.schema import Config
from pipeline.config.tasks import mixed_shares
from pipeline.data.prepare import Prepared
from pipeline.data.sequences import Sequences, ordered
from pipeline.data.tasks.base import Task
from pipeline.data.tasks.registry import build_task
from pipeline.data.tokenizer import BOS
from pipeline.errors import ConfigError
from pipeline.model.loss import IGNORED
from pipeline.positions.position_ids import generator

Ids = npt.NDArray[np.int64]

# Beyond any number of steps, so that no generator of (seed, step, place) is one of these.
_STREAM = 2**40


def training_sequences(config: Config, prepared: Prepared) -> "Sequences | Mixture":
    """What a run trains on: the text of the train split, mixed with tasks where it says so.

    Raises:
        DataError: the text is shorter than one sequence, or than a haystack.
        ConfigError: a task that is mixed in does not fit into a sequence.
    """
    pack = prepared.split("train")
    text = Sequences(pack, config.train_length)
    shares = mixed_shares(config.data.mix)
    if not shares:
        return text
    tasks = {name: build_task(name, prepared.tokenizer, pack) for name in shares}
    for name, task in tasks.items():
        if task.least > text.length:
            raise ConfigError(
                f"`data.mix.{name}` = {float(shares[name])} is not allowed: with this vocabulary "
                f"an example has at least {task.least} tokens, `train_length` = {text.length}. "
                f"Train at {task.least} tokens at least, or leave it out."
            )
        task.example(text.length, generator(0))  # whether the text is long enough for a haystack
    return Mixture(text, [(tasks[name], share) for name, share in shares.items()])


class Mixture:
    """Text and tasks; what stands at which place is a function of (seed, step) alone.

    Counted through all global batches, sequence g is text if and only if floor((g + 1) w) >
    floor(g w), w the share of text: so text and tasks alternate as evenly as they can, and of any
    first n sequences floor(n w) are text. The text is that of `Sequences`, in the same order: each
    of its sequences once an epoch. Which task stands elsewhere is drawn by the shares.

    A sequence of text has its number >= 0; one of a task has a negative number, from which the task
    and all its examples are drawn. It holds examples of one task, each of a length drawn uniformly
    between the least one and what is left, as long as one fits, then bos. Labels are ignored but
    for the tokens of answers.
    """

    def __init__(self, text: Sequences, tasks: list[tuple[Task, Fraction]]) -> None:
        """`tasks` with their shares, each above 0, together at most 1; each fits `text.length`."""
        self.text, self.length = text, text.length
        self._tasks = [task for task, _ in tasks]
        total = sum((share for _, share in tasks), Fraction(0))
        self._text_share = 1 - total
        self._edges = np.cumsum([float(share / total) for _, share in tasks])[:-1]

    def order(self, seed: int, step: int, batch: int) -> Ids:
        """int64 [batch]: the sequences of the global batch of `step` (from 0)."""
        first = step * batch
        share = self._text_share
        counts = range(first, first + batch + 1)
        before = [g * share.numerator // share.denominator for g in counts]
        start, stop = before[0], before[-1]
        texts = iter(ordered(seed, start, stop, len(self.text)))
        chosen = (
            next(texts) if here < after else _task_number(seed, first + place - here)
            for place, (here, after) in enumerate(pairwise(before))
        )
        return np.fromiter(chosen, dtype=np.int64, count=batch)

    def read(self, index: int, start: int, stop: int) -> tuple[Ids, Ids]:
        """Inputs and labels, each int64 [stop - start], of places start..stop of a sequence.

        Raises IndexError for a text or place that does not exist.
        """
        if index >= 0:
            return self.text.read(index, start, stop)
        if not 0 <= start <= stop <= self.length:
            raise IndexError(f"places {start}..{stop} of a sequence of {self.length} tokens")
        task, lengths, draw = self._plan(index)
        tokens = np.full(self.length + 1, BOS, dtype=np.int64)
        labels = np.full(self.length, IGNORED, dtype=np.int64)
        place = 0
        for length in lengths:
            example = task.example(length, draw)
            end = place + length + 1
            tokens[place:end] = example.tokens
            labels[end - 1 - example.answer : end - 1] = example.tokens[-example.answer :]
            place = end
        return tokens[start:stop], labels[start:stop]

    def target_count(self, index: int) -> int:
        """Labels of the whole sequence that count: all of a text, the answers of a task."""
        if index >= 0:
            return self.text.target_count(index)
        task, lengths, _ = self._plan(index)
        return sum(task.answer_tokens(length) for length in lengths)

    def _plan(self, index: int) -> tuple[Task, list[int], np.random.Generator]:
        """The task of a sequence, the lengths of its examples, and what draws their contents."""
        draw = generator(_STREAM, -index)
        task = self._tasks[int(np.searchsorted(self._edges, draw.random(), side="right"))]
        lengths, left = [], self.length
        while left >= task.least:
            lengths.append(int(draw.integers(task.least, left + 1)))
            left -= lengths[-1] + 1
        return task, lengths, draw


def _task_number(seed: int, count: int) -> int:
    """The number, below 0, of the sequence of a task that stands `count`-th among these."""
    return -1 - int(generator(_STREAM, seed, count).integers(2**62))
