"""From a file and overrides to validated configurations, one for each run of the sweep."""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from pipeline.config.groups import Step, configs_folder, is_name, named_group, own_settings
from pipeline.config.layers import Axis, Entry, Settled, file_entries, override_entries
from pipeline.config.redact import canonical_yaml
from pipeline.config.schema import Config
from pipeline.config.validate import validate
from pipeline.config.values import Setting, convert, settings, show, suggestion
from pipeline.errors import ConfigError

Point = dict[str, int]
MOST_RUNS = 4096


def load(
    path: Path, overrides: Sequence[str], *, folder: Path | None = None, trains: bool = True
) -> list[Config]:
    """Return the validated configuration of every run that a file and overrides ask for.

    Later ones win: ``base.yaml``, the includes of the file, the file, the overrides in their order.
    A sweep gives one Config for each point of the product of its axes, the last axis varying
    fastest; setting a swept key later (``seed=3``) takes its axis away. ``folder`` stands in for
    the ``configs/`` of this repository. Without ``trains`` the settings need not fit training, as
    those of a test of a trained run.

    Raises ConfigError, naming place, key, value, what is allowed and the fix, before anything is
    written.
    """
    folder = folder or configs_folder()
    entries = [
        *file_entries(folder / "base.yaml", folder),
        *file_entries(Path(path), folder),
        *override_entries(overrides, folder),
    ]
    axes = _live_axes(entries)
    _refuse_endless(path, axes)
    counts = [range(len(axis.values)) for axis in axes]
    points = [
        dict(zip((axis.key for axis in axes), indices, strict=True))
        for indices in itertools.product(*counts)
    ]
    runs = []
    for point in points:
        config = _build(entries, axes, point, folder)
        try:
            validate(config, trains)
        except ConfigError as error:
            place = f" (run {_words(axes, point)})" if axes else ""
            raise ConfigError(f"{path}{place}: {error}") from error
        runs.append(config)
    _refuse_equal_runs(path, runs, axes, points)
    return runs


def _refuse_endless(path: Path, axes: Sequence[Axis]) -> None:
    """Refuse a sweep of more runs than anybody means: one setting too many multiplies them."""
    runs = math.prod(len(axis.values) for axis in axes)
    if runs > MOST_RUNS:
        sizes = " x ".join(f"{len(axis.values)} {axis.key}" for axis in axes)
        raise ConfigError(
            f"{path}: the sweep has {runs} runs ({sizes}), and at most {MOST_RUNS} are allowed. "
            "Sweep fewer settings at once, or split it into several files."
        )


def _live_axes(entries: Sequence[Entry]) -> list[Axis]:
    """Return the axes that nothing after them sets, in the order they were first listed."""
    axes: dict[str, Axis] = {}
    order: list[str] = []
    for entry in entries:
        if isinstance(entry, Settled):
            if entry.key == "sweep":
                axes, order = {}, list(entry.listed)
            axes.pop(entry.key, None)
        elif isinstance(entry, Axis):
            _refuse_undone_axis(entry, axes)
            axes[entry.key] = entry
            order += [] if entry.key in order else [entry.key]
        elif is_name(entry.key):
            group = named_group(entry.key)
            axes = {key: axis for key, axis in axes.items() if key.partition(".")[0] != group}
        else:
            axes.pop(entry.key, None)
    return [axes[key] for key in order if key in axes]


def _refuse_undone_axis(later: Axis, axes: dict[str, Axis]) -> None:
    """Refuse a group axis that replaces what an axis before it sets."""
    for key, axis in axes.items():
        if key != later.key and later.sets(key):
            raise ConfigError(
                f"{axis.where}: the sweep axis `{key}` has no effect, because the axis "
                f"`{later.key}` ({later.where}) after it replaces it. Remove one of the two."
            )


def _build(entries: Sequence[Entry], axes: list[Axis], point: Point, folder: Path) -> Config:
    """Apply all assignments in order, each live axis with its chosen value."""
    draft = _Draft(folder)
    for entry in entries:
        if isinstance(entry, Step):
            draft.apply(entry)
        elif isinstance(entry, Axis) and any(entry is axis for axis in axes):
            for step in entry.steps[point[entry.key]]:
                draft.apply(step)
    return draft.config()


class _Draft:
    """The settings of one run while assignments are applied to them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.table = settings()
        self.values: dict[str, Any] = {}
        self.templates: dict[str, str] = {}
        self.named: dict[str, dict[str, Any]] = {}
        self.tables: dict[str, dict[str, Setting]] = {}

    def apply(self, step: Step) -> None:
        """Make one assignment; raises ConfigError if the value does not fit."""
        if is_name(step.key):
            self._start(named_group(step.key), step)
        elif named_group(step.key):
            self._set(named_group(step.key), step)
        else:
            self.values[step.key] = self._convert(self.table[step.key], step)

    def config(self) -> Config:
        """Return what has been assigned as a Config; the schema's types are enforced once more."""
        nested: dict[str, Any] = {}
        for key, value in self.values.items():
            *parents, leaf = key.split(".")
            target = nested
            for parent in parents:
                target = target.setdefault(parent, {})
            target[leaf] = value
        draft = OmegaConf.merge(OmegaConf.structured(Config), nested)
        for group, values in self.named.items():
            setattr(draft, group, values)
        config = OmegaConf.to_object(draft)
        assert isinstance(config, Config)
        config.unresolved = dict(self.templates)
        return config

    def _start(self, group: str, step: Step) -> None:
        self.tables[group], defaults = own_settings(self.folder, group, step.value)
        self.templates = {k: v for k, v in self.templates.items() if named_group(k) != group}
        self.named[group] = {"name": step.value.value}
        for name, default in defaults.items():
            self._set(group, Step(f"{group}.{name}", default))

    def _set(self, group: str, step: Step) -> None:
        name, table = step.key.removeprefix(f"{group}."), self.tables[group]
        if name not in table:
            takes = ", ".join(f"`{known}`" for known in table) or "no settings"
            raise ConfigError(
                f"{step.value.where}: `{name}` is not used by {group} "
                f"'{self.named[group]['name']}'; it takes: {takes}.{suggestion(name, table)}"
            )
        self.named[group][name] = self._convert(table[name], step)

    def _convert(self, setting: Setting, step: Step) -> Any:
        value, template = convert(setting, step.value)
        self.templates.pop(step.key, None)
        if template is not None:
            self.templates[step.key] = template
        return value


def _words(axes: Sequence[Axis], point: Point) -> str:
    """Name a point of the sweep as the user would."""
    return ", ".join(f"{a.key}={show(a.values[point[a.key]].plain())}" for a in axes)


def _refuse_equal_runs(
    path: Path, runs: Sequence[Config], axes: Sequence[Axis], points: Sequence[Point]
) -> None:
    """Refuse a sweep two points of which are the same run: an axis has no effect."""
    seen: dict[str, Point] = {}
    for config, point in zip(runs, points, strict=True):
        first = seen.setdefault(canonical_yaml(config), point)
        if first is not point:
            raise ConfigError(
                f"{path}: the sweep has the same run twice ({_words(axes, first)} and "
                f"{_words(axes, point)}): a later setting undoes an axis. Remove one of the two."
            )
