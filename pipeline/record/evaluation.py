"""The rows of one evaluation and the arrays behind them, written so that a kill loses one at most.

``<folder>/rows.jsonl`` is there once the evaluation is whole; until then its rows stand in
``rows.jsonl.partial``. The arrays of a row lie beside, in ``values/<key>-<digits>.npz``, named in
the row under ``values``; the digits are of the file's sha256, so that a row never meets the arrays
of another evaluation. Numbers alone are read back: no pickle. What a row holds itself has its
digest in the row, as ``row_sha256``.
"""

import hashlib
import io
import json
import os
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.config.durable import sync
from pipeline.errors import DataError, StorageError, free_space
from pipeline.record.metrics import MetricsLog, read_rows

Row = dict[str, Any]
Values = dict[str, npt.NDArray[Any]]


class EvaluationLog:
    """Writes one evaluation; started again with the same `identity`, it goes on where it was.

    `identity` stands for all that decides the numbers. Rows of another one are not mixed in: they
    are replaced when the new evaluation is whole, and stay until then.
    """

    def __init__(self, path: Path, identity: str) -> None:
        self.path, self.identity = path, identity
        self._partial = path.with_name(path.name + ".partial")
        self._values = path.parent / "values"
        self.known = self._read()
        self._rows = {key: row for key, (row, _) in self.known.items()}
        self._log: MetricsLog | None = None

    def write(self, row: Row, values: Values) -> None:
        """Add one row, after its values. Raises StorageError if the disk refuses."""
        row = {**row, "evaluation_sha256": self.identity}
        with self._naming():
            if self._log is None:
                self._log = self._start()
            if values:
                row["values"] = self._store(row["key"], values)
        row["row_sha256"] = row_sha256(row)
        self._log.write(row)
        self._rows[row["key"]] = row

    def finish(self, keys: Sequence[str]) -> None:
        """Put the rows, in the order of `keys`, in their place, and remove the values of rows that
        are no more. Raises StorageError if the disk refuses."""
        rows = [self._rows[key] for key in keys]
        with self._naming():
            if not self.path.is_file() or read_rows(self.path) != rows:
                if self._log is not None:
                    self._log.close()
                self._partial.unlink(missing_ok=True)
                with MetricsLog(self._partial) as log:
                    for row in rows:
                        log.write(row)
                sync(self._partial)
                os.replace(self._partial, self.path)
            self._partial.unlink(missing_ok=True)
            named = {row.get("values") for row in rows}
            for file in self._values.glob("*.npz*"):
                if file.name not in named:
                    file.unlink()

    @contextmanager
    def _naming(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError(
                f"{self.path.parent}: cannot be written: {error.strerror}; {free_space(self.path)}"
            ) from error

    def _start(self) -> MetricsLog:
        """Begin the partial file, with the rows that are known already."""
        self._values.mkdir(parents=True, exist_ok=True)
        self._partial.unlink(missing_ok=True)
        log = MetricsLog(self._partial)
        for row in self._rows.values():
            log.write(row)
        return log

    def _store(self, key: str, values: Values) -> str:
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **values)
        content = buffer.getvalue()
        name = f"{key}-{hashlib.sha256(content).hexdigest()[:12]}.npz"
        partial = self._values / f"{name}.partial"
        partial.write_bytes(content)
        os.replace(partial, self._values / name)
        return name

    def _read(self) -> dict[str, tuple[Row, Values]]:
        """Rows of this evaluation that are there already, by key, with their values."""
        found: dict[str, tuple[Row, Values]] = {}
        for path in (self.path, self._partial):
            for row in read_rows(path) if path.is_file() else []:
                if row.get("evaluation_sha256") != self.identity:
                    continue
                if row.get("row_sha256") not in (None, row_sha256(row)):
                    continue  # damaged: measured again
                try:
                    found[row["key"]] = row, read_values(path, row)
                except DataError:
                    continue  # damaged: measured again
        return found


def row_sha256(row: Mapping[str, Any]) -> str:
    """sha256 of all that a row holds but this digest itself, as JSON gives it back."""
    text = json.dumps({key: row[key] for key in row if key != "row_sha256"})
    return hashlib.sha256(json.dumps(json.loads(text), sort_keys=True).encode()).hexdigest()


def read_values(rows: Path, row: Mapping[str, Any]) -> Values:
    """The arrays behind a row of the file `rows`; none if the row names none.

    Raises:
        DataError: the file is missing, or not the one that the row was written with.
    """
    if row.get("values") is None:
        return {}
    named = re.fullmatch(r"[A-Za-z0-9_.-]+-([0-9a-f]{12})\.npz", str(row["values"]))
    if not named:
        raise DataError(f"{rows}: `values` = {row['values']!r} is no name of a file of values")
    return read_arrays(rows.parent / "values" / named[0])


def read_arrays(path: Path) -> Values:
    """The arrays of one file, held against the digits in its name, if it has any.

    Raises:
        DataError: it is missing, damaged, exchanged or holds something else.
    """
    named = re.search(r"-([0-9a-f]{12})\.npz$", path.name)
    try:
        content = path.read_bytes()
        if named and hashlib.sha256(content).hexdigest()[:12] != named[1]:
            raise DataError(f"{path}: damaged or exchanged; evaluate the run again")
        if not zipfile.is_zipfile(io.BytesIO(content)):
            # numpy would take it for a pickle, and say how to load that
            raise ValueError("it is no .npz file")
        with np.load(io.BytesIO(content), allow_pickle=False) as found:
            values = {name: found[name] for name in found.files}
        if not all(isinstance(value, np.ndarray) for value in values.values()):
            raise ValueError("it holds something else than arrays")
        return values
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: cannot be read ({error}); evaluate the run again") from error
