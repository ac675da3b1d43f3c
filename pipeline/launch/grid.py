"""One trained run under every extension that fits it, at every scale, in one go."""

from collections.abc import Sequence
from pathlib import Path

from pipeline.config.compose import load
from pipeline.config.label import label, shown
from pipeline.errors import ConfigError
from pipeline.launch.checks import say
from pipeline.launch.ranks import check_one_node
from pipeline.launch.retest import Retest, finished_run, prepared_text, read_test, run_tests
from pipeline.positions import registry
from pipeline.report.collect import collect
from pipeline.report.table import text_table

# the suffix loss and its window control alone, unless more is asked for
_SHORT = ("evaluate.protocols=[]", "evaluate.tasks=[]")


def test_grid(path: Path, scales: Sequence[float] | None, overrides: Sequence[str]) -> None:
    """Test a run under every extension that fits its encoding, and print the table of all.

    Extensions with a setting for it are tested at every scale, the others once, with the settings
    of their files. Nothing is trained. What was measured before is kept.

    Args:
        path: the run folder.
        scales: how many times train_length to reach; None = each of eval_lengths beyond it.
        overrides: settings as `evaluate` takes them, but for the extension.

    Raises:
        ConfigError: a setting is refused, or no extension fits.
    """
    folder = finished_run(path)
    if any(one.startswith("extension") for one in overrides):
        raise ConfigError("extension: grid tests all of them; evaluate tests one")
    settings = [*(s for s in _SHORT if not _named(s, overrides)), *overrides]
    base = load(folder.config, settings, trains=False)[0]
    if scales is None:
        own = base.scale_length
        scales = [length / own for length in base.eval_lengths if length > own]
    wrong = [scale for scale in scales if not 1.0 < scale < 2.0**26]
    if wrong or not scales:
        given = f"{shown(wrong[0])} is not one" if wrong else "eval_lengths has none beyond it"
        raise ConfigError(
            f"--scales: how many times train_length to reach, above 1; {given}. Give --scales 2,4,8"
        )
    check_one_node(read_test(folder, settings, "grid").config)
    tests: list[Retest] = []
    for name in registry.extension_names():
        try:
            found = [
                read_test(folder, [*settings, f"extension={name}", *own], "grid")
                for own in _settings_of(name, scales)
            ]
        except ConfigError as error:
            say(f"note: {name} is left out: {error}")
            continue
        # what a continued run was trained under has its rows, of the whole suite
        tests += [test for test in found if test.config.extension != test.saved.extension]
    if not tests:
        raise ConfigError(f"{path}: no extension fits position={base.position['name']}")
    _announce(tests)
    run_tests(tests, prepared_text(tests))
    print(text_table(collect([folder.path])))


def _settings_of(name: str, scales: Sequence[float]) -> list[list[str]]:
    """The settings that an extension is tested with, beside its defaults, each once."""
    kind, found = registry.extension_class(name), list[list[str]]()
    for scale in scales:
        own = [f"extension.{key}={shown(value)}" for key, value in kind.reaching(scale).items()]
        if own not in found:
            found.append(own)
    return found


def _named(setting: str, overrides: Sequence[str]) -> bool:
    key = setting.partition("=")[0]
    return any(one.startswith(f"{key}=") for one in overrides)


def _announce(tests: Sequence[Retest]) -> None:
    labels = [label(test.config.extension) for test in tests]
    say(f"{len(tests)} tests of {tests[0].folder.path}: {', '.join(labels)}")
