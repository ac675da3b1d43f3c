"""Texts and corpora that the tests of the data part share."""

import random
from pathlib import Path

from pipeline.config.schema import DataConfig

SENTENCE = "train short test long under every position encoding with nothing else different"

ZOO = {
    "empty": "",
    "one byte": "a",
    "only newlines": "\n\n\n",
    "no final newline": "a\nb",
    "CRLF": "a\r\nb\r\n",
    "CR": "a\rb\r",
    "mixed line ends": "a\n\r\n\rb\r\r\n",
    "tabs": "\ta\t\tb\t",
    "spaces": "  a  b   c    ",
    "only spaces": " " * 50,
    "BOM": "\ufeffa\ufeff",
    "the space sign": "\u2581a \u2581 \u2581\u2581b\u2581",
    "only space signs": "\u2581" * 7,
    "the training sign": "\u2585a\u2585",
    "line separators": "a\u2028b\u2029c\x85d\x0be\x0cf",
    "emoji": "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 1️⃣",
    "combining": "e\u0301 é \u1100\u1161\u11a8 ﬁ Å \u212b",
    "right to left": "\u202eשלום \u202bمرحبا\u202c",
    "NUL": "\0a\0\0\0b" + "\0" * 300,
    "control": "".join(map(chr, range(32))) + "\x7f",
    "not characters": "\ufffe\uffff\U0010ffff\ue000\ufffd",
    "specials": "<s></s><unk><pad><s> <s>a</s> <0x41><0x00>\u2047 \u2047",
    "Chinese": "位置编码 外推",
    "one line": "x = (1, 2)  # long " * (5_000_000 // 19 + 1),
}


def prose(seed: int, words: int) -> str:
    """Some text of about 6 bytes a word, the same for the same seed."""
    draw = random.Random(seed)
    vocabulary = SENTENCE.split()
    return " ".join(draw.choice(vocabulary) + draw.choice(["", ",", ".\n"]) for _ in range(words))


def folder_of_text(folder: Path, documents: int = 60, words: int = 300) -> Path:
    """A folder of .txt files of different prose."""
    folder.mkdir(parents=True)
    for i in range(documents):
        (folder / f"{i:03}.txt").write_text(prose(i, words))
    return folder


def config_for(source: Path, prepared: Path, **settings: float | str) -> DataConfig:
    """A small preparation of `source`."""
    chosen: dict[str, object] = {
        "vocab": 300,
        "tokenizer_bytes": 20_000,
        "validation_fraction": 0.2,
        "test_fraction": 0.2,
        **settings,
    }
    return DataConfig(source=str(source), prepared=str(prepared), **chosen)  # type: ignore[arg-type]
