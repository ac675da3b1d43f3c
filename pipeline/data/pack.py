"""Token packs: one split of a corpus as a memory-mapped row of tokens plus a document index.

Two raw little-endian files: `<split>.tokens`, in which every document is bos followed by its ids,
and `<split>.documents`, int64 [n_documents + 1], where each document starts. Sizes, dtype and
sha256 are not in the files but in the manifest of the prepared folder (`PackFacts`).
"""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from pipeline.data.tokenizer import BOS
from pipeline.errors import DataError

_READ_BYTES = 1 << 22


@dataclass(frozen=True)
class PackFacts:
    """What the manifest records of a pack; tokens include the bos of every document."""

    n_documents: int
    n_tokens: int
    n_bytes: int
    vocab: int
    sha256: str

    @property
    def dtype(self) -> np.dtype[Any]:
        """The narrowest of uint16 and uint32 that holds every id below `vocab`."""
        return np.dtype("<u2" if self.vocab <= 1 << 16 else "<u4")


class Pack:
    """One split, read-only and memory-mapped. Cheap to hand to a worker process: it reopens."""

    def __init__(self, folder: Path, split: str, facts: PackFacts) -> None:
        """Map the files of `split`; DataError if one is missing or its size is not as recorded."""
        self.folder = folder
        self.split = split
        self.facts = facts
        self.n_documents = facts.n_documents
        self.n_tokens = facts.n_tokens
        self.n_bytes = facts.n_bytes
        self.sha256 = facts.sha256
        self.tokens = _map(folder / f"{split}.tokens", facts.dtype, facts.n_tokens)
        self.starts = _map(folder / f"{split}.documents", np.dtype("<i8"), facts.n_documents + 1)
        if self.starts[0] != 0 or self.starts[-1] != facts.n_tokens:
            raise _damaged(folder / f"{split}.documents", "its ends do not match the token count")

    def __reduce__(self) -> tuple[type[Self], tuple[Path, str, PackFacts]]:
        """Travel as the path, never as the content."""
        return type(self), (self.folder, self.split, self.facts)

    def document(self, i: int) -> npt.NDArray[np.int64]:
        """int64 [tokens of document i]: bos and its ids. IndexError outside [0, n_documents)."""
        if not 0 <= i < self.n_documents:
            raise IndexError(f"document {i} of a pack with {self.n_documents}")
        return self.tokens[self.starts[i] : self.starts[i + 1]].astype(np.int64)

    def document_lengths(self) -> npt.NDArray[np.int64]:
        """int64 [n_documents]: tokens of each document, bos included."""
        return np.diff(self.starts)

    def verify(self, progress: Callable[[int], object]) -> None:
        """Read both files whole and raise DataError if their sha256 is not the recorded one.

        `progress` is called with the number of bytes read since its last call.
        """
        digests = []
        for suffix in ("tokens", "documents"):
            digest = hashlib.sha256()
            with (self.folder / f"{self.split}.{suffix}").open("rb") as stream:
                while block := stream.read(_READ_BYTES):
                    digest.update(block)
                    progress(len(block))
            digests.append(digest)
        if _joined(*digests) != self.sha256:
            raise _damaged(self.folder / f"{self.split}.tokens", "its sha256 is not as recorded")


class PackWriter:
    """Write one split document by document; memory stays constant. Close to get the facts."""

    def __init__(self, folder: Path, split: str, vocab: int) -> None:
        """Start `split` in an existing folder; the files of an earlier attempt are overwritten."""
        self._facts = PackFacts(0, 0, 0, vocab, "")
        self._streams = [(folder / f"{split}.{s}").open("wb") for s in ("tokens", "documents")]
        self._digests = [hashlib.sha256(), hashlib.sha256()]
        self._documents = self._tokens = self._bytes = 0
        self._write(1, np.zeros(1, dtype="<i8"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for stream in self._streams:
            stream.close()

    def add(self, ids: npt.NDArray[np.integer], n_bytes: int) -> None:
        """Append one document, without its bos, that stands for `n_bytes` bytes of text.

        Raises DataError for an id outside [0, vocab): it would wrap in a narrow integer.
        """
        if len(ids) and not 0 <= ids.min() <= ids.max() < self._facts.vocab:
            raise DataError(
                f"document {self._documents} has ids from {ids.min()} to {ids.max()}; this pack is "
                f"for a vocab of {self._facts.vocab}: use the tokenizer the pack was started with"
            )
        row = np.empty(len(ids) + 1, dtype=self._facts.dtype)
        row[0] = BOS
        row[1:] = ids
        self._write(0, row)
        self._documents += 1
        self._tokens += len(row)
        self._bytes += n_bytes
        self._write(1, np.array([self._tokens], dtype="<i8"))

    def close(self) -> PackFacts:
        """Flush everything to the disk and return what the manifest has to record."""
        for stream in self._streams:
            stream.flush()
            os.fsync(stream.fileno())
            stream.close()
        return PackFacts(
            self._documents, self._tokens, self._bytes, self._facts.vocab, _joined(*self._digests)
        )

    def _write(self, which: int, row: npt.NDArray[Any]) -> None:
        content = row.tobytes()
        self._streams[which].write(content)
        self._digests[which].update(content)


def _joined(tokens: "hashlib._Hash", documents: "hashlib._Hash") -> str:
    return hashlib.sha256(tokens.digest() + documents.digest()).hexdigest()


def _damaged(path: Path, why: str) -> DataError:
    return DataError(f"{path}: damaged: {why}; delete {path.parent} to prepare the data again")


def _map(path: Path, dtype: np.dtype[Any], count: int) -> npt.NDArray[Any]:
    try:
        size = path.stat().st_size
        if size != count * dtype.itemsize:
            raise _damaged(path, f"it has {size} bytes instead of {count * dtype.itemsize}")
        if count == 0:
            return np.empty(0, dtype=dtype)
        return np.memmap(path, dtype=dtype, mode="r", shape=(count,))
    except OSError as error:
        raise _damaged(path, f"it cannot be read: {error.strerror}") from error
