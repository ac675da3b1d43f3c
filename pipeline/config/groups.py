"""Groups of settings kept in files of their own: ``position: alibi``, ``model: tiny``.

A group given as a name stands for ``configs/<group>/<name>.yaml``. A mapping with a ``name`` loads
that file first and changes what else it holds: ``model: {name: tiny, layers: 6}``. The files of a
named group say which settings there are; those of the others hold settings that are always there.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.config import secrets
from pipeline.config.schema import NAME, NAMED_GROUPS
from pipeline.config.strict_yaml import Located, read
from pipeline.config.values import Setting, like, settings, show, suggestion
from pipeline.errors import ConfigError

GROUPS = (*NAMED_GROUPS, "model", "data", "cluster")
_CLUSTER_KEYS = ("trainer.", "data.workers")


@dataclass(frozen=True)
class Step:
    """One assignment: a dotted key takes a value. ``position.name`` starts a new position, and so
    with the other named groups."""

    key: str
    value: Located


def configs_folder() -> Path:
    """Return the folder of base.yaml, the groups and everything that can be included by name."""
    return Path(__file__).parents[2] / "configs"


def names(folder: Path, group: str) -> list[str]:
    """Return the names that a group can be given as, sorted."""
    return sorted(path.stem for path in (folder / group).glob("*.yaml"))


def named_group(key: str) -> str:
    """Return the named group that a dotted key is the name or a setting of; "" for other keys."""
    group, dot, _ = key.partition(".")
    return group if dot and group in NAMED_GROUPS else ""


def is_name(key: str) -> bool:
    """Say whether a dotted key is the name of a named group, which starts its settings anew."""
    group = named_group(key)
    return bool(group) and key == f"{group}.name"


def group_file(folder: Path, group: str, name: Located) -> Path:
    """Return the file of a named group.

    Raises ConfigError if the name is not text or there is no such file.
    """
    secrets.refuse(group, name.value, name.where)
    known = names(folder, group)
    text = name.value
    if not isinstance(text, str) or not re.fullmatch(NAME, text) or text not in known:
        hint = suggestion(text, known) if isinstance(text, str) else ""
        raise ConfigError(
            f"{name.where}: `{group}` = {show(name.plain())} is not known.{hint} "
            f"Allowed: {', '.join(known)}."
        )
    return folder / group / f"{text}.yaml"


def expand(folder: Path, group: str, name: Located) -> list[Step]:
    """Return the assignments that a group given as a name stands for."""
    path = group_file(folder, group, name)
    if group in NAMED_GROUPS:
        return [Step(f"{group}.name", name)]
    found = read(path)
    if group == "cluster":
        steps = leaf_steps(found, "", settings())
        wrong = [step for step in steps if not step.key.startswith(_CLUSTER_KEYS)]
        if wrong:
            raise ConfigError(
                f"{wrong[0].value.where}: `{wrong[0].key}` does not belong into a cluster file: it "
                "holds keys of `trainer` and `data.workers` only."
            )
        return steps
    return leaf_steps(found, group + ".", settings())


def own_settings(
    folder: Path, group: str, name: Located
) -> tuple[dict[str, Setting], dict[str, Located]]:
    """Return the settings in a named group and their defaults, as the file of that name lists."""
    found: dict[str, Located] = read(group_file(folder, group, name)).value
    table = {}
    for key, default in found.items():
        if key == "name" or not isinstance(default.plain(), (bool, int, float, str, list)):
            raise ConfigError(
                f"{default.where}: `{key}` = {show(default.plain())} cannot be the default of a "
                f"setting of `{group}`: it must be a number, text, true, false or a list, and not "
                "be called `name`."
            )
        table[key] = like(f"{group}.{key}", default.plain())
    return table, found


def leaf_steps(found: Located, prefix: str, table: dict[str, Any]) -> list[Step]:
    """Flatten a mapping of settings into assignments.

    Raises ConfigError with a suggestion for every key that is not a setting.
    """
    steps: list[Step] = []
    for name, item in found.value.items():
        key = prefix + name
        if key in table:
            steps.append(Step(key, item))
        elif any(known.startswith(key + ".") for known in table) and "." not in name:
            if not isinstance(item.value, dict):
                raise ConfigError(
                    f"{item.where}: `{key}` takes settings, not the value {show(item.plain())}. "
                    f"It takes: {', '.join(_children(key, table))}."
                )
            steps += leaf_steps(item, key + ".", table)
        else:
            raise unknown(key, item.where, table)
    return steps


def unknown(key: str, where: str, table: dict[str, Any]) -> ConfigError:
    """Return the error for a key that is not a setting; it never shows the value."""
    parent, _, leaf = key.rpartition(".")
    siblings = [name for name in table if name.rpartition(".")[0] == parent]
    sections = [name.rpartition(".")[0] for name in table if name.count(".") > 1]
    known = dict.fromkeys([*siblings, *sections, *table])
    if not parent:
        tops = {name.partition(".")[0] for name in table}
        known |= dict.fromkeys([*GROUPS, *sorted(tops), "sweep", "include"])
    elsewhere = [name for name in table if name.rpartition(".")[2] == leaf]
    hint = suggestion(key, known, elsewhere)
    return ConfigError(f"{where}: `{key}` is not a setting.{hint}{secrets.advice(key)}")


def _children(key: str, table: dict[str, Any]) -> list[str]:
    return [name[len(key) + 1 :] for name in table if name.startswith(key + ".")]
