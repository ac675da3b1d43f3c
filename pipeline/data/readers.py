"""Corpus files -> documents, one at a time, byte for byte as they are in the file."""

import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from pipeline.data.sources import Source, SourceFile, extension_of, find_source
from pipeline.errors import DataError

MAX_DOCUMENT_BYTES = 64 << 20
_PARQUET_ROWS = 8  # each may be of MAX_DOCUMENT_BYTES, and lie in a file of a few kilobytes
_PARQUET_BUFFER = 1 << 20
_SIGNATURES = {
    b"\x1f\x8b": "it looks gzip-compressed",
    b"\x28\xb5\x2f\xfd": "it looks zstd-compressed",
    b"\xff\xfe": "it looks like UTF-16",
    b"\xfe\xff": "it looks like UTF-16",
    b"PAR1": "it looks like a parquet file",
}


@dataclass(frozen=True)
class Document:
    """One text of a corpus. `name` says where it stands: the file, with line or row if needed."""

    name: str
    text: str


def iter_documents(source: str, text_key: str) -> Iterator[Document]:
    """Yield the documents of `data.source` in a fixed order; one document is in memory at a time.

    A .txt file is one document; a .jsonl line (also .gz, .zst) or a .parquet row is one, its text
    under `text_key`. Blank .jsonl lines hold no document. Nothing is stripped or normalised.
    Raises DataError, naming file and byte offset, line or row, for anything that cannot be read,
    for a document above `MAX_DOCUMENT_BYTES`, and at the end if there was no text at all.
    """
    return read_documents(find_source(source), text_key)


def check_sizes(source: Source) -> None:
    """Refuse, before anything is read, a file whose one document is above `MAX_DOCUMENT_BYTES`.

    Raises:
        DataError: naming the file.
    """
    for file in source.files:
        if extension_of(file.name) == ".txt" and file.n_bytes > MAX_DOCUMENT_BYTES:
            raise _too_long(str(file.path))


def read_documents(source: Source, text_key: str) -> Iterator[Document]:
    """`iter_documents` for files that `find_source` has already listed."""
    found_text = False
    for file in source.files:
        reader = _READERS.get(extension_of(file.name) or "", _read_text)
        with _naming(file.path):
            for document in reader(file, text_key):
                found_text = found_text or bool(document.text)
                yield document
    if not found_text:
        raise DataError(
            f"the corpus {source.name!r} holds no text in its {len(source.files)} files, the first "
            f"of which is {source.files[0].path}; add documents"
        )


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


def _decode(data: bytes, where: str, offset: int = 0) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        hints = (hint for start, hint in _SIGNATURES.items() if data.startswith(start))
        hint = next(hints, "it is damaged or in another encoding")
        raise DataError(
            f"{where}: byte 0x{data[error.start]:02x} at byte offset {offset + error.start} is not "
            f"valid UTF-8 ({error.reason}); {hint}: convert it to UTF-8 with a fitting extension"
        ) from error


def _too_long(where: str) -> DataError:
    return DataError(
        f"{where}: longer than {MAX_DOCUMENT_BYTES} bytes, the most that one document may hold; "
        f"cut it into several documents (a .txt file is one, a .jsonl line is one)"
    )


def _read_text(file: SourceFile, text_key: str) -> Iterator[Document]:
    with file.path.open("rb") as stream:
        data = stream.read(MAX_DOCUMENT_BYTES + 1)
    if len(data) > MAX_DOCUMENT_BYTES:
        raise _too_long(str(file.path))
    yield Document(file.name, _decode(data, str(file.path)))


def _read_jsonl(file: SourceFile, text_key: str) -> Iterator[Document]:
    with file.path.open("rb") as stream:
        yield from _json_documents(stream, file, text_key)


def _read_compressed(file: SourceFile, text_key: str) -> Iterator[Document]:
    import pyarrow

    codec = "gzip" if file.name.endswith(".gz") else "zstd"
    with file.path.open("rb") as stream, pyarrow.CompressedInputStream(stream, codec) as plain:
        yield from _json_documents(io.BufferedReader(plain), file, text_key)


def _json_documents(stream: BinaryIO, file: SourceFile, text_key: str) -> Iterator[Document]:
    offset = number = 0
    while line := stream.readline(MAX_DOCUMENT_BYTES + 1):
        number += 1
        where = f"{file.path}:{number}"
        if len(line) > MAX_DOCUMENT_BYTES:
            raise _too_long(where)
        text = _decode(line, where, offset)
        if number == 1:
            text = text.removeprefix("\ufeff")
        if text.strip():
            yield Document(f"{file.name}:{number}", _json_text(text, where, text_key))
        offset += len(line)


def _json_text(line: str, where: str, text_key: str) -> str:
    try:
        row = json.loads(line, object_pairs_hook=_distinct)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not valid JSON ({error}); every line is one object") from error
    if not isinstance(row, dict):
        raise DataError(f"{where}: a JSON {type(row).__name__}, not an object with {text_key!r}")
    if text_key not in row:
        raise _missing_key(where, text_key, list(row))
    return _checked(row[text_key], where, text_key)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object as a dict, which would drop all but the last value of a repeated key."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a key twice")
    return found


def _missing_key(where: str, text_key: str, keys: list[str]) -> DataError:
    return DataError(
        f"{where}: no key {text_key!r}; it has {', '.join(map(repr, keys[:20])) or 'no keys'}: set "
        f"data.text_key to the key that holds the text"
    )


def _checked(value: Any, where: str, text_key: str) -> str:
    if not isinstance(value, str):
        raise DataError(f"{where}: {text_key!r} is {value!r:.60}, not a text; mend or remove it")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"{where}: {text_key!r} holds the lone surrogate \\u{ord(value[error.start]):04x} at "
            f"character {error.start}, which is not text; mend or remove it"
        ) from error
    return value


def _read_parquet(file: SourceFile, text_key: str) -> Iterator[Document]:
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(file.path, buffer_size=_PARQUET_BUFFER) as table:
            if text_key not in table.schema_arrow.names:
                raise _missing_key(str(file.path), text_key, table.schema_arrow.names)
            row = 0
            for batch in _batches(table, str(file.path), text_key):
                for value in batch.column(0):
                    where = f"{file.path}: row {row}"
                    text = _checked(value.as_py(), where, text_key)
                    if len(text.encode()) > MAX_DOCUMENT_BYTES:
                        raise _too_long(where)
                    yield Document(f"{file.name}: row {row}", text)
                    row += 1
    except pyarrow.ArrowException as error:
        raise DataError(f"{file.path}: not a readable parquet file ({error})") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: {text_key!r} is not valid UTF-8 ({error.reason})") from error


def _batches(table: Any, path: str, text_key: str) -> Iterator[Any]:
    """Some rows at a time, so few that they fit in memory even if a small file unfolds to much."""
    for group in range(table.num_row_groups):
        facts = table.metadata.row_group(group)
        columns = map(facts.column, range(facts.num_columns))
        held = sum(c.total_uncompressed_size for c in columns if c.path_in_schema == text_key)
        mean = held // max(facts.num_rows, 1)
        if mean > MAX_DOCUMENT_BYTES:
            raise _too_long(f"{path}: a row of row group {group}")
        rows = min(_PARQUET_ROWS, MAX_DOCUMENT_BYTES // max(mean, 1))
        yield from table.iter_batches(rows, row_groups=[group], columns=[text_key])


_Reader = Callable[[SourceFile, str], Iterator[Document]]
_READERS: dict[str, _Reader] = {
    ".txt": _read_text,
    ".jsonl": _read_jsonl,
    ".jsonl.gz": _read_compressed,
    ".jsonl.zst": _read_compressed,
    ".parquet": _read_parquet,
}
