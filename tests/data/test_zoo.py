"""Text that is hard, through files of every kind and the whole preparation: it comes back byte for
byte, or is refused with its place; and no token is lost or made up on the way."""

import gzip
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow
import pytest
import zstandard
from pyarrow import parquet

from pipeline.data import readers
from pipeline.data.pack import Pack
from pipeline.data.prepare import Prepared, prepare
from pipeline.data.sequences import Sequences
from pipeline.data.split import SPLITS
from pipeline.errors import DataError
from tests.data.corpus import ZOO, config_for, folder_of_text, prose

ROOT = Path(__file__).parents[2]
TEXTS = [text for kind, text in ZOO.items() if kind != "one line"]
MOST_MEMORY = 500 << 20


def jsonl(texts: list[str]) -> bytes:
    return b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts)


def plain_files(folder: Path, texts: list[str]) -> None:
    for number, text in enumerate(texts):
        (folder / f"text{number:02}.txt").write_bytes(text.encode())


def table(folder: Path, texts: list[str]) -> None:
    parquet.write_table(pyarrow.table({"text": texts}), folder / "z.parquet", row_group_size=3)


KINDS: dict[str, Callable[[Path, list[str]], object]] = {
    ".txt": plain_files,
    ".jsonl": lambda f, texts: (f / "z.jsonl").write_bytes(jsonl(texts)),
    ".jsonl.gz": lambda f, texts: (f / "z.jsonl.gz").write_bytes(gzip.compress(jsonl(texts))),
    ".jsonl.zst": lambda f, texts: (f / "z.jsonl.zst").write_bytes(
        zstandard.compress(jsonl(texts))
    ),
    ".parquet": table,
}


def decoded(prepared: Prepared) -> list[bytes]:
    """Every document of every split, as the bytes that its tokens stand for, sorted."""
    packs = [prepared.split(split) for split in SPLITS]
    found = [(pack, i) for pack in packs for i in range(pack.n_documents)]
    return sorted(prepared.tokenizer.decode(pack.document(i)).encode() for pack, i in found)


@pytest.mark.parametrize("kind", KINDS)
def test_the_zoo_in_files_of_every_kind_comes_back_byte_for_byte(tmp_path: Path, kind: str) -> None:
    corpus = folder_of_text(tmp_path / "corpus", documents=20)
    KINDS[kind](corpus, TEXTS)
    prepared = prepare(config_for(corpus, tmp_path / "prepared"))
    given = [prose(i, 300).encode() for i in range(20)] + [text.encode() for text in TEXTS]
    assert decoded(prepared) == sorted(given)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["long.txt", "long.jsonl"])
def test_one_line_of_10_megabytes_comes_back_byte_for_byte(tmp_path: Path, name: str) -> None:
    text = "".join(prose(seed, 180_000).replace("\n", " ") for seed in range(10))
    assert len(text) > 10_000_000 and "\n" not in text
    content = text.encode() if name == "long.txt" else jsonl([text])
    (tmp_path / name).write_bytes(content)
    config = config_for(
        tmp_path / name, tmp_path / "prepared", validation_fraction=0.0, test_fraction=0.0
    )
    assert decoded(prepare(config)) == [text.encode()]


REFUSED: dict[str, tuple[str, bytes, str]] = {
    "a byte that is none of UTF-8": ("a.txt", b"ab\xffc", "byte 0xff at byte offset 2 "),
    "a continuation alone": ("a.txt", b"a\x80", "byte 0x80 at byte offset 1 "),
    "an overlong slash": ("a.txt", b"abc\xc0\xaf", "byte 0xc0 at byte offset 3 "),
    "an overlong NUL of 3 bytes": ("a.txt", b"\xe0\x80\x80", "byte 0xe0 at byte offset 0 "),
    "a surrogate": ("a.txt", b"ab\xed\xa0\x80", "byte 0xed at byte offset 2 "),
    "beyond Unicode": ("a.txt", b"a\xf4\x90\x80\x80", "byte 0xf4 at byte offset 1 "),
    "a cut character": ("a.txt", b"abc\xf0\x9f\x98", "byte 0xf0 at byte offset 3 "),
    "Latin-1": ("a.txt", "café".encode("latin-1"), "byte 0xe9 at byte offset 3 "),
    "UTF-16 with a mark": ("a.txt", "ab".encode("utf-16"), "offset 0 .*UTF-16"),
    "UTF-32 with a mark": ("a.txt", "ab".encode("utf-32"), "offset 0 .*UTF-16"),
    "gzip in .txt": ("a.txt", gzip.compress(b"text"), "offset 1 .*gzip"),
    "zstd in .txt": ("a.txt", zstandard.compress(b"text"), "offset 1 .*zstd"),
    "gzip in .jsonl": ("a.jsonl", gzip.compress(b"text"), "a.jsonl:1: byte 0x8b at byte offset 1 "),
    "zstd in .gz": ("a.jsonl.gz", zstandard.compress(b"text"), "cannot be read"),
    "text in .zst": ("a.jsonl.zst", b'{"text": "a"}\n', "cannot be read"),
    "a surrogate in JSON": ("a.jsonl", b'{"text": "\\udc80"}\n', r"a.jsonl:1: .*\\udc80"),
    "a byte in JSON": ("a.jsonl", b'{"text": "a"}\n{"text": "\xe9"}\n', "a.jsonl:2: .*offset 24 "),
    "a text given twice": ("a.jsonl", b'{"text": "a", "text": "b"}\n', "a.jsonl:1: .*key twice"),
    "no JSON": ("a.jsonl", b'{"text": "a"}\n{"text": "b"', "a.jsonl:2: not valid JSON"),
    "an endless number": ("a.jsonl", b'{"text": "a", "n": ' + b"9" * 9999 + b"}\n", "a.jsonl:1: "),
    "another name of the key": ("a.jsonl", b'{"Text": "a"}\n', "a.jsonl:1: no key 'text'"),
    "text in .parquet": ("a.parquet", b"PAR1 and no more PAR1", "not a readable parquet file"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_text_is_refused_with_its_place_and_leaves_nothing(
    tmp_path: Path, what: str
) -> None:
    name, content, message = REFUSED[what]
    corpus = folder_of_text(tmp_path / "corpus", documents=3)
    (corpus / name).write_bytes(content)
    with pytest.raises(DataError, match=f"{name}.*{message}" if ":" not in message else message):
        prepare(config_for(corpus, tmp_path / "prepared"))
    assert not (tmp_path / "prepared").exists() or os.listdir(tmp_path / "prepared") == []


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as own:
        own.bind(str(path))


def a_loop(path: Path) -> None:
    path.symlink_to(path.name)


def a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def a_link_to_nothing(path: Path) -> None:
    path.symlink_to("nowhere.txt")


ODD: dict[str, tuple[Callable[[Path], None], str]] = {
    "pipe": (a_pipe, r"odd\.txt: not a regular file"),
    "socket": (a_socket, r"odd\.txt: not a regular file"),
    "device": (a_device, r"odd\.txt: not a regular file"),
    "loop": (a_loop, r"Too many levels of symbolic links: .*odd\.txt"),
    "link to nothing": (a_link_to_nothing, r"No such file or directory: .*odd\.txt"),
}


@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("alone", [True, False], ids=["alone", "in a folder"])
def test_what_is_no_file_is_refused_by_name_without_being_opened(
    tmp_path: Path, what: str, alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, message = ODD[what]
    corpus = folder_of_text(tmp_path / "corpus", documents=2)
    monkeypatch.chdir(corpus)  # the path of a socket is short
    make(Path("odd.txt"))
    source = corpus / "odd.txt" if alone else corpus
    with pytest.raises(DataError, match=message):
        prepare(config_for(source, tmp_path / "prepared"))
    assert not (tmp_path / "prepared").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_may_not_be_read_is_named(tmp_path: Path, what: str) -> None:
    corpus = folder_of_text(tmp_path / "corpus", documents=2)
    (corpus / "closed").mkdir()
    (corpus / "closed" / "a.txt").write_text("text")
    closed = corpus / "closed" if what == "folder" else corpus / "closed" / "a.txt"
    closed.chmod(0)
    try:
        with pytest.raises(DataError, match="closed.*|Permission denied"):
            prepare(config_for(corpus, tmp_path / "prepared"))
    finally:
        closed.chmod(0o700)


def test_names_of_files_are_bytes_too(tmp_path: Path) -> None:
    corpus = folder_of_text(tmp_path / "corpus", documents=20)
    for name in (b"caf\xe9.txt", b"a\nb.txt", b"-rf.txt", b"$(id).txt", b".\xff.txt"):
        with open(os.path.join(os.fsencode(corpus), name), "wb") as stream:
            stream.write(prose(len(name), 10).encode())
    prepared = prepare(config_for(corpus, tmp_path / "prepared"))
    assert sum(prepared.split(split).n_documents for split in SPLITS) == 24
    assert len(json.loads((prepared.folder / "manifest.json").read_text())["skipped"]) == 1


RESIDENT = """
import re, sys, time
from pathlib import Path
from pipeline.data.prepare import prepare
from pipeline.errors import DataError
from tests.data.corpus import config_for
began = time.monotonic()
try:
    prepare(config_for(Path(sys.argv[1]), Path(sys.argv[2])))
except DataError as error:
    print(error)
print(time.monotonic() - began)
# of this process alone: getrusage counts what its parent held when it was started
most = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
print(1024 * int(most[1]))
"""


def refused_in_a_process(source: Path, prepared: Path) -> tuple[str, float, int]:
    """What `prepare` says, its seconds, and the most memory that the process held."""
    done = subprocess.run(
        [sys.executable, "-c", RESIDENT, str(source), str(prepared)],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    said, seconds, resident = done.stdout.splitlines()
    return said, float(seconds), int(resident)


def test_a_sparse_gigabyte_of_one_document_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "sparse.txt"
    with path.open("wb") as stream:
        stream.truncate(1 << 30)
    said, seconds, resident = refused_in_a_process(path, tmp_path / "prepared")
    assert f"{path}: longer than {readers.MAX_DOCUMENT_BYTES} bytes" in said
    # reading it takes longer, and as many bytes
    assert seconds < 1.0 and resident < MOST_MEMORY


@pytest.mark.slow
@pytest.mark.parametrize("first", [b"", b'{"text": "whole"}\n'], ids=["alone", "second"])
def test_a_sparse_gigabyte_of_one_line_is_refused_in_bounded_memory(
    tmp_path: Path, first: bytes
) -> None:
    path = tmp_path / "sparse.jsonl"
    with path.open("wb") as stream:
        stream.write(first)
        stream.truncate(1 << 30)
    said, _, resident = refused_in_a_process(path, tmp_path / "prepared")
    assert f"{path}:{2 if first else 1}: longer than" in said
    assert resident < MOST_MEMORY


CORPORA: dict[str, list[str]] = {
    "one document": [prose(1, 2000)],
    "the first one empty": ["", *(prose(i, 60) for i in range(30))],
    "the last one empty": [*(prose(i, 60) for i in range(30)), ""],
    "all but one empty": [*[""] * 40, prose(1, 2000), *[""] * 40],
    "one of 200 rows": [*(prose(i, 20) for i in range(10)), prose(3, 6000)],
    "of one character": [*"abcdefghij" * 20, *(prose(i, 60) for i in range(20))],
    "all equal": [prose(1, 100)] * 30,
    "the zoo": TEXTS * 3 + [prose(i, 100) for i in range(10)],
}
VARIED = ("the first one empty", "the last one empty", "of one character", "the zoo")


@pytest.mark.parametrize(
    ("what", "fraction"),
    # with fractions only where texts fall into all splits
    [*((what, 0.0) for what in CORPORA), *((what, 0.3) for what in VARIED)],
)
def test_tokens_that_go_in_come_out_or_are_a_declared_remainder(
    tmp_path: Path, what: str, fraction: float
) -> None:
    path, texts = tmp_path / "a.jsonl", CORPORA[what]
    path.write_bytes(jsonl(texts))
    settings = {"validation_fraction": fraction, "test_fraction": fraction, "vocab": 270}
    prepared = prepare(config_for(path, tmp_path / "prepared", **settings))
    encode = prepared.tokenizer.encode
    assert sum(prepared.split(s).n_documents for s in SPLITS) == len(texts)
    assert sum(prepared.split(s).n_bytes for s in SPLITS) == sum(len(t.encode()) for t in texts)
    assert sum(prepared.split(s).n_tokens for s in SPLITS) == sum(1 + len(encode(t)) for t in texts)
    for split in SPLITS:
        for length in (3, 32, 500):
            check_conserved(prepared.split(split), length)


def check_conserved(pack: Pack, length: int) -> None:
    """Each token but the first and the remainder is a target once; too few are refused by count."""
    if pack.n_tokens < length + 1:
        with pytest.raises(DataError, match=f"has {pack.n_tokens} tokens, .* needs {length + 1} "):
            Sequences(pack, length)
        return
    sequences = Sequences(pack, length)
    targets = [sequences.read(i, 0, length)[1] for i in range(len(sequences))]
    assert np.array_equal(np.concatenate(targets), pack.tokens[1 : 1 + length * len(sequences)])
    counted = sum(sequences.target_count(i) for i in range(len(sequences)))
    assert 1 + counted + sequences.remainder == pack.n_tokens
    assert 0 <= sequences.remainder < length
