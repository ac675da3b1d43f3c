"""Tables and pages from run folders; imports no torch."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline.config.compose import load
from pipeline.config.schema import Config
from pipeline.errors import ConfigError
from pipeline.report.collect import collect
from pipeline.report.page import build_report
from pipeline.report.table import text_table


def find_runs(folders: Sequence[Path]) -> list[Path]:
    """The run folders among `folders` and below them, in order of path.

    Raises:
        ConfigError: one of `folders` holds none.
    """
    found: list[Path] = []
    for folder in folders:
        # W&B keeps a config.yaml of its own inside a run folder, but no environment.json beside it
        candidates = (path.parent for path in folder.glob("**/config.yaml"))
        runs = sorted(run for run in candidates if (run / "environment.json").is_file())
        if not runs:
            raise ConfigError(f"{folder}: no run folder (one with a config.yaml) here or below")
        found += runs
    return list(dict.fromkeys(found))


def decides_text(config: Config) -> dict[str, Any]:
    """The settings that decide what is scored: runs that differ in one belong to no one table."""
    data, test = asdict(config.data), asdict(config.evaluate)
    train_only = ("workers", "prepared", "mix")
    kept = {f"data.{key}": data[key] for key in data if key not in train_only}
    kept |= {f"evaluate.{key}": test[key] for key in test if key != "batch_tokens"}
    return {"train_length": config.train_length, "eval_lengths": config.eval_lengths, **kept}


def report(folders: Sequence[Path], out: Path) -> None:
    """Print a table of these runs and write a page with their curves.

    Runs that are scored on different text, or trained at different lengths, get tables of their
    own: `out`/1, `out`/2 and so on, each said with what sets it apart.
    """
    groups: dict[str, list[Path]] = {}
    kinds: dict[str, dict[str, Any]] = {}
    for folder in folders:
        kind = decides_text(load(folder / "config.yaml", [])[0])
        groups.setdefault(repr(kind), []).append(folder)
        kinds[repr(kind)] = kind
    apart = [
        k for k in decides_text(Config()) if len({repr(kind[k]) for kind in kinds.values()}) > 1
    ]
    for number, (name, group) in enumerate(groups.items(), start=1):
        page = build_report(group, out if len(groups) == 1 else out / str(number))
        if apart:
            print(", ".join(f"{key}={kinds[name][key]}" for key in apart))
        print(text_table(collect(group)))
        print(f"report: {page}")
