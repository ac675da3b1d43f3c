"""Small files that unfold to very much are refused or read in bounded memory; archives of files are
never unpacked."""

import gzip
import io
import json
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
import zstandard
from pyarrow import parquet

from pipeline.data.readers import MAX_DOCUMENT_BYTES, iter_documents
from pipeline.errors import DataError

ROOT = Path(__file__).parents[2]
MOST_MEMORY = 500 << 20
MEGABYTES_100 = 100 << 20
READ = """
import re, sys
from pathlib import Path
from pipeline.data.readers import iter_documents
from pipeline.errors import DataError
said, documents, characters = "read", 0, 0
try:
    for document in iter_documents(sys.argv[1], "text"):
        documents += 1
        characters += len(document.text)
except DataError as error:
    said = str(error)
# of this process alone: getrusage counts what its parent held when it was started
most = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
print(documents, characters, 1024 * int(most[1]), said)
"""


def read_in_a_process(path: Path) -> tuple[int, int, int, str]:
    """Documents, characters, the most memory held, and the error if there was one."""
    done = subprocess.run(
        [sys.executable, "-c", READ, str(path)],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    documents, characters, memory, said = done.stdout.split(" ", 3)
    return int(documents), int(characters), int(memory), said


def zstd(content: bytes, window: int = 27) -> bytes:
    parameters = zstandard.ZstdCompressionParameters(
        window_log=window, compression_level=1, enable_ldm=False
    )
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return compressor.compress(content) + compressor.flush()


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": lambda content: gzip.compress(content, 1),
    "zst": lambda content: zstd(content, 20),
}


def bomb(kind: str, content: bytes, times: int) -> bytes:
    """`content` so many times, in little: packed parts that follow each other are read as one."""
    return PACKERS[kind](content) * times


@pytest.mark.parametrize("kind", PACKERS)
def test_10_gigabytes_of_zeros_are_refused_in_bounded_memory(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"zeros.jsonl.{kind}"
    path.write_bytes(bomb(kind, bytes(MEGABYTES_100), 100))
    assert path.stat().st_size < 60 << 20
    documents, _, memory, said = read_in_a_process(path)
    assert f"{path}:1: longer than {MAX_DOCUMENT_BYTES} bytes" in said
    assert documents == 0 and memory < MOST_MEMORY


@pytest.mark.slow
@pytest.mark.parametrize("kind", PACKERS)
def test_much_text_in_a_little_file_streams_in_bounded_memory(tmp_path: Path, kind: str) -> None:
    line = json.dumps({"text": "a" * 1000}).encode() + b"\n"
    path = tmp_path / f"text.jsonl.{kind}"
    path.write_bytes(bomb(kind, line * 10_000, 200))
    documents, characters, memory, said = read_in_a_process(path)
    assert (documents, characters, said.strip()) == (2_000_000, 2_000_000_000, "read")
    assert memory < MOST_MEMORY


@pytest.mark.parametrize("kind", PACKERS)
def test_blank_lines_without_end_hold_no_memory(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"blank.jsonl.{kind}"
    path.write_bytes(bomb(kind, b"\n" * (1 << 18), 4) + bomb(kind, b'{"text": "a"}\n', 1))
    documents, _, memory, said = read_in_a_process(path)
    assert (documents, said.strip()) == (1, "read") and memory < MOST_MEMORY


def test_a_frame_that_asks_for_2_gigabytes_of_window_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "window.jsonl.zst"
    path.write_bytes(zstd(b'{"text": "a"}\n' * 1000, 31))
    documents, _, memory, said = read_in_a_process(path)
    assert str(path) in said and "cannot be read" in said
    assert documents == 0 and memory < MOST_MEMORY


def test_a_row_of_parquet_that_unfolds_too_far_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "long.parquet"
    text = "x" * (2 * MAX_DOCUMENT_BYTES)
    table = pyarrow.table(
        {"id": [1, 2], "text": pyarrow.array([text, text], pyarrow.large_string())}
    )
    parquet.write_table(table, path, compression="zstd", use_dictionary=False)
    del table, text
    assert path.stat().st_size < 1 << 20
    documents, _, memory, said = read_in_a_process(path)
    assert f"{path}: a row of row group 0: longer than {MAX_DOCUMENT_BYTES} bytes" in said
    # less than one of the two rows, beside what the libraries take
    assert documents == 0 and memory < MOST_MEMORY


def test_a_value_that_many_rows_of_parquet_share_is_read_once_a_row(tmp_path: Path) -> None:
    text = "x" * (8 << 20)
    path = tmp_path / "shared.parquet"
    parquet.write_table(pyarrow.table({"text": [text] * 40}), path, compression="zstd")
    documents, characters, memory, said = read_in_a_process(path)
    assert (documents, characters, said.strip()) == (40, 40 * len(text), "read")
    assert memory < MOST_MEMORY


def a_tar(path: Path, target: Path) -> bytes:
    """With a file that climbs out, a link and a device."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, kind in (
            ("../outside.txt", tarfile.REGTYPE),
            (str(target), tarfile.REGTYPE),
            ("link", tarfile.SYMTYPE),
            ("device", tarfile.CHRTYPE),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
    return buffer.getvalue()


def a_zip(path: Path, target: Path) -> bytes:
    """With a file that climbs out."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("../outside.txt", "text")
        archive.writestr(str(target), "text")
    return buffer.getvalue()


@pytest.mark.parametrize("make", [a_tar, a_zip], ids=["tar", "zip"])
@pytest.mark.parametrize("name", ["a.tar.gz", "a.zip", "a.tar", "a.jsonl", "a.jsonl.gz", "a.txt"])
def test_an_archive_is_refused_and_not_unpacked(
    name: str, make: Callable[[Path, Path], bytes], tmp_path: Path
) -> None:
    corpus = tmp_path / "parent" / "corpus"
    corpus.mkdir(parents=True)
    content = make(corpus, tmp_path / "target.txt")
    packed = name.endswith("gz")
    (corpus / name).write_bytes(gzip.compress(content) if packed else content)
    before = sorted(tmp_path.rglob("*"))
    if name == "a.txt" and make is a_tar:
        # all of it is ASCII and NUL: a text like any other, and one document
        assert [d.text.encode() for d in iter_documents(str(corpus), "text")] == [content]
    else:
        with pytest.raises(DataError, match=name):
            list(iter_documents(str(corpus), "text"))
    assert sorted(tmp_path.rglob("*")) == before
