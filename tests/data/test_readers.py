"""Reading documents: exact in every format, and every fault named with its place."""

import gzip
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
import zstandard
from pyarrow import parquet

from pipeline.data import readers
from pipeline.data.readers import iter_documents
from pipeline.errors import DataError
from tests.data.corpus import ZOO

TEXTS = [text for kind, text in ZOO.items() if kind != "one line"]


def jsonl(texts: list[str]) -> bytes:
    return b"".join(json.dumps({"id": 1, "text": text}).encode() + b"\n" for text in texts)


def write_parquet(path: Path, texts: list[str]) -> None:
    table = pyarrow.table({"id": list(range(len(texts))), "text": texts})
    parquet.write_table(table, path, row_group_size=7)


WRITERS: dict[str, Callable[[Path, list[str]], object]] = {
    "a.jsonl": lambda path, texts: path.write_bytes(jsonl(texts)),
    "a.jsonl.gz": lambda path, texts: path.write_bytes(gzip.compress(jsonl(texts))),
    "a.jsonl.zst": lambda path, texts: path.write_bytes(zstandard.compress(jsonl(texts))),
    "a.parquet": write_parquet,
}


def read(path: Path, text_key: str = "text") -> list[str]:
    return [document.text for document in iter_documents(str(path), text_key)]


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_exact_texts(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path / name, TEXTS)
    assert read(tmp_path / name) == TEXTS
    assert read(tmp_path) == TEXTS


def test_a_text_file_is_one_document_unchanged(tmp_path: Path) -> None:
    for i, text in enumerate(TEXTS):
        (tmp_path / f"{i:03}.txt").write_bytes(text.encode())
    documents = list(iter_documents(str(tmp_path), "text"))
    assert [document.text for document in documents] == TEXTS
    assert documents[3].name == "003.txt"


def test_stdlib_is_read() -> None:
    documents = iter_documents("stdlib", "text")
    first = next(documents)
    assert first.name.endswith(".py")
    assert first.text


def test_lines_end_only_at_newlines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes('\ufeff{"text": "a\u2028\x85b"}\r\n\n  \n{"text": "c"}'.encode())
    documents = list(iter_documents(str(path), "text"))
    assert [document.text for document in documents] == ["a\u2028\x85b", "c"]
    assert documents[1].name == "a.jsonl:4"


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
def test_joined_compressed_files_are_read_whole(
    tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    suffix = "gz" if compress is gzip.compress else "zst"
    path = tmp_path / f"a.jsonl.{suffix}"
    path.write_bytes(compress(jsonl(["a"])) + compress(jsonl(["b"])))
    assert read(path) == ["a", "b"]


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst", "a.parquet"])
@pytest.mark.parametrize("damage", ["cut", "tail", "other"])
def test_damaged_files_are_refused(tmp_path: Path, name: str, damage: str) -> None:
    path = tmp_path / name
    WRITERS[name](path, [str(i) * 50 for i in range(5000)])
    whole = path.read_bytes()
    damaged = {"cut": whole[:-20], "tail": whole + b"tail of nonsense", "other": b"text\n" * 50}
    path.write_bytes(damaged[damage])
    with pytest.raises(DataError, match=name):
        read(path)


@pytest.mark.parametrize(
    ("content", "offset", "hint"),
    [
        (b"abc\xffdef", 3, "damaged"),
        (b"a\xc0\x80", 1, "damaged"),
        (b"ab\xed\xa0\x80", 2, "damaged"),
        (b"abc\xe2\x96", 3, "damaged"),
        ("ab".encode("utf-16"), 0, "UTF-16"),
        (gzip.compress(b"abc", mtime=0), 1, "gzip"),
        (zstandard.compress(b"abc"), 1, "zstd"),
    ],
)
def test_bytes_that_are_not_text_are_refused_with_their_place(
    tmp_path: Path, content: bytes, offset: int, hint: str
) -> None:
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"bad\.txt: byte .* offset {offset} .*{hint}"):
        read(path)


def test_bytes_in_a_line_are_named_by_line_and_offset(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"text": "a"}\n{"text": "\xff"}\n')
    with pytest.raises(DataError, match=r"a\.jsonl:2: byte 0xff at byte offset 27 "):
        read(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "a"', "not valid JSON"),
        ("nonsense", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ('["text"]', "a JSON list, not an object with 'text'"),
        ('{"content": "a", "id": 1}', r"no key 'text'; it has 'content', 'id'.*data\.text_key"),
        ("{}", "no key 'text'; it has no keys"),
        ('{"text": null}', "'text' is None, not a text"),
        ('{"text": 3}', "'text' is 3, not a text"),
        ('{"text": "a\\ud800"}', r"lone surrogate \\ud800 at character 1"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\n' + line + '\n{"text": "b"}\n')
    with pytest.raises(DataError, match=rf"a\.jsonl:2: .*{message}"):
        read(path)


def test_another_key_can_hold_the_text(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a", "content": "b"}\n')
    assert read(tmp_path, "content") == ["b"]


def test_a_bad_row_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": ["a", None]}), path)
    with pytest.raises(DataError, match=r"a\.parquet: row 1: 'text' is None"):
        read(path)
    with pytest.raises(DataError, match=r"a\.parquet: no key 'body'; it has 'text'"):
        read(path, "body")
    parquet.write_table(pyarrow.table({"text": [b"a"]}), path)
    with pytest.raises(DataError, match=r"a\.parquet: row 0: 'text' is b'a'"):
        read(path)


@pytest.mark.parametrize("files", [{"a.txt": b""}, {"a.jsonl": b""}, {"a.jsonl": b'{"text": ""}'}])
def test_a_corpus_without_text_is_refused(tmp_path: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match="holds no text"):
        read(tmp_path)


def test_empty_documents_among_others_are_kept(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(jsonl(["", "a", "", ""]))
    assert read(tmp_path) == ["", "a", "", ""]


@pytest.mark.parametrize("name", ["a.txt", *WRITERS])
def test_a_document_that_is_too_long_is_refused(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "MAX_DOCUMENT_BYTES", 100)
    if name == "a.txt":
        (tmp_path / name).write_text("x" * 101)
    else:
        WRITERS[name](tmp_path / name, ["x" * 101])
    with pytest.raises(DataError, match=rf"{name}.*: longer than 100 bytes"):
        read(tmp_path)


def test_a_huge_file_is_refused_in_little_memory(tmp_path: Path) -> None:
    for name in ("a.txt", "a.jsonl"):
        with (tmp_path / name).open("wb") as stream:
            stream.truncate(1 << 28)
        tracemalloc.start()
        try:
            with pytest.raises(DataError, match="longer than"):
                read(tmp_path / name)
            assert tracemalloc.get_traced_memory()[1] < 2.5 * readers.MAX_DOCUMENT_BYTES
        finally:
            tracemalloc.stop()


def test_a_file_that_may_not_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("a")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataError, match=r"a\.txt: cannot be read: Permission denied"):
        read(tmp_path)
