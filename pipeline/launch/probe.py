"""Looks inside a trained run: `python -m pipeline probe RUN`, one process, nothing is trained."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from pipeline.config.schema import Config
from pipeline.data.prepare import Prepared
from pipeline.errors import ConfigError, DataError, StorageError, free_space
from pipeline.evaluate.documents import Documents, documents_for
from pipeline.evaluate.extended import extend_decoder
from pipeline.evaluate.probes.decodability import LEAST_DOCUMENTS
from pipeline.evaluate.probes.probe import probe_length, probed_lengths
from pipeline.evaluate.steps import Row, common_fields
from pipeline.launch.checks import check_text, data_key, prepare_all, say
from pipeline.launch.evaluation import row_facts, trained_decoder
from pipeline.launch.ranks import threads_per_rank
from pipeline.launch.retest import finished_run, read_test
from pipeline.model.plan import as_tested
from pipeline.parallel.device import device_type
from pipeline.record.environment import code_sha256
from pipeline.record.folder import RunFolder
from pipeline.record.metrics import MetricsLog
from pipeline.record.progress import progress_bar
from pipeline.report.collect import collect
from pipeline.report.output import save_png
from pipeline.report.probe_pictures import draw_probes
from pipeline.report.probes import check_alike, find_probes, probes_text
from pipeline.report.reading import read_probes, read_run

# what a probe may change, of that which a test may change: the rest has no effect on it
PROBED = (
    "extension",
    "eval_lengths",
    "evaluate.split",
    "evaluate.suffix_tokens",
    "evaluate.documents",
    "trainer.accelerator",
    "trainer.threads",
)
ONE_PROCESS = (
    "trainer.processes=1",
    "trainer.nodes=1",
    "trainer.sequence_parallel=1",
    "trainer.ring=1",
)
QUERIES = 16


def probe_run(path: Path, overrides: Sequence[str], queries: int | None) -> None:
    """Probe the newest checkpoint of a finished run, print a table and leave rows and pictures.

    Rows replace those of the same extension in the folder `probes`, where each has one. `queries`
    are those of one document; None = QUERIES, or all scored tokens if these are fewer.

    Raises:
        ConfigError: the run is not finished, a setting would change how it was trained or nothing,
            the extension does not fit, or there are too few documents or tokens.
        CheckpointError, DataError, StorageError: as in an evaluation.
    """
    began = time.monotonic()
    folder = finished_run(path)
    config = _settings(folder, overrides)
    queries = _queries(config, queries)
    prepared = prepare_all([config])[data_key(config.data)]
    check_text(folder, prepared)
    documents = _documents(config, prepared)
    where, facts = _where(folder, config), _facts(config, folder, prepared, documents, queries)
    _check_others(folder, where, facts)
    torch.set_flush_denormal(True)
    torch.set_num_threads(threads_per_rank(config))
    folder.take()
    try:
        _write(where, _rows(config, folder, prepared, documents, facts))
        study = collect([folder.path])
        probes = find_probes(study)
        _draw(folder, draw_probes(study, probes))
    finally:
        folder.release()
    print(probes_text(study, probes))
    say(f"probes: {where}, {time.monotonic() - began:.1f} s")


def _settings(folder: RunFolder, overrides: Sequence[str]) -> Config:
    """The configuration of a run as it is probed: with these settings, by one process."""
    test = read_test(folder, [*ONE_PROCESS, *overrides], "probe")
    # ranks are as ONE_PROCESS says, unless the overrides speak of them
    idle = [one.partition("=")[0] for one in ONE_PROCESS] if test.config.trainer.world == 1 else []
    wrong = [key for key in test.changed if not key.startswith((*PROBED, *idle))]
    if wrong:
        raise ConfigError(
            f"{', '.join(wrong)}: has no effect on a probe, which is one process and scores "
            f"nothing; it takes: {', '.join(PROBED)}"
        )
    return test.config


def _queries(config: Config, asked: int | None) -> int:
    """How many queries of a document are looked at."""
    targets = config.evaluate.suffix_tokens
    # the first one must have a token before it
    most = min(targets, config.train_length - 1)
    if asked is None:
        return min(QUERIES, most)
    if not 1 <= asked <= most:
        raise ConfigError(
            f"--queries {asked}: queries are of the scored tokens, evaluate.suffix_tokens="
            f"{targets}, but not the first of train_length={config.train_length}: use 1 to {most}"
        )
    return asked


def _documents(config: Config, prepared: Prepared) -> Documents:
    if config.evaluate.documents < LEAST_DOCUMENTS:
        raise ConfigError(
            f"evaluate.documents={config.evaluate.documents}: positions are fitted on some "
            f"documents and read from others; use {LEAST_DOCUMENTS} or more"
        )
    found = documents_for(config, prepared, config.evaluate.split, config.evaluate.documents)
    if len(found.tokens) < LEAST_DOCUMENTS:
        raise DataError(
            f"data.source: {len(found.tokens)} {found.split} documents are long enough for a "
            f"probe, which needs {LEAST_DOCUMENTS}; lower eval_lengths or add longer documents"
        )
    return found


def _facts(
    config: Config, folder: RunFolder, prepared: Prepared, documents: Documents, queries: int
) -> Row:
    """What every row says of the run and of how it was measured."""
    where = folder.path.resolve()
    return {
        "run": f"{where.parent.name}/{where.name}",
        **common_fields(config),
        "code_sha256": code_sha256(),
        "corpus_sha256": prepared.corpus_sha256,
        "tokenizer_sha256": prepared.tokenizer.sha256,
        "documents": len(documents.tokens),
        "document_ids": documents.ids,
        "split": documents.split,
        "text_sha256": documents.text_sha256,
        # with how many queries there are, it decides which places these have
        "suffix_tokens": config.evaluate.suffix_tokens,
        "queries": queries,
        "precision": as_tested(config).trainer.precision,
        "device": device_type(config),
    }


def _check_others(folder: RunFolder, where: Path, facts: Row) -> None:
    """Refuse to measure what could not stand in one table with other probes of this run.

    Raises:
        DataError: it could not.
    """
    others = read_probes(read_run(folder.path))
    check_alike([*(rows[0] for path, rows in others.items() if path != where), facts])


def _rows(
    config: Config, folder: RunFolder, prepared: Prepared, documents: Documents, facts: Row
) -> list[Row]:
    """What all probes find."""
    decoder, manifest = trained_decoder(config, folder)
    extend_decoder(decoder, config)
    decoder.position_ids.read_vocabulary(prepared.tokenizer.pieces)
    decoder.to(facts["device"])
    facts = {**facts, **row_facts(manifest, prepared)}
    lengths = probed_lengths(decoder, config)
    total = sum(lengths) * len(documents.tokens)
    rows = []
    with progress_bar(total, f"{folder.path.name} probes", "token") as bar:
        for length in lengths:
            found = probe_length(decoder, config, documents, length, facts["queries"], bar.update)
            rows += [{**facts, **row} for row in found]
    return rows


def _where(folder: RunFolder, config: Config) -> Path:
    """The file of the rows, under an extension in a folder of its own, as those of evaluations."""
    evaluation = folder.evaluation_of(config.extension)
    return folder.path / "probes" / evaluation.relative_to(folder.evaluation.parent)


def _write(path: Path, rows: Sequence[Row]) -> None:
    """Replace the rows at `path`, all or none."""
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.unlink(missing_ok=True)
        with MetricsLog(partial) as log:
            for row in rows:
                log.write(row)
        os.replace(partial, path)
    except OSError as error:
        raise StorageError(
            f"{path}: cannot be written: {error.strerror}; {free_space(path)}"
        ) from error


def _draw(folder: RunFolder, figures: dict[str, Any]) -> None:
    """Leave the pictures of all probes of the run."""
    for stem, figure in figures.items():
        path = folder.path / "probes" / f"{stem}.png"
        try:
            save_png(figure, path)
        except OSError as error:
            raise StorageError(
                f"{path}: cannot be written: {error.strerror}; {free_space(path)}"
            ) from error
