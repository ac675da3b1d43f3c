"""Where needles lie, and that the text around them is that of the corpus."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from pipeline.data.pack import Pack, PackWriter
from pipeline.data.prepare import Prepared, prepare
from pipeline.data.tasks.haystack import Haystack
from pipeline.data.tasks.needles import DIGITS
from pipeline.data.tasks.registry import build_task
from pipeline.errors import DataError
from tests.data.corpus import config_for, folder_of_text

Ids = npt.NDArray[np.int64]
DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
# sentences of needles, and the question, without what differs between examples
PASSKEY = (" The pass key is ", " What is the pass key? The pass key is ")
MULTI_KEY = (" The key ", " What is the key ")


def place_of(tokens: Ids, part: Ids) -> list[int]:
    """Every place where `part` stands in `tokens`."""
    windows = np.lib.stride_tricks.sliding_window_view(tokens, len(part))
    return [int(i) for i in np.flatnonzero((windows == part).all(axis=1))]


@pytest.mark.parametrize("name", ["passkey", "multi_key"])
@pytest.mark.parametrize("more", [0, 1, 30, 1000])
def test_a_needle_lies_as_deep_as_asked(name: str, more: int, prepared: Prepared) -> None:
    made = build_task(name, prepared.tokenizer, prepared.split("train"))
    symbols = made.symbols
    words, question = PASSKEY if name == "passkey" else MULTI_KEY
    length = made.least + more
    for seed, depth in enumerate([*DEPTHS, *DEPTHS, None, None]):
        example = made.example(length, np.random.default_rng(seed), depth)
        prompt, answer = np.split(example.tokens, [-example.answer])
        (number,) = place_of(prompt, answer)
        begins = max(i for i in place_of(prompt, symbols.text(words)) if i < number)
        assert example.depth == begins / len(prompt)
        if depth is not None:
            size = number + len(answer) + len(symbols.text(".")) - begins
            (asked,) = place_of(prompt, symbols.text(question))
            assert begins == 2 + round(depth * (asked - size - 2))
    shown = {made.example(length, np.random.default_rng(n)).depth for n in range(20)}
    assert len(shown) > (15 if more > 100 else 4)


def test_distractors_lie_on_both_sides_in_proportion(prepared: Prepared) -> None:
    made = build_task("multi_key", prepared.tokenizer, prepared.split("train"))
    words = made.symbols.text(MULTI_KEY[0])
    ahead = {depth: 0 for depth in DEPTHS}
    for depth in DEPTHS:
        for seed in range(200):
            example = made.example(1000, np.random.default_rng(seed), depth)
            assert example.depth is not None
            begins = round(example.depth * (len(example.tokens) - example.answer))
            ahead[depth] += sum(i < begins for i in place_of(example.tokens, words))
    assert ahead[0.0] == 0 and ahead[1.0] == 3 * 200
    # binomial of 600: four standard deviations are at most 49
    for depth in (0.25, 0.5, 0.75):
        assert abs(ahead[depth] - 600 * depth) < 49, ahead


@pytest.mark.parametrize("name", ["passkey", "multi_key", "multi_value", "variable_tracking"])
def test_needles_stand_between_tokens_of_the_corpus(name: str, prepared: Prepared) -> None:
    """Without what a task adds, a piece of the pack is left, whole and in its order."""
    pack = prepared.split("train")
    made = build_task(name, prepared.tokenizer, pack)
    stream = pack.tokens.astype(np.int64)
    text = stream[stream != 1].tobytes()
    for seed in range(5):
        drawn: list[Ids] = []
        kept = made.haystack.text

        def noted(count: int, draw: np.random.Generator, kept=kept, drawn=drawn) -> Ids:  # type: ignore[no-untyped-def]
            drawn.append(kept(count, draw))
            return drawn[-1]

        made.haystack.text = noted  # type: ignore[method-assign]
        example = made.example(500, np.random.default_rng(seed), None)
        made.haystack.text = kept  # type: ignore[method-assign]
        (hay,) = drawn
        assert hay.tobytes() in text + text
        left = iter(example.tokens.tolist())
        assert all(token in left for token in hay), "not a subsequence"
        assert len(hay) > 300


def pack_of(folder: Path, documents: list[int]) -> Pack:
    """Documents of so many tokens beside their bos; tokens count from 2."""
    with PackWriter(folder, "train", 300) as writer:
        for i, size in enumerate(documents):
            writer.add(2 + sum(documents[:i]) + np.arange(size), size)
        return Pack(folder, "train", writer.close())


def test_text_is_read_from_anywhere_without_bos(tmp_path: Path) -> None:
    haystack = Haystack(pack_of(tmp_path, [5, 1, 0, 30, 4]))
    draw = np.random.default_rng(0)
    firsts = set()
    for _ in range(600):
        text = haystack.text(37, draw)
        # 40 tokens of text, 2 to 41: each next one is one more, and 2 follows 41
        assert text.tolist() == [2 + (text[0] - 2 + i) % 40 for i in range(37)]
        firsts.add(int(text[0]))
    assert firsts == set(range(2, 42))
    assert haystack.text(40, draw).tolist() != []
    assert haystack.text(0, draw).tolist() == []
    with pytest.raises(DataError, match="the train split has 40 tokens of text, .* among 41: add"):
        haystack.text(41, draw)


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Text full of numbers, so that the vocabulary has pieces of several digits."""
    folder = folder_of_text(tmp_path_factory.mktemp("numbered") / "corpus")
    for number, path in enumerate(sorted(folder.iterdir())):
        numbers = " ".join(str(17 * number + 1013 * k) for k in range(300))
        path.write_text(f"{path.read_text()} {numbers}")
    return prepare(config_for(folder, folder.parent / "prepared", vocab=400))


@pytest.mark.parametrize("name", ["passkey", "multi_key", "multi_value"])
def test_an_answer_is_the_very_tokens_of_its_needle(name: str, numbered: Prepared) -> None:
    """Other tokens for the same text could not be copied."""
    assert len(numbered.tokenizer.encode(" is 12345.")) < len(" is 12345.")
    made = build_task(name, numbered.tokenizer, numbered.split("train"))
    for seed in range(10):
        tokens = made.example(made.least + 40, np.random.default_rng(seed)).tokens
        answer = made.answer_tokens(made.least + 40)
        prompt = tokens[:-answer]
        for number in tokens[-answer:].reshape(-1, DIGITS):
            (place,) = place_of(prompt, number)
            assert (prompt[place - 4 : place] == prompt[-4:]).all()
