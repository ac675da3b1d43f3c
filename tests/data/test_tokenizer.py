"""The tokenizer: lossless for every text, exact byte counts, deterministic training."""

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece

from pipeline.data.tokenizer import BOS, UNKNOWN, Tokenizer
from pipeline.errors import DataError
from tests.data.corpus import ZOO, prose


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    texts = [prose(seed, 2000) for seed in range(5)]
    texts.append("def f(x):\n\treturn  <s> x  # \u2581 <0x41>\r\n" * 100)
    return Tokenizer.train(texts, 400, tmp_path_factory.mktemp("tokenizer"))


@pytest.mark.parametrize("kind", ZOO)
def test_every_text_comes_back_byte_for_byte(tokenizer: Tokenizer, kind: str) -> None:
    text = ZOO[kind]
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids).encode() == text.encode()
    assert tokenizer.token_bytes()[ids].sum() == len(text.encode())
    assert not {UNKNOWN, BOS} & set(ids)
    assert all(type(i) is int for i in ids[:3])


def test_random_text_comes_back_byte_for_byte(tokenizer: Tokenizer) -> None:
    draw = random.Random(1)
    alphabet = [*"ab \t\n\r\0<s>▁▅é😀\u2028\ufeff", "  ", "\r\n", "▁▁", "the ", "<s>"]
    for _ in range(500):
        text = "".join(draw.choices(alphabet, k=draw.randrange(40)))
        text += "".join(chr(draw.randrange(0xE000, 0x110000)) for _ in range(draw.randrange(4)))
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_space_is_never_taken_for_the_space_sign(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(["abcabdabe" * 50], 262, tmp_path)  # no space to learn from
    assert tokenizer.decode(tokenizer.encode("a b\u2581c  ")) == "a b\u2581c  "


def test_the_batch_gives_the_ids_of_each_text_on_any_number_of_threads(
    tokenizer: Tokenizer,
) -> None:
    texts = [*(text for kind, text in ZOO.items() if kind != "one line"), prose(9, 60_000)]
    alone = [tokenizer.encode(text) for text in texts]
    for threads in (1, 2):
        batch = tokenizer.encode_batch(texts, threads)
        assert [ids.tolist() for ids in batch] == alone


def test_words_become_long_tokens(tokenizer: Tokenizer) -> None:
    text = prose(77, 500)
    assert len(tokenizer.encode(text)) < len(text) / 3


def test_token_bytes_counts_what_an_id_stands_for(tokenizer: Tokenizer) -> None:
    counts = tokenizer.token_bytes()
    assert counts.dtype == np.int64
    assert counts.shape == (tokenizer.vocab,) == (400,)
    assert counts[BOS] == counts[UNKNOWN] == 0
    assert (counts[2:] >= 1).all()


def test_bos_stands_for_nothing(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode([BOS, *tokenizer.encode("a b"), BOS]) == "a b"


@pytest.mark.parametrize("i", [-1, 400])
def test_an_id_outside_the_vocab_is_refused(tokenizer: Tokenizer, i: int) -> None:
    with pytest.raises(ValueError, match=r"\[0, 400\)"):
        tokenizer.decode([5, i])


def test_a_cut_character_is_shown_as_damaged(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode(tokenizer.encode("\U0010ffff")[:-1]) == "\ufffd"


def test_a_lone_surrogate_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(DataError, match="surrogate"):
        tokenizer.encode("a\ud800b")


def test_training_is_deterministic_and_loads_again(tmp_path: Path) -> None:
    texts = [prose(3, 3000)]
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    first, second = (Tokenizer.train(texts, 330, folder) for folder in folders)
    assert os.listdir(folders[0]) == ["tokenizer.model"]
    assert first.sha256 == second.sha256 == Tokenizer.load(folders[0] / "tokenizer.model").sha256
    assert Tokenizer.train([prose(4, 3000)], 330, folders[0]).sha256 != first.sha256


@pytest.mark.parametrize(
    "text",
    [
        "different positions " * 3000,
        "\u2581".join(["different positions"] * 3000),
        "\u2585".join(["different positions"] * 3000),
        "\0".join(["different positions"] * 3000),
        "\t".join(["different positions"] * 3000),
    ],
    ids=["spaces", "space signs", "training signs", "NULs", "tabs"],
)
def test_one_long_line_is_learned_from(tmp_path: Path, text: str) -> None:
    assert len(text.encode()) > 5000, "SentencePiece alone would skip this line"
    tokenizer = Tokenizer.train([text], 290, tmp_path)
    assert len(tokenizer.encode("different")) <= 2


def test_more_characters_than_the_vocab_holds_still_train(tmp_path: Path) -> None:
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 5000))) + "the position of the word " * 300
    tokenizer = Tokenizer.train([text], 300, tmp_path)
    assert len(tokenizer.encode("the position")) < 8
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_rare_characters_take_no_room_in_the_vocab(tmp_path: Path) -> None:
    text = prose(0, 20_000)
    rare = "".join(map(chr, range(0x4E00, 0x4E00 + 20)))
    tokenizer = Tokenizer.train([text + rare], 400, tmp_path)
    assert len(tokenizer.encode(rare)) == len(rare.encode())


def test_a_space_sign_in_the_text_is_not_learned_as_a_space(tmp_path: Path) -> None:
    text = prose(0, 3000)
    signs = Tokenizer.train([text.replace(" ", "\u2581")], 320, tmp_path)
    gaps = Tokenizer.train([text.replace(" ", "\0")], 320, tmp_path)
    assert signs.sha256 == gaps.sha256


@pytest.mark.parametrize("text", ["<s>" * 3000, "<0x41>" * 3000, "<unk>" * 3000])
def test_special_names_in_the_training_text_stay_text(tmp_path: Path, text: str) -> None:
    tokenizer = Tokenizer.train([text, prose(0, 500)], 300, tmp_path)
    ids = tokenizer.encode(text)
    assert not {UNKNOWN, BOS} & set(ids)
    assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("texts", [[], [""]])
def test_no_text_is_refused(tmp_path: Path, texts: list[str]) -> None:
    with pytest.raises(DataError, match="no text to train"):
        Tokenizer.train(texts, 300, tmp_path)


def test_a_vocab_that_the_text_cannot_fill_is_refused_with_the_highest_value(
    tmp_path: Path,
) -> None:
    with pytest.raises(DataError, match=r"data\.vocab = 5000 .* at most (\d+)") as refusal:
        Tokenizer.train(["a b c"], 5000, tmp_path)
    assert os.listdir(tmp_path) == []
    highest = int(str(refusal.value).split("at most ")[1].split(",")[0])
    assert Tokenizer.train(["a b c"], highest, tmp_path).vocab == highest


def test_a_vocab_without_room_for_the_bytes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.vocab = 259 .* at least 260"):
        Tokenizer.train([prose(0, 300)], 259, tmp_path)
    assert Tokenizer.train([prose(0, 300)], 260, tmp_path).vocab == 260


@pytest.mark.parametrize(
    "lacking",
    [{"bos_id": -1}, {"bos_id": 2, "eos_id": 1}, {"byte_fallback": False}, {"text": "abc"}],
    ids=["bos", "bos at 1", "bytes", "space"],
)
def test_a_tokenizer_of_another_kind_is_refused(tmp_path: Path, lacking: dict[str, Any]) -> None:
    chosen: dict[str, Any] = {"bos_id": 1, "eos_id": -1, "byte_fallback": True, **lacking}
    lines = [str(chosen.pop("text", "a b c"))] * 10
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_prefix=str(tmp_path / "tokenizer"),
        model_type="bpe",
        vocab_size=270,
        hard_vocab_limit=False,
        add_dummy_prefix=False,
        minloglevel=2,
        **chosen,
    )
    with pytest.raises(DataError, match="tokenizer.model: the tokenizer lacks"):
        Tokenizer.load(tmp_path / "tokenizer.model")


def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    with pytest.raises(DataError, match="tokenizer.model: cannot be read"):
        Tokenizer.load(path)
    path.write_bytes(b"nonsense")
    with pytest.raises(DataError, match="tokenizer.model: not a SentencePiece model"):
        Tokenizer.load(path)
    with pytest.raises(DataError, match=r"sha256 .* is not the 0000"):
        Tokenizer.load(path, "0" * 64)
