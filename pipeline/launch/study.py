"""One study: all runs of a configuration and its sweep, one after another, then the report."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pipeline.checkpoint.space import check_space
from pipeline.config.changes import words
from pipeline.config.dotted import dotted
from pipeline.config.groups import is_name, named_group
from pipeline.config.schema import Config
from pipeline.errors import ConfigError
from pipeline.launch.checks import (
    check_devices,
    check_model,
    check_text,
    data_key,
    describe,
    prepare_all,
    say,
)
from pipeline.launch.continued import check_same_origin, check_tokenizer
from pipeline.launch.ranks import check_one_node, start_ranks
from pipeline.launch.resuming import reopen_if_lost
from pipeline.launch.tables import report
from pipeline.record.folder import RunFolder


def train_study(named: Sequence[tuple[Config, str]]) -> None:
    """Train and test every run, given with the name of its folder, then report.

    A run folder that is finished and holds the same configuration is kept as it is; one that is not
    finished goes on where it was broken off, with the settings asked for now, as far as these may
    differ (`pipeline.config.changes`).

    Raises:
        FarsightError: bad input, before anything is written; or a rank failed.
    """
    check_names(named)
    runs, names = [config for config, _ in named], [name for _, name in named]
    for config, name in zip(runs, names, strict=True):
        check_one_node(config)
        check_devices(config)
        parameters, _ = check_model(config)
        RunFolder.check(config, name=name)
        folder = RunFolder.at(config, name)
        if not folder.finished:
            check_space(folder.path, parameters)
    prepared = prepare_all(runs)
    for config in runs:
        check_tokenizer(config, prepared[data_key(config.data)])
    folders, began, trained = [], time.monotonic(), 0
    for number, (config, name) in enumerate(zip(runs, names, strict=True), start=1):
        folder = RunFolder.create(config, name=name)
        folders.append(folder.path)
        data = prepared[data_key(config.data)]
        check_same_origin(config, folder)
        if folder.finished or folder.trained.is_file():
            check_text(folder, data)
            reopen_if_lost(folder)
        if folder.finished:
            say(f"run {number} of {len(runs)}: {folder.path} is finished; kept as it is")
            if folder.changed(config):
                say(f"note: {words(folder.changed(config))}; its numbers do not depend on these")
            continue
        left = ""
        if trained:
            minutes = (time.monotonic() - began) / trained * (len(runs) - number + 1) / 60.0
            left = f" (about {minutes:.1f} minutes left)"
        say(f"run {number} of {len(runs)}: {describe(config)}{left}")
        if folder.trained.is_file():
            say(f"{folder.path} is trained, and goes on with its evaluation")
        other = [f"{c.key}={json.dumps(c.here)}" for c in folder.changed(config)]
        arguments = ["train", str(folder.path), str(data.folder), json.dumps(other)]
        try:
            start_ranks(config, "pipeline.launch.rank", arguments)
        finally:
            folder.release()
        trained += 1
    # one run's page must not replace that of its whole study
    where = folders[0] if len(runs) == 1 else folders[0].parent
    report(folders, where / "report")


def check_names(named: Sequence[tuple[Config, str]]) -> None:
    """Raises ConfigError if two runs would share a folder."""
    if len({name for _, name in named}) < len(named):
        raise ConfigError("sweep: two of its runs would share a run folder; drop repeated values")


def varied_keys(runs: Sequence[Config]) -> list[str]:
    """The dotted keys in which the runs of a study differ.

    `position` stands for its name; a setting of an encoding, such as `position.base`, is listed
    only where it differs between runs of that same encoding. So with the other named groups.
    """
    flat = [dotted(asdict(config)) for config in runs]
    varied = []
    for key in dict.fromkeys(key for one in flat for key in one):
        name = "" if is_name(key) else f"{named_group(key)}.name"
        values: dict[Any, list[Any]] = {}
        for one in flat:
            values.setdefault(one.get(name), []).append(one.get(key))
        if any(value != same[0] for same in values.values() for value in same):
            varied.append(named_group(key) if is_name(key) else key)
    return varied
