"""``metrics.jsonl`` and its like: one JSON object a line, the truth about a run.

A row has left the process before ``write`` returns, so a killed process can lose at most the line
it was writing. Readers drop exactly that cut line and nothing else.
"""

import contextlib
import errno
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.config.durable import write_file
from pipeline.errors import DataError, StorageError, free_space


class MetricsLog:
    """Appends rows to one file; open it in one process at a time.

    A line that an earlier process left unfinished is removed on opening, so that the next row does
    not get welded to it. Raises StorageError if the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = path.open("a+b", buffering=0)
            self._end = path.read_bytes().rfind(b"\n") + 1
            self._file.truncate(self._end)
        except OSError as error:
            raise StorageError(
                f"{path}: cannot be opened for writing: {error.strerror}; {free_space(path)}"
            ) from error

    def write(self, row: Mapping[str, Any]) -> None:
        """Append one row of strings, integers, booleans, nulls, finite floats, lists and objects.

        Raises ValueError naming the key for NaN, an infinity or any other type, StorageError if the
        disk refuses; in both cases the file holds whole rows only, as before the call.
        """
        for key, value in row.items():
            _check(key, value)
        line = json.dumps(dict(row), ensure_ascii=False, allow_nan=False).encode() + b"\n"
        try:
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.truncate(self._end)
            raise StorageError(
                f"{self.path}: a row of {len(line)} bytes could not be written: {error.strerror}; "
                f"{free_space(self.path)}. Free some space; the rows before it are whole."
            ) from error
        self._end += len(line)

    def close(self) -> None:
        """Close the file; no further row can be written."""
        self._file.close()

    def __enter__(self) -> "MetricsLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def cut_rows(path: Path, step: int) -> None:
    """Drop all rows after an optimizer step, and no others.

    The file is replaced as a whole. Raises DataError as ``read_rows``, StorageError if the disk
    refuses.
    """
    lines = path.read_bytes().split(b"\n")
    kept = [
        line + b"\n"
        for line, row in zip(lines, read_rows(path), strict=False)
        if row["step"] <= step
    ]
    try:
        write_file(path, b"".join(kept))
    except OSError as error:
        raise StorageError(
            f"{path}: cannot be written: {error.strerror}; {free_space(path)}"
        ) from error


def read_rows(path: Path) -> list[dict[str, Any]]:
    """All whole rows of a file, in order; a last line cut short by a kill is left out.

    Raises DataError naming file and line for a line that is not one JSON object, or a missing file.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file; the run has not written it yet") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    lines = content.split(b"\n")
    # What follows the last newline is empty, or the line that a kill cut short.
    return [_parse(line, path, number) for number, line in enumerate(lines[:-1], start=1)]


def _parse(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        row = json.loads(line, parse_constant=_refuse_constant)
    except ValueError as error:
        raise DataError(
            f"{path}:{number}: not a row of metrics ({error}). Only a last line cut by a kill is "
            "tolerated; restore the file or delete the run folder and run again."
        ) from error
    if not isinstance(row, dict):
        raise DataError(f"{path}:{number}: a row must be a JSON object, found {type(row).__name__}")
    return row


def _refuse_constant(word: str) -> float:
    raise ValueError(f"{word} is not a number")


def _check(key: str, value: object) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{key} = {value}: rows hold finite numbers or null")
    if isinstance(value, list | tuple):
        for item in value:
            _check(key, item)
    elif isinstance(value, Mapping):
        for name, item in value.items():
            _check(f"{key}.{name}", item)
    elif value is not None and not isinstance(value, str | int | float):
        raise ValueError(f"{key} has type {type(value).__name__}: rows hold plain Python values")
