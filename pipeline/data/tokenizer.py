"""A lossless SentencePiece tokenizer: every text comes back byte for byte.

SentencePiece writes a space as U+2581, so a literal U+2581 would come back as a space. It is kept
out of the model and stands in the ids as its three UTF-8 bytes. Decoding joins the bytes each id
stands for, which makes the byte counts behind bits_per_byte exact.
"""

import hashlib
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import sentencepiece

from pipeline.config.durable import write_file
from pipeline.errors import DataError

UNKNOWN = 0
BOS = 1
MODEL_FILE = "tokenizer.model"
PIECE_CHARACTERS = 1024  # at most 4096 bytes; SentencePiece silently skips lines above 4192
MIN_VOCAB = 260
_SPACE = "\u2581"
_RESERVED = "\u2585"  # SentencePiece silently drops a training line that holds it
_COVERAGE = 0.9995
_RUN = re.compile(f"{_SPACE}|[^{_SPACE}]{{1,{1 << 18}}}")


class Tokenizer:
    """Text <-> ids in [0, vocab). Id 0 (unknown) is never produced; id 1 (bos) only by packing.

    `byte_ids`, int64 [256], are the ids that stand for one byte each; every vocabulary has them.
    """

    bos = BOS

    def __init__(self, model: bytes) -> None:
        """Build from the bytes of a SentencePiece model; DataError if it is not one of ours."""
        self.sha256 = hashlib.sha256(model).hexdigest()
        try:
            self._model = sentencepiece.SentencePieceProcessor(model_proto=model)
        except (RuntimeError, ValueError, TypeError) as error:
            raise DataError(
                f"not a SentencePiece model ({error}); prepare the data again"
            ) from error
        self.vocab: int = self._model.vocab_size()
        byte_ids = [self._model.piece_to_id(f"<0x{byte:02X}>") for byte in range(256)]
        needed = [*byte_ids, self._model.piece_to_id(_SPACE)]
        if self._model.bos_id() != BOS or UNKNOWN in needed:
            raise DataError("the tokenizer lacks bos, bytes or the space; prepare the data again")
        self._bytes = [self._stands_for(i) for i in range(self.vocab)]
        for byte, i in enumerate(byte_ids):
            self._bytes[i] = bytes([byte])
        self.byte_ids = np.array(byte_ids, dtype=np.int64)
        self._space_ids = np.array([byte_ids[byte] for byte in _SPACE.encode()], dtype=np.int32)

    @classmethod
    def train(cls, texts: Iterable[str], vocab: int, folder: Path) -> Self:
        """Train on all of `texts`, which must fit in memory, and write `folder/tokenizer.model`.

        The same texts and vocab give the same file. Raises DataError if `vocab` is below
        `MIN_VOCAB` or above what the texts can fill.
        """
        if vocab < MIN_VOCAB:
            raise DataError(f"data.vocab = {vocab} is too small; it must be at least {MIN_VOCAB}")
        pieces = [piece for text in texts for piece in cut(text)]
        if not pieces:
            raise DataError("there is no text to train the tokenizer on; add documents")
        lines = _without_rare(pieces, (vocab - 258) // 2)
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines),
                model_writer=model,
                model_type="bpe",
                vocab_size=vocab,
                character_coverage=1.0,
                normalization_rule_name="identity",
                add_dummy_prefix=False,
                remove_extra_whitespaces=False,
                allow_whitespace_only_pieces=True,
                byte_fallback=True,
                unk_id=UNKNOWN,
                bos_id=BOS,
                eos_id=-1,
                pad_id=-1,
                num_threads=1,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise _training_error(error, vocab) from error
        write_file(folder / MODEL_FILE, model.getvalue())
        return cls(model.getvalue())

    @classmethod
    def load(cls, path: Path, sha256: str | None = None) -> Self:
        """Load a model file; DataError if it is unreadable or does not have the given `sha256`."""
        try:
            model = path.read_bytes()
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror}") from error
        found = hashlib.sha256(model).hexdigest()
        if sha256 is not None and found != sha256:
            raise DataError(
                f"{path}: sha256 {found[:12]}... is not the {sha256[:12]}... that the packs were "
                f"made with; put that tokenizer back, or delete the folder to prepare it again"
            )
        try:
            return cls(model)
        except DataError as error:
            raise DataError(f"{path}: {error}") from error

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, without bos. DataError if it holds a lone surrogate."""
        ids: list[int] = self.encode_batch([text], threads=1)[0].tolist()
        return ids

    def encode_batch(self, texts: Sequence[str], threads: int) -> list[npt.NDArray[np.int32]]:
        """`encode` for several texts, on `threads` CPU threads; the ids do not depend on these."""
        runs = [_RUN.findall(text) for text in texts]
        try:
            plain = [run.encode() for text_runs in runs for run in text_runs if run != _SPACE]
        except UnicodeEncodeError as error:
            raise DataError(f"a lone surrogate is not text: {error}") from error
        encoded = iter(self._model.encode(plain, out_type="numpy", num_threads=threads))
        empty = np.empty(0, dtype=np.int32)
        return [
            np.concatenate(
                [empty, *(self._space_ids if run == _SPACE else next(encoded) for run in text_runs)]
            )
            for text_runs in runs
        ]

    def decode(self, ids: Sequence[int] | npt.NDArray[np.integer]) -> str:
        """The text of `ids`; bos and unknown stand for nothing, broken UTF-8 becomes U+FFFD.

        Raises ValueError for an id outside [0, vocab).
        """
        if any(not 0 <= i < self.vocab for i in ids):
            raise ValueError(f"ids must be in [0, {self.vocab})")
        return b"".join(self._bytes[i] for i in ids).decode(errors="replace")

    @property
    def pieces(self) -> list[bytes]:
        """The UTF-8 bytes of text that each id stands for; none for bos and unknown."""
        return list(self._bytes)

    def token_bytes(self) -> npt.NDArray[np.int64]:
        """int64 [vocab]: how many UTF-8 bytes of text each id stands for; 0 for bos and unknown."""
        return np.array([len(part) for part in self._bytes], dtype=np.int64)

    def _stands_for(self, i: int) -> bytes:
        if self._model.is_control(i) or self._model.is_unknown(i):
            return b""
        piece: str = self._model.id_to_piece(i)
        return piece.replace(_SPACE, " ").encode()


def cut(text: str) -> Iterator[str]:
    """Cut `text` into consecutive pieces short enough for the SentencePiece trainer."""
    return (text[i : i + PIECE_CHARACTERS] for i in range(0, len(text), PIECE_CHARACTERS))


def _without_rare(pieces: list[str], most: int) -> list[str]:
    counts: Counter[str] = Counter()
    for piece in pieces:
        counts.update(piece)
    for fixed in (_SPACE, _RESERVED, "\0", " "):
        del counts[fixed]
    wanted = _COVERAGE * counts.total()
    kept = 0
    dropped = {_SPACE, _RESERVED}
    for rank, (character, count) in enumerate(sorted(counts.items(), key=lambda c: (-c[1], c[0]))):
        if kept >= wanted or rank >= most:
            dropped.add(character)
        kept += count
    table = str.maketrans(dict.fromkeys(dropped, "\0"))
    lines = [line for piece in pieces for line in piece.translate(table).split("\0") if line]
    return [*lines, " "]  # without a space in the text it would not get a piece of its own


def _training_error(error: RuntimeError, vocab: int) -> DataError:
    highest = re.search(r"value <= (\d+)", str(error))
    if highest is None:
        return DataError(f"the tokenizer cannot be trained: {error}")
    return DataError(
        f"data.vocab = {vocab} is more than the text can fill: lower it to at most "
        f"{highest[1]}, raise data.tokenizer_bytes or give more text"
    )
