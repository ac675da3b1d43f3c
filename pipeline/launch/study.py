"""One study: all runs of a configuration and its sweep, one after another, then the report."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline.checkpoint.export import latest_export
from pipeline.config.compose import load
from pipeline.config.dotted import dotted
from pipeline.config.groups import is_name, named_group
from pipeline.config.label import label
from pipeline.config.schema import Config
from pipeline.errors import ConfigError
from pipeline.launch.checks import (
    check_devices,
    check_model,
    check_rows,
    check_text,
    data_key,
    describe,
    prepare_all,
    say,
)
from pipeline.launch.ranks import check_one_node, start_ranks
from pipeline.launch.tables import report
from pipeline.model.plan import as_tested
from pipeline.record.folder import RunFolder, run_name
from pipeline.report.collect import collect
from pipeline.report.table import text_table

# what a test may change: none of it alters the weights
RETESTABLE = (
    "extension",
    "eval_lengths",
    "evaluate.",
    "trainer.processes",
    "trainer.nodes",
    "trainer.sequence_parallel",
    "trainer.ring",
    "trainer.accelerator",
    "trainer.threads",
)


def train_study(runs: Sequence[Config], axes: Sequence[str]) -> None:
    """Train and test every run, then report.

    A run folder that is finished and holds the same configuration is kept as it is.

    Raises:
        FarsightError: bad input, before anything is written; or a rank failed.
    """
    names = [run_name(config, axes) for config in runs]
    if len(set(names)) < len(names):
        raise ConfigError("sweep: two of its runs would share a run folder; drop repeated values")
    for config, name in zip(runs, names, strict=True):
        check_one_node(config)
        check_devices(config)
        check_model(config)
        RunFolder.check(config, name=name)
    prepared = prepare_all(runs)
    folders, began, trained = [], time.monotonic(), 0
    for number, (config, name) in enumerate(zip(runs, names, strict=True), start=1):
        folder = RunFolder.create(config, name=name)
        folders.append(folder.path)
        data = prepared[data_key(config.data)]
        if folder.finished:
            check_text(folder, data)
            say(f"run {number} of {len(runs)}: {folder.path} is finished; kept as it is")
            continue
        left = ""
        if trained:
            minutes = (time.monotonic() - began) / trained * (len(runs) - number + 1) / 60.0
            left = f" (about {minutes:.1f} minutes left)"
        say(f"run {number} of {len(runs)}: {describe(config)}{left}")
        try:
            start_ranks(
                config, "pipeline.launch.rank", ["train", str(folder.path), str(data.folder)]
            )
        finally:
            folder.release()
        trained += 1
    # one run's page must not replace that of its whole study
    where = folders[0] if len(runs) == 1 else folders[0].parent
    report(folders, where / "report")


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


def evaluate_run(path: Path, overrides: Sequence[str]) -> None:
    """Test the newest checkpoint of a run folder again, or under an extension, and print its table.

    Rows of an extension lie beside those of the run and replace those of the same extension with
    the same settings only.

    Raises:
        ConfigError: an override would change how the run was trained, the extension does not fit,
            or the rows could not stand in one table with the others of this run.
    """
    folder = RunFolder.open(path)
    if not folder.finished:
        raise ConfigError(f"{path} holds a run that was not finished: there is nothing to test")
    saved, points = load(folder.config, [])[0], load(folder.config, overrides, trains=False)
    if len(points) > 1:
        raise ConfigError("sweep: evaluate tests one set of settings at a time; name one")
    config = points[0]
    changed = varied_keys([saved, config])
    trained = [key for key in changed if not key.startswith(RETESTABLE)]
    if trained:
        raise ConfigError(
            f"{', '.join(trained)}: belongs to how {path} was trained and cannot be changed by "
            f"evaluate, which takes: {', '.join(RETESTABLE)}"
        )
    check_one_node(config)
    check_devices(config)
    check_model(as_tested(config))
    latest_export(folder.path / "checkpoints")
    prepared = prepare_all([config])[data_key(config.data)]
    check_text(folder, prepared)
    check_rows(folder, config, prepared)
    if config.extension != saved.extension:
        say(
            f"note: {config.position['name']} under the extension {label(config.extension)}, whose "
            f"rows go to {folder.evaluation_of(config.extension)}; those of {path} itself stay"
        )
    elif changed:
        say(
            f"note: tested with other settings ({', '.join(changed)}), whose rows replace those of "
            f"{path}; evaluate it without settings to have them back"
        )
    start_ranks(
        config,
        "pipeline.launch.rank",
        ["evaluate", str(folder.path), str(prepared.folder), *overrides],
    )
    print(text_table(collect([folder.path])))
