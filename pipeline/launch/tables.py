"""Tables and pages from run folders; imports no torch."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline.config.schema import Config
from pipeline.config.strict_yaml import read
from pipeline.errors import ConfigError, DataError

# One of these beside a config.yaml tells a run folder from a folder of configurations, and from
# that which W&B keeps inside a run folder.
_OTHERS = {
    "environment.json", "metrics.jsonl", "trained.json", "summary.json", "finished", "checkpoints",
    "evaluation",
}  # fmt: skip


def find_runs(folders: Sequence[Path]) -> list[Path]:
    """The run folders among `folders` and below them, links followed, in order of path, each once.

    One that lost a file is among them: who reads it says so.

    Raises:
        ConfigError: one of `folders` holds none, or cannot be looked into.
    """
    found: dict[Path, Path] = {}
    for folder in folders:
        runs = sorted(_runs_below(folder))
        if not runs:
            raise ConfigError(f"{folder}: no run folder (one with a config.yaml) here or below")
        for run in runs:
            found.setdefault(run.resolve(), run)
    return list(found.values())


def _runs_below(folder: Path) -> Iterator[Path]:
    seen: set[Path] = set()
    for place, below, files in os.walk(folder, onerror=_refuse, followlinks=True):
        here = Path(place)
        real = here.resolve()
        if real in seen:
            # by another link, or by one that leads back
            below.clear()
            continue
        seen.add(real)
        below.sort()
        if "config.yaml" in files and _OTHERS & {*files, *below}:
            yield here


def _refuse(error: OSError) -> None:
    if isinstance(error, FileNotFoundError):
        # runs that go on rename and delete folders, such as those of checkpoints
        return
    raise ConfigError(f"{error.filename}: cannot be looked into: {error.strerror}") from error


def decides_text(config: Config) -> dict[str, Any]:
    """The settings that decide what is scored: runs that differ in one belong to no one table."""
    return _decides_text(asdict(config))


def _decides_text(settings: Mapping[str, Any]) -> dict[str, Any]:
    data, test = settings["data"], settings["evaluate"]
    train_only = ("workers", "prepared", "mix")
    kept = {f"data.{key}": data[key] for key in data if key not in train_only}
    kept |= {f"evaluate.{key}": test[key] for key in test if key != "batch_tokens"}
    return {**{key: settings[key] for key in ("train_length", "eval_lengths")}, **kept}


def _saved_settings(folder: Path) -> dict[str, Any]:
    """The settings of a run as its folder has them, and the defaults of those newer than it.

    They were checked when the run began; to do all of that again takes a second for a dozen runs.

    Raises:
        ConfigError: the file is not the YAML that a run writes.
    """
    path, settings = folder / "config.yaml", asdict(Config())
    for key, value in read(path).plain().items():
        usual = settings.get(key)
        if isinstance(usual, dict) and not isinstance(value, dict):
            raise ConfigError(f"{path}: `{key}` must hold settings; the run folder is damaged")
        settings[key] = {**usual, **value} if isinstance(usual, dict) else value
    return settings


def _check_place(out: Path, runs: Sequence[Path]) -> None:
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file, and a report is a folder. Choose another --out")
    if out.resolve() in [run.resolve() for run in runs]:
        raise ConfigError(f"{out} is a run folder. Choose another --out, or {out / 'report'}")


def report(folders: Sequence[Path], out: Path) -> None:
    """Print a table of these runs and write a page with their curves.

    Runs that are scored on different text, or trained at different lengths, get tables of their
    own: `out`/1, `out`/2 and so on, each said with what sets it apart.

    Raises:
        ConfigError: `out` is a file, or one of the run folders.
        DataError: runs cannot be compared, or a run folder is damaged; after the other tables.
    """
    # imported late: it draws, and what draws takes a second to load
    from pipeline.report.page import build_report

    _check_place(out, folders)
    groups: dict[str, list[Path]] = {}
    kinds: dict[str, dict[str, Any]] = {}
    for folder in folders:
        kind = _decides_text(_saved_settings(folder))
        groups.setdefault(repr(kind), []).append(folder)
        kinds[repr(kind)] = kind
    apart = [
        k for k in decides_text(Config()) if len({repr(kind[k]) for kind in kinds.values()}) > 1
    ]
    # said when all are written: a reader that goes away leaves no page unwritten
    said: list[str] = []
    refused: list[str] = []
    for number, (name, group) in enumerate(groups.items(), start=1):
        try:
            page = build_report(group, out if len(groups) == 1 else out / str(number))
        except DataError as error:
            # one group that cannot be reported must not take the others with it
            refused.append(str(error))
            continue
        if apart:
            said.append(", ".join(f"{key}={kinds[name][key]}" for key in apart))
        said += [(page.parent / "table.txt").read_text(encoding="utf-8"), f"report: {page}"]
    for words in said:
        print(words)
    if refused:
        raise DataError("\n".join(refused))
