"""Tasks: every prompt has the length asked for and the answer that a slow loop finds."""

from pathlib import Path

import numpy as np
import pytest

from pipeline.config.schema import MixConfig
from pipeline.config.tasks import NEEDLE_TASKS
from pipeline.data.prepare import Prepared, prepare
from pipeline.data.tasks.base import Example, Task
from pipeline.data.tasks.registry import build_task, evaluation_example, task_names
from pipeline.data.tasks.symbols import MARKED, Symbols
from pipeline.errors import DataError
from tests.data.corpus import config_for
from tests.oracles.tasks import answer_of

NAMES = task_names()
LONGEST = 8192


@pytest.fixture(scope="module")
def bytes_alone(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """The smallest vocabulary: text has no tokens but the symbols of tasks."""
    return prepare(config_for(corpus, tmp_path_factory.mktemp("bytes"), vocab=260))


def task(name: str, prepared: Prepared, split: str = "train") -> Task:
    return build_task(name, prepared.tokenizer, prepared.split(split))


def check(example: Example, made: Task, prepared: Prepared) -> None:
    """bos first and nowhere else, and the right answer."""
    pieces, tokens = prepared.tokenizer.pieces, example.tokens
    assert tokens.dtype == np.int64
    assert tokens[0] == 1 and (tokens[1:] > 1).all()
    prompt, answer = np.split(tokens, [len(tokens) - example.answer])
    assert b"".join(pieces[i] for i in answer) == answer_of(
        made.name, b"".join(pieces[i] for i in prompt)
    )
    assert np.isin(answer, made.choices).all()


def lengths(made: Task) -> list[int]:
    spread = np.geomspace(made.least + 25, LONGEST, 25).astype(int)
    return [*range(made.least, made.least + 25), *spread.tolist(), LONGEST - 1]


def test_a_share_of_each_task_can_be_mixed_in() -> None:
    assert tuple(vars(MixConfig())) == NAMES == MARKED


def test_the_tasks_with_depths_are_those_that_settings_speak_of(prepared: Prepared) -> None:
    assert tuple(name for name in NAMES if task(name, prepared).has_depth) == NEEDLE_TASKS


def test_symbols_are_tokens_of_one_byte_each_and_disjoint(prepared: Prepared) -> None:
    symbols, pieces = Symbols(prepared.tokenizer), prepared.tokenizer.pieces
    markers = [symbols.marker(name) for name in NAMES]
    signs = [symbols.ask, symbols.filler, symbols.plus, symbols.equals, symbols.end]
    every = [*markers, *signs, *symbols.digits, *symbols.letters, symbols.bos]
    assert len(set(every)) == len(every) == 11 + 5 + 10 + 52 + 1
    assert b"".join(pieces[i] for i in symbols.digits) == b"0123456789"
    letters = b"".join(pieces[i] for i in symbols.letters)
    assert letters == bytes(sorted(letters)) and letters.decode().isalpha()
    for frame in (*markers, symbols.ask, symbols.filler):
        assert pieces[frame].decode(errors="replace") == "\ufffd"
        assert frame not in prepared.split("train").tokens


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("vocabulary", ["prepared", "bytes_alone"])
def test_every_length_is_met_and_every_answer_is_right(
    name: str, vocabulary: str, request: pytest.FixtureRequest
) -> None:
    data: Prepared = request.getfixturevalue(vocabulary)
    made = task(name, data)
    for length in lengths(made):
        for seed in range(3):
            example = made.example(length, np.random.default_rng(seed))
            assert example.length == len(example.tokens) - 1 == length
            assert example.answer == made.answer_tokens(length) >= 1
            check(example, made, data)
    assert list(made.choices) == sorted(set(made.choices))


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_a_function_of_what_it_is_drawn_from(name: str, prepared: Prepared) -> None:
    drawn = [
        task(name, prepared).example(200, np.random.default_rng(seed)).tokens.tolist()
        for seed in (0, 0, 1, 2)
    ]
    assert drawn[0] == drawn[1]
    # one token of a counted sequence may be the same, but never a whole prompt
    assert drawn[0] != drawn[2] != drawn[3]


def test_a_tested_example_is_the_same_in_every_run(prepared: Prepared) -> None:
    made = task("copy", prepared)
    pieces = prepared.tokenizer.pieces
    asked = [(8, 0), (8, 1), (10, 0)]
    found = [evaluation_example(made, length, None, n).tokens for length, n in asked]
    letters = [b"".join(pieces[i] for i in tokens[-3:]) for tokens in found]
    assert letters == [b"Enu", b"xlS", b"wKC"]
    needles = task("passkey", prepared)
    every = [
        evaluation_example(needles, 200, depth, n).tokens.tolist()
        for depth in (0.0, 0.5, 0.75)
        for n in range(3)
    ]
    assert len({tuple(tokens) for tokens in every}) == 9
    assert evaluation_example(needles, 200, 0, 0).tokens.tolist() == every[0]


@pytest.mark.parametrize("name", NAMES)
def test_what_cannot_be_asked_is_refused(name: str, prepared: Prepared) -> None:
    made, draw = task(name, prepared), np.random.default_rng(0)
    with pytest.raises(ValueError, match=f"{name}: length {made.least - 1} is below {made.least}"):
        made.example(made.least - 1, draw)
    for depth in (-0.1, 1.1, *([] if made.has_depth else [0.5])):
        with pytest.raises(ValueError, match=f"{name}: depth {depth} is not possible"):
            made.example(made.least, draw, depth)


@pytest.mark.parametrize("name", ["passkey", "multi_key", "multi_value", "variable_tracking"])
def test_text_is_never_repeated_to_fill_a_haystack(name: str, prepared: Prepared) -> None:
    made, pack = task(name, prepared, "test"), prepared.split("test")
    text = pack.n_tokens - pack.n_documents
    with pytest.raises(DataError, match=f"the test split has {text} tokens of text"):
        made.example(text + made.least, np.random.default_rng(0))
