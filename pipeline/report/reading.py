"""Reads one run folder; where something the report needs is missing, names file and key."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from pipeline.config.label import file_name, label
from pipeline.errors import ConfigError, DataError
from pipeline.record.folder import RunFolder
from pipeline.record.metrics import read_rows
from pipeline.report.needed import (
    ANCESTOR,
    CONFIG,
    DEFINED,
    DEFINED_TASK,
    ENVIRONMENT,
    METRICS_ROW,
    METRICS_ROW_OF_KIND,
    PROBE_ROW,
    PROBE_ROW_OF_KIND,
    ROW,
    ROW_OF_EXTENSION,
    ROW_OF_PROTOCOL,
    SHOWN,
    SUMMARY,
    Kinds,
    later,
    need,
)
from pipeline.report.own_rows import check_own


@dataclass(frozen=True)
class Run:
    """All of one run folder; ``config`` and ``summary`` as saved, rows in the order written.

    A run tested under an ``extension``, which is named with its settings, has the rows of that test
    and none of training. For a run itself it is empty.
    """

    path: Path
    config: dict[str, Any]
    summary: dict[str, Any]
    environment: dict[str, Any]
    rows: list[dict[str, Any]]
    train_rows: list[dict[str, Any]]
    short_rows: list[dict[str, Any]]
    spike_rows: list[dict[str, Any]]
    config_sha256: str
    extension: str = ""

    @cached_property
    def by_length(self) -> dict[tuple[str, int], list[dict[str, Any]]]:
        """Rows by protocol and length, in the order written."""
        found: dict[tuple[str, int], list[dict[str, Any]]] = {}
        for row in self.rows:
            found.setdefault((row["protocol"], row["length"]), []).append(row)
        return found

    @property
    def name(self) -> str:
        """``<experiment>/<run folder>``, which says where the run lies without naming a machine."""
        return f"{self.path.resolve().parent.name}/{self.path.resolve().name}"

    @property
    def lineage(self) -> list[dict[str, Any]]:
        """The runs whose weights this one trained on, oldest first; mostly none."""
        return list(self.summary.get("lineage", []))

    @property
    def where(self) -> str:
        """The folder, and the extension if its rows are those of one."""
        return f"{self.path} + {self.extension}" if self.extension else str(self.path)


def read_run(folder: Path) -> Run:
    """Read the folder of a finished run.

    Raises DataError naming the file, and the line and key where one is missing or of a wrong type,
    and for a marker ``finished`` that is not of this configuration.
    """
    if not (folder / "config.yaml").is_file():
        raise DataError(f"{folder} is not a run folder: it has no config.yaml")
    if not (folder / "finished").is_file():
        raise DataError(
            f"{folder} holds a run that is not finished; wait for it, run it again or leave it out"
        )
    metrics = read_rows(folder / "metrics.jsonl")
    for number, row in enumerate(metrics, start=1):
        where = f"{folder / 'metrics.jsonl'}:{number}"
        need(row, METRICS_ROW, where)
        need(row, METRICS_ROW_OF_KIND.get(row["kind"], {}), where)
    config = _mapping(folder / "config.yaml", CONFIG)
    try:
        RunFolder(folder).check_finished()
    except ConfigError as error:
        raise DataError(str(error)) from error
    summary = _mapping(folder / "summary.json", SUMMARY)
    need(summary, later(summary), str(folder / "summary.json"))
    for ancestor in summary.get("lineage", []):
        need(ancestor, {**ANCESTOR, **later(ancestor)}, f"{folder / 'summary.json'}: lineage")
    # a run may have been trained under an extension, and is then tested under it
    own = label(config.get("extension", {"name": "none"}))
    return Run(
        path=folder,
        config=config,
        summary=summary,
        environment=_mapping(folder / "environment.json", ENVIRONMENT),
        rows=_evaluation_rows(folder / "evaluation" / "rows.jsonl", own, config),
        train_rows=[row for row in metrics if row["kind"] == "train"],
        short_rows=[row for row in metrics if row["kind"] == "evaluation"],
        spike_rows=[row for row in metrics if row["kind"] == "spike"],
        config_sha256=(folder / "finished").read_text().strip(),
    )


def extended_rows(folder: Path) -> list[Path]:
    """The files of a run folder that hold rows of extensions."""
    return sorted((folder / "evaluation").glob("*/rows.jsonl"))


def read_extended(run: Run) -> list[Run]:
    """What a run gave under each extension it was tested with.

    Raises DataError if a file does not hold rows of the one extension that its folder is named by.
    """
    found = []
    for path in extended_rows(run.path):
        rows = _evaluation_rows(path, None, run.config)
        named = f"{rows[0]['extension']} {rows[0]['extension_settings']}".rstrip()
        weights = [row.get("weights_sha256") for row in (*run.rows, *rows)]
        if len(set(weights)) > 1:
            raise DataError(
                f"{path}: measured on other weights than the run's own rows. Evaluate the run "
                "again, or delete the file"
            )
        alone = replace(run, train_rows=[], short_rows=[], spike_rows=[])
        found.append(replace(alone, rows=rows, extension=named))
    return found


def read_probes(run: Run) -> dict[Path, list[dict[str, Any]]]:
    """The rows of ``python -m pipeline probe`` by file, those of the run itself first; empty if it
    was not probed.

    Raises DataError if a file is empty, damaged or not of the one extension that it is named by.
    """
    found: dict[Path, list[dict[str, Any]]] = {}
    own = label(run.config.get("extension", {"name": "none"}))
    folder = run.path / "probes"
    for path in [*folder.glob("rows.jsonl"), *sorted(folder.glob("*/rows.jsonl"))]:
        rows = read_rows(path)
        if not rows:
            raise DataError(f"{path}: no row; probe the run again, or delete the file")
        for number, row in enumerate(rows, start=1):
            where = f"{path}:{number}"
            need(row, PROBE_ROW, where)
            need(row, PROBE_ROW_OF_KIND.get(row["probe"], {}), where)
            _check_extension(row, path, number, own if path.parent == folder else None)
        found[path] = rows
    return found


def _evaluation_rows(
    path: Path, own: str | None, config: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Rows of the extension ``own``, or, if it is None, of that which the folder is named by."""
    rows = read_rows(path)
    if not any(row.get("protocol") == "suffix" for row in rows):
        raise DataError(f"{path}: no row of protocol 'suffix'")
    for number, row in enumerate(rows, start=1):
        need(row, ROW, f"{path}:{number}")
        need(row, ROW_OF_PROTOCOL.get(row["protocol"], {}), f"{path}:{number}")
        if row["defined"]:
            need(row, DEFINED, f"{path}:{number}")
        if row["protocol"] == "task":
            _check_task(row, f"{path}:{number}")
        _check_extension(row, path, number, own)
    check_own(rows, path, config)
    return rows


def _check_task(row: Mapping[str, Any], where: str) -> None:
    """Refuse a task row whose numbers cannot be, or whose name is not fit for a file."""
    if not re.fullmatch(r"[a-z0-9_]+", row["task"]):
        raise DataError(f"{where}: `task` = {row['task'][:80]!r} is no name of a task")
    # rows that were written before prompts were looked at so have no `shown`
    need(row, SHOWN if "shown" in row else {}, where)
    if row["defined"]:
        need(row, DEFINED_TASK, where)
        if row["examples"] < 1 or not 0 <= row["exact_match"] <= 1:
            raise DataError(
                f"{where}: `exact_match` = {row['exact_match']} of `examples` = {row['examples']} "
                "is no share; the run folder is damaged. Evaluate the run again"
            )


def _check_extension(row: Mapping[str, Any], path: Path, number: int, own: str | None) -> None:
    """Refuse a row of another extension among a run's own, and among those of an extension."""
    if own is None:
        need(row, ROW_OF_EXTENSION, f"{path}:{number}")
    # rows that were written before there were extensions do not name one
    name, settings = row.get("extension", "none"), row.get("extension_settings", "")
    named = f"{name} {settings}".rstrip()
    if file_name(named) != path.parent.name if own is None else named != own:
        place = f"{path.parent.name!r}" if own is None else "the trained encoding itself"
        raise DataError(
            f"{path}:{number}: a row of extension {named!r} among those of {place}. Evaluate the "
            "run again, or delete the file"
        )


def _mapping(path: Path, needed: Kinds) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        found = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise DataError(f"{path}: cannot be read ({error}); the run folder is damaged") from error
    if not isinstance(found, dict):
        raise DataError(f"{path}: holds {type(found).__name__} instead of keys and values")
    need(found, needed, str(path))
    return found
