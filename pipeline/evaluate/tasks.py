"""Tasks with known answers at every length: is the answer exactly right, and how likely is it.

One forward per example, with the whole right answer shown (teacher forcing), is enough: greedy
decoding writes exactly the answer if and only if every answer token is, after the right tokens
before it, more likely than every other token. Ties count against the model.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.config.schema import Config
from pipeline.data.prepare import Prepared
from pipeline.data.tasks.base import Example, Task
from pipeline.data.tasks.registry import build_task, evaluation_example
from pipeline.errors import ConfigError, DataError
from pipeline.evaluate.score import Scorer, Standings
from pipeline.evaluate.steps import Row, Values, common_fields
from pipeline.evaluate.windows import Window

# the least share of its label that the real length of a cell may be
FILLED = 0.97


@dataclass(frozen=True)
class TaskStep:
    """One task at one length and, for needles, one depth: `count` examples, the same for every
    run."""

    task: Task
    length: int
    depth: float | None
    count: int
    split: str

    @property
    def key(self) -> str:
        """`task-copy-128`, with a depth `task-passkey-128-d0.25`."""
        cell = f"task-{self.task.name}-{self.length}"
        return cell if self.depth is None else f"{cell}-d{self.depth}"

    @property
    def tokens(self) -> int:
        """Tokens it shows the model in all, at most."""
        return self.length * self.count

    def measure(self, config: Config, scorer: Scorer) -> tuple[Row, Values]:
        """Ask every example, or say why the task or the encoding is not defined at this length.

        Returns:
            The row and, if it is defined, of every answer token "nats" fp32 and "rank" int32, among
            the choices, and of every example "exact" uint8.

        Raises:
            DataError: an example is not what the label of the cell says.
        """
        row, examples = self._asked(config, scorer.precision)
        if not examples:
            return row, {}
        try:
            scorer.decoder.check_length(self.length)
        except ConfigError as error:
            return {**row, "reason": str(error)}, {}
        windows = [Window(i, 0, len(e.tokens) - 1, e.answer) for i, e in enumerate(examples)]
        found = scorer.standings(windows, [e.tokens for e in examples], self.task.choices)
        if not np.isfinite(found.nats).all():
            return {**row, "reason": "its loss is not a finite number at this length"}, {}
        exact = exact_matches(found, [e.answer for e in examples])
        values: Values = {
            "nats": found.nats.astype(np.float32),
            "rank": found.among.astype(np.int32),
            "exact": exact.astype(np.uint8),
        }
        numbers_of = {
            "defined": True,
            "loss": float(found.nats.mean()),
            "scored_tokens": len(found.nats),
            "exact_match": float(exact.mean()),
            "rank": float(found.among.mean()),
        }
        return {**row, **numbers_of}, values

    def unmeasured(self, config: Config, precision: str) -> Row:
        """The row without its numbers."""
        return self._asked(config, precision)[0]

    def _asked(self, config: Config, precision: str) -> tuple[Row, list[Example]]:
        """The row without its numbers, and the examples: none where the task is not defined."""
        row = self._unasked(config, precision)
        if self.length < self.task.least:
            reason = f"{self.task.name} is not defined below {self.task.least} tokens"
            return {**row, "reason": reason}, []
        numbers = range(self.count)
        examples = [evaluation_example(self.task, self.length, self.depth, n) for n in numbers]
        self._check(examples)
        return {**row, **self._facts(examples)}, examples

    def _unasked(self, config: Config, precision: str) -> Row:
        """The row of a cell that cannot be asked, with no examples."""
        choices = len(self.task.choices)
        return {
            "key": self.key,
            "protocol": "task",
            "task": self.task.name,
            "length": self.length,
            "depth": self.depth,
            "defined": False,
            "reason": None,
            "exact_match": None,
            # 0 where all or none is right, which flatters: see `pipeline.evaluate.proportion`
            "standard_error": None,
            "loss": None,
            "perplexity": None,
            "bits_per_byte": None,
            "rank": None,
            "choices": choices,
            "chance": (choices + 1) / 2,
            "chance_exact_match": None,
            "shown": None,
            "examples": 0,
            "real_length": None,
            "real_depth": None,
            "scored_tokens": 0,
            "documents": 0,
            "document_ids": None,
            "suffix_tokens": None,
            "stride": None,
            "split": self.split,
            "precision": precision,
            "text_sha256": hashlib.sha256().hexdigest(),
            **common_fields(config),
        }

    def _facts(self, examples: Sequence[Example]) -> Row:
        """What the examples say of themselves."""
        choices = float(len(self.task.choices))
        depths = [example.depth for example in examples if example.depth is not None]
        text = b"".join(example.tokens.tobytes() for example in examples)
        return {
            "examples": len(examples),
            "documents": len(examples),
            "real_length": float(np.mean([example.length for example in examples])),
            "real_depth": float(np.mean(depths)) if depths else None,
            # of guessing each token alone, all choices alike
            "chance_exact_match": float(np.mean([choices**-e.answer for e in examples])),
            # answers of the right form in a prompt: see `Task.shown`
            "shown": self.task.shown(self.length),
            "text_sha256": hashlib.sha256(text).hexdigest(),
        }

    def _check(self, examples: Iterable[Example]) -> None:
        for number, example in enumerate(examples):
            where = f"{self.key}: example {number}"
            if not FILLED * self.length <= example.length <= self.length:
                raise DataError(
                    f"{where} shows {example.length} tokens, but a cell of {self.length} has "
                    f"{FILLED:.0%} to 100 % of them; the task {self.task.name} must fill its length"
                )
            strange = np.setdiff1d(example.tokens[-example.answer :], self.task.choices)
            if len(strange):
                raise DataError(
                    f"{where} has the tokens {strange.tolist()} in its answer, which are not among "
                    f"the choices of the task {self.task.name}; its ranks would mean nothing"
                )


def exact_matches(
    found: Standings, answers: Sequence[int]
) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Whether all tokens of each answer are more likely than every other token.

    Args:
        found: of all answer tokens, answer after answer.
        answers: tokens of each answer.
    """
    starts = np.cumsum([0, *answers[:-1]])
    return np.logical_and.reduceat(found.rank == 1, starts)


def task_steps(config: Config, prepared: Prepared) -> list[TaskStep]:
    """Every configured task at every length of `eval_lengths` and, for needles, at every depth.

    Examples are made when a step is measured; their text is that of `evaluate.split`.

    Raises:
        ConfigError or DataError: a task cannot be made with this tokenizer or from this text.
    """
    asked, steps = config.evaluate, []
    for name in asked.tasks:
        task = build_task(name, prepared.tokenizer, prepared.split(asked.split))
        depths = asked.needle_depths if task.has_depth else [None]
        steps += [
            TaskStep(task, length, depth, asked.task_examples, asked.split)
            for length in config.eval_lengths
            for depth in depths
        ]
    return steps


def depth_means(rows: Iterable[Row]) -> list[Row]:
    """One row for each needle task and length that is defined at all its depths: means over these,
    of likelihoods over all answer tokens. `depth` is null and the fields of one cell are gone."""
    cells: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        if row["protocol"] == "task" and row["depth"] is not None:
            cells.setdefault((row["task"], row["length"]), []).append(row)
    means = []
    for (task, length), cell in cells.items():
        if all(row["defined"] for row in cell):
            examples = [row["examples"] for row in cell]
            scored = [row["scored_tokens"] for row in cell]
            means.append(
                {
                    "protocol": "task",
                    "task": task,
                    "length": length,
                    "depth": None,
                    "exact_match": float(
                        np.average([r["exact_match"] for r in cell], weights=examples)
                    ),
                    "loss": float(np.average([r["loss"] for r in cell], weights=scored)),
                    "rank": float(np.average([r["rank"] for r in cell], weights=scored)),
                }
            )
    return means
