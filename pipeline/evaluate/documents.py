"""The long documents that all lengths are tested on, and what identifies them."""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from pipeline.config.schema import Config
from pipeline.data.prepare import Prepared
from pipeline.errors import DataError

Ids = npt.NDArray[np.int64]


class Corpus(Protocol):
    """What documents are chosen from: `pipeline.data.pack.Pack`, or anything that acts so."""

    def document(self, i: int, /) -> Ids:
        """int64 [tokens of document i]."""

    def document_lengths(self) -> npt.NDArray[np.int64]:
        """int64 [documents]: tokens of each."""


@dataclass(frozen=True)
class Documents:
    """Chosen documents, each at least `span` + 1 tokens long, with UTF-8 bytes per token id.

    `span` is the number of targets at the end of every document that protocols may score.
    """

    tokens: tuple[Ids, ...]
    span: int
    token_bytes: npt.NDArray[np.int64]
    split: str

    def first(self, count: int | None) -> "Documents":
        """The first `count` of these documents; None = all."""
        return replace(self, tokens=self.tokens[:count])

    @cached_property
    def text_sha256(self) -> str:
        """sha256 of what may be shown and scored: the last `span` + 1 tokens of each document."""
        shown = [document[-self.span - 1 :].tobytes() for document in self.tokens]
        return hashlib.sha256(b"".join(shown)).hexdigest()

    @property
    def ids(self) -> list[str]:
        """What names each document: the first twelve digits of the sha256 of its tokens."""
        return [_digest(document).hex()[:12] for document in self.tokens]

    @property
    def sizes(self) -> list[int]:
        """Tokens in each document."""
        return [len(document) for document in self.tokens]


def choose_documents(
    corpus: Corpus, span: int, count: int, *, token_bytes: npt.NDArray[np.int64], split: str
) -> Documents:
    """Up to `count` documents of at least `span` + 1 tokens, the first ones by content hash.

    The order by hash is random as to content, and the same whatever order the corpus was read in.

    Raises:
        DataError: the split is empty, or no document is long enough.
    """
    lengths = corpus.document_lengths()
    if not len(lengths):
        raise DataError(f"the {split} split is empty: add documents or raise data.{split}_fraction")
    long_enough = np.flatnonzero(lengths >= span + 1)
    if not len(long_enough):
        raise DataError(
            f"data.source: no {split} document has the {span + 1} tokens that eval_lengths, or "
            "train_length + evaluate.suffix_tokens, ask for; the longest of "
            f"{len(lengths)} has {lengths.max()}. Lower them or add longer documents"
        )
    digests = {int(i): _digest(corpus.document(int(i))) for i in long_enough}
    chosen = sorted(digests, key=lambda i: digests[i])[:count]
    tokens = tuple(corpus.document(i) for i in chosen)
    return Documents(tokens, span, token_bytes, split)


def _digest(document: Ids) -> bytes:
    return hashlib.sha256(document.tobytes()).digest()


def documents_for(config: Config, prepared: Prepared, split: str, count: int) -> Documents:
    """The first `count` documents of `split` that are long enough for every eval length."""
    return choose_documents(
        prepared.split(split),
        # the window control reaches a whole window back from the first target of the suffix
        max(*config.eval_lengths, config.train_length + config.evaluate.suffix_tokens),
        count,
        token_bytes=prepared.tokenizer.token_bytes(),
        split=split,
    )
