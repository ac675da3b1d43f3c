"""From a file and overrides to validated configurations, one for each run of the sweep."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from pipeline.config.groups import GROUPS, Step, configs_folder, expand, position_settings
from pipeline.config.layers import Axis, Cleared, Entry, file_entries, override_entries
from pipeline.config.layers import mapping_entries
from pipeline.config.redact import canonical_yaml
from pipeline.config.schema import Config
from pipeline.config.strict_yaml import Located
from pipeline.config.validate import validate
from pipeline.config.values import Setting, convert, settings, show, suggestion
from pipeline.errors import ConfigError


def load(path: Path, overrides: Sequence[str], *, folder: Path | None = None) -> list[Config]:
    """Return the validated configuration of every run that a file and overrides ask for.

    Later ones win: ``base.yaml``, the includes of the file, the file, the overrides in their order.
    A sweep gives one Config for each point of the product of its axes, the last axis varying
    fastest; setting a swept key later (``seed=3``) takes its axis away. ``folder`` stands in for
    the ``configs/`` of this repository.

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
    points = list(itertools.product(*(axis.values for axis in axes)))
    runs = []
    for point in points:
        chosen = {id(axis): value for axis, value in zip(axes, point, strict=True)}
        config = _build(entries, chosen, folder)
        try:
            validate(config)
        except ConfigError as error:
            place = ", ".join(
                f"{axis.key}={show(value.plain())}"
                for axis, value in zip(axes, point, strict=True)
            )
            raise ConfigError(f"{path}{f' (run {place})' if place else ''}: {error}") from error
        runs.append(config)
    _refuse_equal_runs(runs, axes, points)
    return runs


def _live_axes(entries: Sequence[Entry]) -> list[Axis]:
    """Return the axes that nothing after them sets, in the order they were first listed."""
    axes: dict[str, Axis] = {}
    for entry in entries:
        if isinstance(entry, Cleared):
            axes.clear()
        elif isinstance(entry, Axis):
            axes[entry.key] = entry
        else:
            axes.pop("position" if entry.key == "position.name" else entry.key, None)
    return list(axes.values())


def _build(entries: Sequence[Entry], chosen: Mapping[int, Located], folder: Path) -> Config:
    """Apply all assignments in order, each axis with its chosen value."""
    draft = _Draft(folder)
    for entry in entries:
        if isinstance(entry, Step):
            draft.apply(entry)
        elif isinstance(entry, Axis) and id(entry) in chosen:
            for step in _axis_steps(entry, chosen[id(entry)], folder):
                draft.apply(step)
    return draft.config()
