"""Tests of a trained run: once more, under an extension, or under every extension that fits it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.checkpoint.export import latest_export, load_manifest
from pipeline.config.compose import load
from pipeline.config.label import label
from pipeline.config.schema import Config
from pipeline.config.unused import check_tests_used
from pipeline.data.prepare import Prepared
from pipeline.errors import ConfigError, DataError
from pipeline.launch.checks import (
    check_devices,
    check_model,
    check_text,
    data_key,
    prepare_all,
    say,
)
from pipeline.launch.evaluation import row_facts, suite_of
from pipeline.launch.ranks import check_one_node, start_ranks
from pipeline.launch.study import varied_keys
from pipeline.model.plan import as_tested
from pipeline.positions.registry import NO_EXTENSION
from pipeline.record.folder import RunFolder
from pipeline.report.collect import collect
from pipeline.report.comparable import check_comparable
from pipeline.report.reading import extended_rows, read_extended, read_run
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


@dataclass(frozen=True)
class Retest:
    """What `overrides` ask of a trained run, checked. `changed`: keys that differ from its own."""

    folder: RunFolder
    saved: Config
    config: Config
    overrides: list[str]
    changed: list[str]


def finished_run(path: Path) -> RunFolder:
    """The folder of a finished run.

    Raises:
        ConfigError: it is none.
    """
    folder = RunFolder.open(path)
    if not folder.finished:
        raise ConfigError(
            f"{path} holds a run that was not finished: there is nothing to test. Give the command "
            "that trains it"
        )
    return folder


def read_test(folder: RunFolder, overrides: Sequence[str], command: str) -> Retest:
    """Check the settings of one test.

    Raises:
        ConfigError: an override would change how the run was trained, or the extension does not
            fit.
    """
    saved, points = load(folder.config, [])[0], load(folder.config, overrides, trains=False)
    if len(points) > 1:
        raise ConfigError(f"sweep: {command} tests one set of settings at a time; name one")
    config = points[0]
    changed = varied_keys([saved, config])
    trained = [key for key in changed if not key.startswith(RETESTABLE)]
    if trained:
        raise ConfigError(
            f"{', '.join(trained)}: belongs to how {folder.path} was trained and cannot be changed "
            f"by {command}, which takes: {', '.join(RETESTABLE)}"
        )
    check_tests_used(config, changed)
    check_devices(config)
    check_model(as_tested(config))
    latest_export(folder.path / "checkpoints")
    return Retest(folder, saved, config, list(overrides), changed)


def prepared_text(tests: Sequence[Retest]) -> Prepared:
    """The text that tests of one run are made on.

    Raises:
        DataError: it is not what the run was trained on.
        ConfigError: rows could not stand in one table with the others of this run.
    """
    prepared = prepare_all([test.config for test in tests])[data_key(tests[0].config.data)]
    check_text(tests[0].folder, prepared)
    check_rows(tests, prepared)
    return prepared


def check_rows(tests: Sequence[Retest], prepared: Prepared) -> None:
    """Refuse to measure what could not stand in one table with the other rows of a finished run.

    The tests are of one run and differ in the extension alone.

    Raises:
        ConfigError: the run holds rows, its own or of an extension, of other text or targets.
    """
    folder, config, saved = tests[0].folder, tests[0].config, tests[0].saved
    extended = config.extension != saved.extension
    if not extended and not extended_rows(folder.path):
        return
    run, tested = read_run(folder.path), {label(test.config.extension) for test in tests}
    others = [run] if extended else []
    others += [one for one in read_extended(run) if one.extension not in tested]
    manifest = load_manifest(latest_export(folder.path / "checkpoints"))
    facts = row_facts(manifest, prepared)
    # the export is tested in the precision that it is kept in
    rows = [{**step.unmeasured(config, "fp32"), **facts} for step in suite_of(config, prepared)]
    named = label(config.extension) if extended else ""
    try:
        check_comparable([*others, replace(run, rows=rows, extension=named)])
    except DataError as error:
        fix = f"evaluate {folder.path} with these settings first, without the extension"
        if not extended:
            fix = f"delete these extensions' folders below {folder.evaluation.parent} first"
        raise ConfigError(
            f"the rows of one run must be comparable, and {error}. Or {fix}"
        ) from error


def run_tests(tests: Sequence[Retest], prepared: Prepared) -> None:
    """Start the ranks that make these tests of one run one after another."""
    folder = tests[0].folder
    folder.take()
    try:
        start_ranks(
            tests[0].config,
            "pipeline.launch.rank",
            [
                "evaluate",
                str(folder.path),
                str(prepared.folder),
                *(json.dumps(test.overrides) for test in tests),
            ],
        )
    finally:
        folder.release()


def evaluate_run(path: Path, overrides: Sequence[str]) -> None:
    """Test the newest checkpoint of a run folder again, or under an extension, and print its table.

    Rows of an extension lie beside those of the run and replace those of the same extension with
    the same settings only. What is measured already, under the very same conditions, is kept.

    Raises:
        ConfigError: an override would change how the run was trained, the extension does not fit,
            or the rows could not stand in one table with the others of this run.
    """
    folder = finished_run(path)
    test = read_test(folder, overrides, "evaluate")
    check_one_node(test.config)
    prepared = prepared_text([test])
    config, saved = test.config, test.saved
    if config.extension != saved.extension:
        instead = ""
        if saved.extension["name"] != NO_EXTENSION:
            instead = f" in place of {label(saved.extension)}, which it was trained under"
        say(
            f"note: {config.position['name']} under the extension {label(config.extension)}"
            f"{instead}; its rows go to {folder.evaluation_of(config.extension)}, those of {path} "
            "itself stay"
        )
    elif test.changed:
        say(
            f"note: tested with other settings ({', '.join(test.changed)}), whose rows replace "
            f"those of {path}; evaluate it without settings to have them back"
        )
    run_tests([test], prepared)
    print(text_table(collect([folder.path])))
    if config.evaluate.tasks:
        say(f"tasks: rows in {folder.evaluation_of(config.extension)}; `report` shows them")
