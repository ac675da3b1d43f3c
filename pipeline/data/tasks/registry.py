"""The tasks by name, and the examples that tests show every run."""

import hashlib

from pipeline.data.pack import Pack
from pipeline.data.tasks.addition import Addition
from pipeline.data.tasks.base import Example, Task
from pipeline.data.tasks.copying import Copy, Reverse, Sort
from pipeline.data.tasks.counting import Majority, Parity
from pipeline.data.tasks.haystack import Haystack
from pipeline.data.tasks.needles import MultiKey, MultiValue, Passkey
from pipeline.data.tasks.recall import Recall
from pipeline.data.tasks.symbols import Symbols
from pipeline.data.tasks.tracking import VariableTracking
from pipeline.data.tokenizer import Tokenizer
from pipeline.positions.position_ids import generator

_TASKS: dict[str, type[Task]] = {
    task.name: task
    for task in (
        Copy,
        Reverse,
        Addition,
        Sort,
        Majority,
        Parity,
        Recall,
        Passkey,
        MultiKey,
        MultiValue,
        VariableTracking,
    )
}


def task_names() -> tuple[str, ...]:
    """The names of all tasks."""
    return tuple(_TASKS)


def build_task(name: str, tokenizer: Tokenizer, pack: Pack) -> Task:
    """The task of a name, in the vocabulary of `tokenizer`; needles lie in the text of `pack`.

    Raises KeyError for a name that is no task.
    """
    return _TASKS[name](Symbols(tokenizer), Haystack(pack))


def evaluation_example(task: Task, length: int, depth: float | None, number: int) -> Example:
    """Example `number` of the tests at this length and depth, the same in every run and for every
    seed: only the task's name and these arguments decide it (and the text of the haystack).

    Raises what `Task.example` raises.
    """
    place = None if depth is None else float(depth)
    words = f"{task.name} {length} {place} {number}"
    seed = int.from_bytes(hashlib.sha256(words.encode()).digest()[:16])
    return task.example(length, generator(seed), place)
