"""Nothing but the prompt tells the answer: what is drawn is uniform."""

import re
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pytest

from pipeline.data.prepare import Prepared
from pipeline.data.tasks.base import Task
from pipeline.data.tasks.registry import build_task, task_names

DRAWN = 2000


def examples(name: str, prepared: Prepared, length: int) -> tuple[Task, npt.NDArray[np.int64]]:
    """The task, and int64 [DRAWN, length + 1]."""
    made = build_task(name, prepared.tokenizer, prepared.split("train"))
    draw = np.random.default_rng(11)
    return made, np.stack([made.example(length, draw).tokens for _ in range(DRAWN)])


def check_uniform(found: npt.NDArray[np.int64], values: Iterable[int]) -> None:
    """Counts of all `values` within 4.5 standard deviations of an even share, and no others."""
    counts = np.array([(found == value).sum() for value in values])
    share = 1 / len(counts)
    assert counts.sum() == found.size
    deviation = np.sqrt(found.size * share * (1 - share))
    assert (abs(counts - found.size * share) < 4.5 * deviation).all(), counts


@pytest.mark.parametrize("length", [6, 7, 20, 400])
def test_every_candidate_wins_equally_often(prepared: Prepared, length: int) -> None:
    made, tokens = examples("majority", prepared, length)
    check_uniform(tokens[:, -1], made.choices)


@pytest.mark.parametrize("length", [5, 20])
def test_parity_is_balanced_in_answers_and_bits(prepared: Prepared, length: int) -> None:
    made, tokens = examples("parity", prepared, length)
    check_uniform(tokens[:, -1], made.choices)
    check_uniform(tokens[:, 2:-2], made.choices)


@pytest.mark.parametrize("name", ["copy", "reverse", "sort"])
def test_letters_are_drawn_evenly(prepared: Prepared, name: str) -> None:
    made, tokens = examples(name, prepared, 24)
    check_uniform(tokens[:, -11:], made.choices)


def test_digits_of_both_numbers_are_drawn_evenly(prepared: Prepared) -> None:
    made, tokens = examples("addition", prepared, 24)
    plus = made.symbols.plus
    places = [int(np.flatnonzero(row == plus)[0]) for row in tokens]
    # 24 = 4 + 3 * 7 - 1: numbers of seven and six digits, the wider one first or second
    check_uniform(np.array(places), [2 + 6, 2 + 7])
    both = np.stack(
        [np.delete(row[2:17], place - 2)[:13] for row, place in zip(tokens, places, strict=True)]
    )
    check_uniform(both, made.choices)


def test_a_recalled_value_and_its_place_are_drawn_evenly(prepared: Prepared) -> None:
    made, tokens = examples("recall", prepared, 46)
    check_uniform(tokens[:, -2:], made.choices)
    pairs = tokens[:, 2:-5].reshape(DRAWN, 10, 4)
    asked = (pairs[:, :, :2] == tokens[:, None, -4:-2]).all(axis=2)
    check_uniform(np.argmax(asked, axis=1), range(10))
    check_uniform(tokens[:, -4], made.symbols.letters)


def test_keys_differ_until_there_are_no_more(prepared: Prepared) -> None:
    made = build_task("recall", prepared.tokenizer, prepared.split("train"))
    for pairs, different in ((2704, 2704), (2705, 2704), (8000, 2704)):
        tokens = made.example(6 + 4 * pairs, np.random.default_rng(pairs)).tokens
        keys = tokens[2:-5].reshape(pairs, 4)[:, :2]
        assert len(np.unique(keys, axis=0)) == different
        assert (keys == tokens[-4:-2]).all(axis=1).sum() == 1


@pytest.mark.parametrize("name", ["passkey", "multi_key", "multi_value"])
def test_every_digit_of_a_needle_is_drawn_evenly(prepared: Prepared, name: str) -> None:
    made, tokens = examples(name, prepared, 300)
    for digit in range(1, made.answer_tokens(300) + 1):
        check_uniform(tokens[:, -digit], made.choices)


def test_the_key_asked_for_and_its_place_are_drawn_evenly(prepared: Prepared) -> None:
    made, tokens = examples("multi_key", prepared, 600)
    pieces = prepared.tokenizer.pieces
    found = [re.findall(rb" key (..) is ", b"".join(pieces[i] for i in row)) for row in tokens]
    assert {len(keys) for keys in found} == {5}  # of the needles, and of the question
    places = [keys[:4].index(keys[4]) for keys in found]
    check_uniform(np.array(places), range(4))
    asked = np.array([list(keys[4]) for keys in found])
    letters = [pieces[i][0] for i in made.symbols.letters]
    check_uniform(asked[:, 0], letters)
    check_uniform(asked[:, 1], letters)


def test_chains_are_told_apart_by_their_value_alone(prepared: Prepared) -> None:
    made, tokens = examples("variable_tracking", prepared, 120)
    check_uniform(tokens[:, -5:], made.choices)
    firsts = []
    for row in tokens:
        names = row[:-1][row[1:] == made.symbols.equals]
        firsts.append(int(names[0] in row[-5:]))
    check_uniform(np.array(firsts), [0, 1])


# what an answer of the right form looks like in a prompt, and how many of them make one answer
SHOWN = {
    "copy": (rb"\xf5\xc1?([A-Za-z]+)\xc0", 1),
    "recall": (rb"[A-Za-z]{2}(\d\d)", 1),
    "passkey": (rb" is (\d{5})\.", 1),
    "multi_key": (rb" is (\d{5})\.", 1),
    "multi_value": (rb" is (\d{5})\.", 3),
    "variable_tracking": (rb"[A-Za-z]=(\d{5});", 1),
}


@pytest.mark.parametrize("name", task_names())
@pytest.mark.parametrize("length", [300, 301])
def test_a_prompt_shows_as_many_answers_as_the_task_says(
    name: str, length: int, prepared: Prepared
) -> None:
    """`shown` is what is left to guess for a model that copies what looks like an answer."""
    made = build_task(name, prepared.tokenizer, prepared.split("train"))
    pieces = prepared.tokenizer.pieces
    for seed in range(5):
        example = made.example(length, np.random.default_rng(seed))
        prompt = b"".join(pieces[i] for i in example.tokens[1 : -example.answer])
        pattern, together = SHOWN.get(name, (rb"(?!)", 1))
        found = re.findall(pattern, prompt)
        answer = b"".join(pieces[i] for i in example.tokens[-example.answer :])
        assert (made.shown(length) or 0) * together == len(found)
        if found and name != "variable_tracking":
            assert answer in [*found, b"".join(found)]


@pytest.mark.parametrize(("depth", "place"), [(0.0, 0), (1.0, -1)])
def test_at_the_ends_the_place_of_a_key_tells_it(
    depth: float, place: int, prepared: Prepared
) -> None:
    """What the report says of these depths: here the key need not be read."""
    made = build_task("multi_key", prepared.tokenizer, prepared.split("train"))
    pieces = prepared.tokenizer.pieces
    for seed in range(20):
        tokens = made.example(400, np.random.default_rng(seed), depth).tokens
        text = b"".join(pieces[i] for i in tokens)
        numbers = re.findall(rb" is (\d{5})\.", text)
        assert len(numbers) == 4 and text.endswith(numbers[place])
