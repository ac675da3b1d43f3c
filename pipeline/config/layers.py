"""From files and overrides to one flat list of assignments, later ones winning.

Inside one file named groups come first, then sweep axes over groups, then settings, then the other
axes: ``model: tiny`` is the start and ``trainer: {...}`` the change, in whatever order they stand.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.config import secrets
from pipeline.config.groups import (
    GROUPS,
    Step,
    expand,
    is_name,
    leaf_steps,
    named_group,
    unknown,
)
from pipeline.config.schema import NAMED_GROUPS
from pipeline.config.strict_yaml import Located, read, read_value
from pipeline.config.values import settings, show, suggestion
from pipeline.errors import ConfigError

_TYPED = "command line"
_INCLUDE = re.compile(r"[a-z0-9][a-z0-9_.-]*(/[a-z0-9][a-z0-9_.-]*)*")


@dataclass(frozen=True)
class Axis:
    """A sweep axis: the key takes each of the values in turn, by the assignments beside it."""

    key: str
    values: tuple[Located, ...]
    steps: tuple[tuple[Step, ...], ...]
    where: str

    def sets(self, key: str) -> bool:
        """Say whether one of the values assigns this key."""
        assigned = {step.key for steps in self.steps for step in steps}
        return key in assigned or f"{named_group(key)}.name" in assigned


@dataclass(frozen=True)
class Settled:
    """Axes before this, over this key, no longer count; ``sweep`` stands for all of them.

    ``listed`` are the keys of a new ``sweep``, in the order of its product.
    """

    key: str
    listed: tuple[str, ...] = ()


Entry = Step | Axis | Settled


def file_entries(path: Path, folder: Path, chain: tuple[Path, ...] = ()) -> list[Entry]:
    """Return the assignments of a file, those of its includes first.

    Raises ConfigError if the file or an include is missing, empty, malformed or part of a loop.
    """
    chain = (*chain, path.resolve())
    root = read(path)
    _refuse_secrets(root, path.name)
    if not root.value:
        raise ConfigError(f"{root.where}: the file holds no settings. Write at least one.")
    entries: list[Entry] = []
    include = root.value.get("include", Located([], root.where))
    for included, where in _included(include, folder):
        real = included.resolve()
        if real in chain:
            loop = " -> ".join(item.name for item in (*chain[chain.index(real) :], real))
            raise ConfigError(f"{where}: the includes form a loop: {loop}. Remove one of them.")
        entries += file_entries(included, folder, chain)
    rest = {key: item for key, item in root.value.items() if key != "include"}
    return entries + mapping_entries(Located(rest, root.where), folder)


def override_entries(overrides: Sequence[str], folder: Path) -> list[Entry]:
    """Return the assignments of ``key=value`` overrides, in their order.

    Raises ConfigError if one is malformed, names no setting, holds a secret, or is undone by a
    named group after it; or an axis, by any setting after it.
    """
    entries: list[Entry] = []
    explicit: dict[str, str] = {}
    swept: dict[str, str] = {}
    for override in overrides:
        key, equals, text = override.partition("=")
        key = key.strip()
        if not equals or not key:
            secrets.refuse("override", override, _TYPED)
            raise ConfigError(
                f"{_TYPED}: {show(override)} is not an override. Write key=value, for example "
                "trainer.max_steps=100."
            )
        secrets.refuse("a key", key, _TYPED)
        secrets.refuse(key, text, _TYPED)
        found = _override(key, text, folder)
        steps = [entry for entry in found if isinstance(entry, Step)]
        _refuse_undone(override, steps, swept)
        swept |= {entry.key: override for entry in found if isinstance(entry, Axis)}
        axes = [entry for entry in found if isinstance(entry, Axis) and entry.key in GROUPS]
        steps += [step for axis in axes for value in axis.steps for step in value]
        if key in GROUPS or is_name(key) or axes:
            _refuse_undone(override, steps, explicit)
        else:
            explicit |= {step.key: override for step in steps}
        entries += found
    return entries


def mapping_entries(root: Located, folder: Path) -> list[Entry]:
    """Return the assignments of one file's mapping, without its includes."""
    table = settings()
    named: list[Entry] = []
    plain: list[Entry] = []
    axes: list[Axis] = []
    for key, item in root.value.items():
        if key in GROUPS:
            first, second = _group(key, item, folder)
            named += [*_settled(key, item), *first]
            plain += second
        elif key == "sweep":
            axes = _axes(item, folder)
        else:
            plain += leaf_steps(Located({key: item}, item.where), "", table)
    _refuse_set_and_swept(axes, root, plain)
    listed = tuple(axis.key for axis in axes)
    cleared: list[Entry] = [Settled("sweep", listed)] if "sweep" in root.value else []
    over_groups = [axis for axis in axes if axis.key in GROUPS]
    others = [axis for axis in axes if axis.key not in GROUPS]
    return [*cleared, *named, *over_groups, *plain, *others]


def _refuse_secrets(found: Located, key: str) -> None:
    """Refuse a secret anywhere in a file, before an error about something else could show it."""
    if isinstance(found.value, dict):
        for name, item in found.value.items():
            secrets.refuse("a key", name, item.where)
            _refuse_secrets(item, name)
    elif isinstance(found.value, list):
        for item in found.value:
            _refuse_secrets(item, key)
    else:
        secrets.refuse(key, found.value, found.where)


def _included(include: Located, folder: Path) -> list[tuple[Path, str]]:
    """Return the files of an ``include`` list, each with the place that names it."""
    known = sorted(
        str(path.relative_to(folder).with_suffix(""))
        for path in folder.glob("**/*.yaml")
        if path.parent.name not in GROUPS
    )
    if not isinstance(include.value, list):
        raise ConfigError(
            f"{include.where}: `include` = {show(include.plain())} must be a list of names: "
            "include: [demo]."
        )
    paths = []
    for item in include.value:
        name = item.value
        if not isinstance(name, str) or not _INCLUDE.fullmatch(name) or name not in known:
            hint = suggestion(name, known) if isinstance(name, str) else ""
            raise ConfigError(
                f"{item.where}: `include` = {show(item.plain())} is not a file in {folder.name}/ "
                f"(names only: no `..`, no leading `/`, no `.yaml`).{hint} "
                f"Allowed: {', '.join(known)}."
            )
        paths.append((folder / f"{name}.yaml", item.where))
    return paths


def _group(key: str, item: Located, folder: Path) -> tuple[list[Step], list[Step]]:
    """Return the assignments of a named group, and those of the settings beside its name."""
    if not isinstance(item.value, dict):
        return expand(folder, key, item), []
    if key == "cluster":
        raise ConfigError(
            f"{item.where}: `cluster` takes a name. Settings of a cluster belong under `trainer`."
        )
    rest = {name: value for name, value in item.value.items() if name != "name"}
    named = expand(folder, key, item.value["name"]) if "name" in item.value else []
    if key in NAMED_GROUPS:
        return named, [Step(f"{key}.{name}", value) for name, value in rest.items()]
    return named, leaf_steps(Located(rest, item.where), key + ".", settings())


def _settled(group: str, item: Located) -> list[Entry]:
    """Return the end of earlier axes over a group, if the group is given as a name."""
    named = not isinstance(item.value, dict) or "name" in item.value
    return [Settled(group)] if named else []


def _axes(item: Located, folder: Path) -> list[Axis]:
    """Return the axes of a ``sweep`` mapping."""
    if not isinstance(item.value, dict):
        raise ConfigError(
            f"{item.where}: `sweep` = {show(item.plain())} must be a mapping of settings to lists: "
            "sweep: {position: [rope, alibi], optimizer.learning_rate: [1e-3, 3e-4]}."
        )
    return [_axis(key, values, folder) for key, values in item.value.items()]


def _axis(key: str, values: Located, folder: Path) -> Axis:
    """Check the key and the list of one axis."""
    table = settings()
    key = named_group(key) if is_name(key) else key
    if key not in table and key not in GROUPS and not named_group(key):
        raise unknown(key, values.where, table)
    if not isinstance(values.value, list) or not values.value:
        nested = isinstance(values.value, dict)
        fix = "Write nested settings with dots: optimizer.learning_rate." if nested else ""
        raise ConfigError(
            f"{values.where}: `sweep.{key}` = {show(values.plain())} must be a list of one or more "
            f"values. {fix}".rstrip()
        )
    plain = values.plain()
    for index, value in enumerate(plain):
        if value in plain[:index]:
            raise ConfigError(f"{values.where}: `sweep.{key}` lists {show(value)} twice. Keep one.")
    steps = tuple(tuple(_assign(key, value, folder)) for value in values.value)
    return Axis(key, tuple(values.value), steps, values.where)


def _assign(key: str, value: Located, folder: Path) -> list[Step]:
    """Return the assignments that give a group or a setting one value."""
    if key in GROUPS:
        named, plain = _group(key, value, folder)
        return [*named, *plain]
    return [Step(key, value)]


def _override(key: str, text: str, folder: Path) -> list[Entry]:
    """Return the assignments of one override."""
    table = settings()
    value = read_value(text, key, _TYPED)
    if key == "sweep":
        return [Settled("sweep"), *_axes(value, folder)]
    if key.startswith("sweep."):
        return [_axis(key.removeprefix("sweep."), value, folder)]
    if key in GROUPS:
        return [*_settled(key, value), *_assign(key, value, folder)]
    if is_name(key):
        return [Settled(named_group(key)), *expand(folder, named_group(key), value)]
    if key in table or named_group(key):
        return [Step(key, value)]
    if key == "include":
        raise ConfigError(
            f"{_TYPED}: `include` belongs into a file. Give the file itself as the configuration."
        )
    return list(leaf_steps(Located({key: value}, _TYPED), "", table))


def _refuse_undone(override: str, steps: Sequence[Step], explicit: dict[str, str]) -> None:
    """Refuse an override that what comes after it replaces: it would have no effect."""
    assigned = {step.key for step in steps}
    for key, text in explicit.items():
        if {key, f"{key}.name", f"{named_group(key)}.name"} & assigned:
            raise ConfigError(
                f"{_TYPED}: `{text}` has no effect, because `{override}` after it replaces it. "
                f"Write `{text}` after `{override}`, or leave it out."
            )


def _refuse_set_and_swept(axes: list[Axis], root: Located, plain: Sequence[Entry]) -> None:
    """Refuse a key that one file both sets and sweeps: the first would have no effect."""
    given = {entry.key for entry in plain if isinstance(entry, Step)}
    given |= {key for key in GROUPS if key in root.value and _settled(key, root.value[key])}
    for axis in axes:
        if axis.key in given:
            raise ConfigError(
                f"{axis.where}: `{axis.key}` is set and swept in the same file, so that setting it "
                "has no effect. Remove one of the two."
            )
