"""Corpus -> prepared folder: tokenizer, three packs and a manifest, built once and then reused."""

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from pipeline.config.durable import write_file
from pipeline.config.schema import DataConfig
from pipeline.data.folders import building
from pipeline.data.pack import Pack, PackFacts, PackWriter
from pipeline.data.readers import Document, check_sizes, read_documents
from pipeline.data.sources import Source, find_source, source_sha256
from pipeline.data.split import SPLITS, split_of
from pipeline.data.tokenizer import MODEL_FILE, Tokenizer, cut
from pipeline.errors import DataError

MANIFEST_FILE = "manifest.json"
_FORMAT = 1
_BATCH_BYTES = 4 << 20


@dataclass(frozen=True)
class Prepared:
    """A whole prepared folder whose sizes and tokenizer were checked against its manifest."""

    folder: Path
    tokenizer: Tokenizer
    corpus_sha256: str
    packs: dict[str, Pack]

    def split(self, name: str) -> Pack:
        """The pack of "train", "validation" or "test" (an empty pack if no document fell there)."""
        if name not in self.packs:
            raise DataError(f"there is no split {name!r}; there are {', '.join(self.packs)}")
        return self.packs[name]


@dataclass(frozen=True)
class _Survey:
    """Documents and bytes of text by split."""

    documents: dict[str, int]
    n_bytes: dict[str, int]


def prepare(config: DataConfig) -> Prepared:
    """Prepare the corpus of `config`, or open what an earlier call has prepared from the same text.

    The folder is `<config.prepared>/<source>-v<vocab>-<fingerprint>`; the fingerprint covers the
    content of the corpus and every setting that shapes the result. Progress and a final account go
    to stderr. Raises DataError for a corpus that cannot be used, or a folder that is not as it was
    written, and StorageError if the folder cannot be written; neither leaves anything of it behind.
    """
    began = time.monotonic()
    source = find_source(config.source)
    check_sizes(source)
    with _progress("reading", source.n_bytes) as bar:
        corpus_sha256 = source_sha256(source, bar.update)
    folder = Path(config.prepared) / _folder_name(config, source, corpus_sha256)
    if folder.exists():
        _check_own(folder, {"corpus_sha256": corpus_sha256, "settings": _settings(config)})
        return open_prepared(folder, verify=True)
    survey = _survey(config, source)
    with building(folder) as partial:
        if partial is not None:
            _build(config, source, corpus_sha256, survey, partial)
    prepared = open_prepared(folder)
    if partial is not None:
        print(_account(prepared, source, time.monotonic() - began), file=sys.stderr)
    return prepared


def open_prepared(folder: Path, verify: bool = False) -> Prepared:
    """Open a prepared folder; sizes and the tokenizer's hash are checked, packs with `verify`.

    Raises DataError, naming the file, if anything is missing, damaged or was exchanged.
    """
    path = folder / MANIFEST_FILE
    try:
        manifest = json.loads(path.read_bytes())
        if manifest["format"] != _FORMAT:
            raise DataError(
                f"{path}: has format {manifest['format']!r}, this version reads {_FORMAT}; delete "
                f"{folder} to prepare the data again"
            )
        facts = {split: PackFacts(**manifest["splits"][split]) for split in SPLITS}
        corpus_sha256 = str(manifest["corpus_sha256"])
        tokenizer_sha256 = str(manifest["tokenizer_sha256"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path}: missing or damaged ({error!r}); delete {folder} to prepare the data again"
        ) from error
    tokenizer = Tokenizer.load(folder / MODEL_FILE, tokenizer_sha256)
    packs = {split: Pack(folder, split, facts[split]) for split in SPLITS}
    if verify:
        with _progress("verifying", sum(pack.tokens.nbytes for pack in packs.values())) as bar:
            for pack in packs.values():
                pack.verify(bar.update)
    return Prepared(folder, tokenizer, corpus_sha256, packs)


def _check_own(folder: Path, wanted: dict[str, Any]) -> None:
    """Refuse a whole folder of something else under the name of what is wanted."""
    try:
        manifest = json.loads((folder / MANIFEST_FILE).read_bytes())
    except (OSError, ValueError):
        return  # opening it says so
    for key, value in wanted.items() if isinstance(manifest, dict) else ():
        if key in manifest and manifest[key] != value:
            raise DataError(
                f"{folder / MANIFEST_FILE}: `{key}` is {manifest[key]!r}, where the name of the "
                f"folder is for {value!r}: it was prepared from something else. Delete {folder} to "
                "prepare the data again"
            )


def _folder_name(config: DataConfig, source: Source, corpus_sha256: str) -> str:
    shaping = {"format": _FORMAT, "corpus_sha256": corpus_sha256, **_settings(config)}
    fingerprint = hashlib.sha256(json.dumps(shaping, sort_keys=True).encode()).hexdigest()
    return f"{source.name}-v{config.vocab}-{fingerprint[:12]}"


def _settings(config: DataConfig) -> dict[str, Any]:
    keys = ("text_key", "vocab", "tokenizer_bytes", "validation_fraction", "test_fraction")
    return {key: getattr(config, key) for key in keys}


def _documents(config: DataConfig, source: Source) -> Iterator[tuple[str, Document, int]]:
    """Every document with its split and its bytes."""
    for document in read_documents(source, config.text_key):
        split = split_of(document.text, config.validation_fraction, config.test_fraction)
        yield split, document, len(document.text.encode())


def _survey(config: DataConfig, source: Source) -> _Survey:
    survey = _Survey(dict.fromkeys(SPLITS, 0), dict.fromkeys(SPLITS, 0))
    with _progress("counting", None) as bar:
        for split, _, n_bytes in _documents(config, source):
            survey.documents[split] += 1
            survey.n_bytes[split] += n_bytes
            bar.update(n_bytes)
    if not survey.n_bytes["train"]:
        raise DataError(
            f"{config.source!r}: no text fell into the train split "
            f"(documents: {sum(survey.documents.values())}); add documents or lower "
            f"data.validation_fraction and data.test_fraction"
        )
    return survey


def _sample(config: DataConfig, source: Source, total: int) -> Iterator[str]:
    """About `tokenizer_bytes` of the `total` bytes of the train split, in evenly spread pieces."""
    credit = 0
    with _progress("tokenizer", total) as bar:
        for split, document, n_bytes in _documents(config, source):
            if split != "train":
                continue
            bar.update(n_bytes)
            for piece in cut(document.text):
                size = len(piece.encode())
                credit += size * config.tokenizer_bytes
                if credit >= size * total:
                    credit -= size * total
                    yield piece


def _build(
    config: DataConfig, source: Source, corpus_sha256: str, survey: _Survey, folder: Path
) -> None:
    sample = _sample(config, source, survey.n_bytes["train"])
    tokenizer = Tokenizer.train(sample, config.vocab, folder)
    with ExitStack() as stack:
        writers = {
            split: stack.enter_context(PackWriter(folder, split, config.vocab)) for split in SPLITS
        }
        with _progress("packing", sum(survey.n_bytes.values())) as bar:
            for batch in _batches(_documents(config, source)):
                _pack_batch(batch, tokenizer, writers)
                bar.update(sum(n_bytes for _, _, n_bytes in batch))
        facts = {split: writer.close() for split, writer in writers.items()}
    if source_sha256(source, lambda _: None) != corpus_sha256:
        raise DataError(f"data.source = {config.source!r} changed meanwhile: prepare it again")
    manifest = {
        "format": _FORMAT,
        "source": config.source,
        "corpus_sha256": corpus_sha256,
        "tokenizer_sha256": tokenizer.sha256,
        "settings": _settings(config),
        "splits": {split: asdict(fact) for split, fact in facts.items()},
        "skipped": [asdict(excluded) for excluded in source.excluded],
    }
    write_file(folder / MANIFEST_FILE, json.dumps(manifest, indent=1).encode())


_Batch = list[tuple[str, Document, int]]


def _batches(documents: Iterator[tuple[str, Document, int]]) -> Iterator[_Batch]:
    batch: _Batch = []
    size = 0
    for item in documents:
        batch.append(item)
        size += item[2] + 64  # so that very many empty documents fill a batch as well
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    yield batch


def _pack_batch(batch: _Batch, tokenizer: Tokenizer, writers: dict[str, PackWriter]) -> None:
    stands_for = tokenizer.token_bytes()
    encoded = tokenizer.encode_batch(
        [document.text for _, document, _ in batch], threads=len(os.sched_getaffinity(0))
    )
    for (split, document, n_bytes), ids in zip(batch, encoded, strict=True):
        if int(np.sum(stands_for[ids])) != n_bytes:
            raise DataError(f"{document.name}: the tokenizer lost part of it; report this text")
        writers[split].add(ids, n_bytes)


def _progress(stage: str, total: int | None) -> "tqdm[Any]":
    return tqdm(
        desc=f"{stage:10}",
        total=total,
        unit="B",
        unit_scale=True,
        dynamic_ncols=True,
        mininterval=0.5 if sys.stderr.isatty() else 10.0,
        file=sys.stderr,
    )


def _account(prepared: Prepared, source: Source, seconds: float) -> str:
    parts = [
        f"{name}: {pack.n_documents} documents, {pack.n_tokens} tokens, {pack.n_bytes} bytes"
        for name, pack in prepared.packs.items()
    ]
    skipped = f"left out by definition: {len(source.excluded)} files (listed in {MANIFEST_FILE})"
    return f"prepared {prepared.folder} in {seconds:.1f} s; {'; '.join(parts)}; {skipped}"
