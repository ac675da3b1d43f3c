"""Preparation: everything goes in, nothing leaks, and only whole folders are ever seen."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from pipeline.data import prepare as preparation
from pipeline.data.prepare import Prepared, prepare
from pipeline.data.readers import iter_documents
from pipeline.data.sequences import Sequences
from pipeline.data.split import SPLITS, split_of
from pipeline.data.tokenizer import BOS, Tokenizer
from pipeline.errors import DataError, StorageError
from tests.data.corpus import config_for, folder_of_text, prose


def texts_of(prepared: Prepared, split: str) -> list[str]:
    pack = prepared.split(split)
    documents = [pack.document(i) for i in range(pack.n_documents)]
    assert all(ids[0] == BOS and BOS not in ids[1:] for ids in documents)
    return [prepared.tokenizer.decode(ids) for ids in documents]


def test_every_document_is_in_its_split_byte_for_byte(corpus: Path, prepared: Prepared) -> None:
    texts = [document.text for document in iter_documents(str(corpus), "text")]
    for split in SPLITS:
        expected = [text for text in texts if split_of(text, 0.2, 0.2) == split]
        assert expected
        assert texts_of(prepared, split) == expected


def test_equal_documents_never_straddle_two_splits(prepared: Prepared) -> None:
    found = {split: texts_of(prepared, split) for split in SPLITS}
    assert len(set(found["train"])) < len(found["train"]), "there are duplicates to tell"
    for one, other in (("train", "validation"), ("train", "test"), ("validation", "test")):
        assert not set(found[one]) & set(found[other])


def test_bytes_and_tokens_are_conserved(corpus: Path, prepared: Prepared) -> None:
    counts = prepared.tokenizer.token_bytes()
    for split in SPLITS:
        pack = prepared.split(split)
        assert counts[pack.tokens].sum() == pack.n_bytes
        assert pack.n_tokens == len(pack.tokens) == pack.document_lengths().sum()
    texts = (document.text for document in iter_documents(str(corpus), "text"))
    total = sum(prepared.split(split).n_bytes for split in SPLITS)
    assert total == sum(len(text.encode()) for text in texts)


def test_an_epoch_has_every_token_once_as_target(prepared: Prepared) -> None:
    pack = prepared.split("train")
    sequences = Sequences(pack, 64)
    targets = np.concatenate([sequences.read(i, 0, 64)[1] for i in range(len(sequences))])
    assert np.array_equal(targets, pack.tokens[1 : pack.n_tokens - sequences.remainder])


def test_the_manifest_accounts_for_everything(prepared: Prepared) -> None:
    manifest = json.loads((prepared.folder / "manifest.json").read_text())
    assert manifest["corpus_sha256"] == prepared.corpus_sha256
    assert manifest["tokenizer_sha256"] == prepared.tokenizer.sha256
    assert manifest["settings"]["vocab"] == prepared.tokenizer.vocab == 300
    assert manifest["skipped"] == [
        {"name": ".hidden", "reason": "hidden: the name starts with a dot"}
    ]
    for split in SPLITS:
        assert manifest["splits"][split]["n_tokens"] == prepared.split(split).n_tokens


def test_the_account_is_told(
    corpus: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    done = prepare(config_for(corpus, tmp_path))
    told = capfd.readouterr()
    assert told.out == ""
    assert "B/s" in told.err
    for split in SPLITS:
        pack = done.split(split)
        assert f"{split}: {pack.n_documents} documents, {pack.n_tokens} tokens" in told.err
    assert "left out by definition: 1 files" in told.err


def test_the_second_call_opens_what_the_first_has_made(
    corpus: Path, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(preparation, "building", refuse)
    again = prepare(config_for(corpus, prepared.folder.parent))
    assert again.folder == prepared.folder
    assert os.listdir(prepared.folder.parent) == [prepared.folder.name]


def test_the_result_is_the_same_to_the_byte(
    corpus: Path, prepared: Prepared, tmp_path: Path
) -> None:
    again = prepare(config_for(corpus, tmp_path))
    assert again.folder.name == prepared.folder.name
    names = sorted(os.listdir(prepared.folder))
    assert len(names) == 8
    assert names == sorted(os.listdir(again.folder))
    for name in names:
        assert (again.folder / name).read_bytes() == (prepared.folder / name).read_bytes()


@pytest.mark.parametrize(
    "changed",
    [
        {"vocab": 310},
        {"tokenizer_bytes": 30_000},
        {"validation_fraction": 0.1},
        {"test_fraction": 0.1},
    ],
)
def test_another_setting_makes_another_folder(
    corpus: Path, prepared: Prepared, changed: dict[str, float]
) -> None:
    parent = prepared.folder.parent
    try:
        other = prepare(config_for(corpus, parent, **changed))
        assert other.folder != prepared.folder
    finally:
        shutil.rmtree(other.folder)


def test_another_text_makes_another_folder(tmp_path: Path) -> None:
    corpus = folder_of_text(tmp_path / "corpus")
    first = prepare(config_for(corpus, tmp_path / "prepared"))
    (corpus / "000.txt").write_text(prose(1000, 300))
    second = prepare(config_for(corpus, tmp_path / "prepared"))
    assert first.folder != second.folder
    assert first.corpus_sha256 != second.corpus_sha256


def test_another_text_key_makes_another_folder(tmp_path: Path) -> None:
    rows = [{"text": prose(i, 50), "body": prose(i, 60)} for i in range(60)]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    keys = ("text", "body")
    by_key = [prepare(config_for(path, tmp_path / "prepared", text_key=key)) for key in keys]
    assert by_key[0].folder != by_key[1].folder
    assert by_key[0].corpus_sha256 == by_key[1].corpus_sha256


def test_a_tokenizer_that_loses_text_is_noticed(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode_batch = Tokenizer.encode_batch

    def lose_one(
        tokenizer: Tokenizer, texts: list[str], threads: int
    ) -> list[npt.NDArray[np.int32]]:
        encoded = encode_batch(tokenizer, texts, threads)
        return [*encoded[:-1], encoded[-1][1:]]

    monkeypatch.setattr(Tokenizer, "encode_batch", lose_one)
    with pytest.raises(DataError, match=r"zoo\.jsonl:\d+: the tokenizer lost part of it"):
        prepare(config_for(corpus, tmp_path))


def test_the_tokenizer_learns_from_all_of_the_train_split_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = folder_of_text(tmp_path / "corpus", documents=100)
    seen: list[str] = []

    def train(texts: Iterator[str], *_: object) -> None:
        seen.extend(texts)
        raise InterruptedError

    monkeypatch.setattr(Tokenizer, "train", train)
    with pytest.raises(StorageError):
        prepare(config_for(corpus, tmp_path / "prepared", tokenizer_bytes=30_000))
    documents = {document.name: document.text for document in iter_documents(str(corpus), "text")}
    sources = [name for piece in seen for name, text in documents.items() if piece in text]
    assert {split_of(documents[name], 0.2, 0.2) for name in sources} == {"train"}
    assert 28_000 < sum(map(len, seen)) <= 30_000
    train_names = [n for n, text in documents.items() if split_of(text, 0.2, 0.2) == "train"]
    quarters = [4 * train_names.index(name) // len(train_names) for name in sources]
    assert all(quarters.count(q) >= len(quarters) // 5 for q in range(4))


def test_very_many_small_documents_fill_the_sample(tmp_path: Path) -> None:
    lines = [json.dumps({"text": prose(i, 3)}) + "\n" for i in range(3000)]
    (tmp_path / "a.jsonl").write_text("".join(lines))
    done = prepare(config_for(tmp_path / "a.jsonl", tmp_path / "prepared"))
    assert done.split("train").n_documents > 1500


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", "holds no text"),
        ("a.txt", b"abc\xff", r"a\.txt: byte 0xff at byte offset 3"),
        ("a.jsonl", b'{"text": "a"}\n{"text"\n', r"a\.jsonl:2: not valid JSON"),
        ("a.jsonl", b'{"body": "a"}\n', r"a\.jsonl:1: no key 'text'"),
        ("a.txt", b"too little", r"data\.vocab = 300 is more than the text can fill"),
        ("a.txt", b"text 3" * 100, r"no text fell into the train split \(documents: 1\)"),
    ],
)
def test_a_corpus_that_cannot_be_used_leaves_nothing(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / name).write_bytes(content)
    fraction = 0.999 if "train" in message else 0.0
    config = config_for(
        tmp_path / "corpus",
        tmp_path / "prepared",
        validation_fraction=fraction,
        test_fraction=0.0,
    )
    with pytest.raises(DataError, match=message):
        prepare(config)
    assert not (tmp_path / "prepared").exists() or os.listdir(tmp_path / "prepared") == []


def test_an_unknown_split_is_refused(prepared: Prepared) -> None:
    with pytest.raises(DataError, match="'dev'; there are train, validation, test"):
        prepared.split("dev")


def test_a_corpus_of_one_document_has_empty_other_splits(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(prose(2, 3000))
    config = config_for(
        tmp_path / "a.txt", tmp_path / "prepared", validation_fraction=0.0, test_fraction=0.0
    )
    done = prepare(config)
    assert done.split("train").n_documents == 1
    assert done.split("test").n_documents == done.split("test").n_tokens == 0
    with pytest.raises(DataError, match="the test split has 0 tokens"):
        Sequences(done.split("test"), 64)
