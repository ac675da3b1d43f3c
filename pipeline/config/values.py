"""The table of settings, and the check of one value against what its setting may hold."""

import difflib
import math
import re
import types
import typing
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from pipeline.config import environment, secrets
from pipeline.config.free import may_be_referred
from pipeline.config.schema import Allowed, Config
from pipeline.config.strict_yaml import Located, scalar, word_for
from pipeline.errors import ConfigError

MOST_ITEMS = 1024
# what fp32 holds besides 0: torch takes anything smaller for 0, and anything larger for infinite
_SMALLEST, _LARGEST = 2.0**-126, (2.0 - 2.0**-23) * 2.0**127
_WIDEST = 2**63


@dataclass(frozen=True)
class Setting:
    """One setting: dotted key, type (int, float, bool, str or list) and what it may hold."""

    key: str
    kind: type
    allowed: Allowed
    optional: bool = False
    item: type | None = None


def settings(schema: type = Config, prefix: str = "") -> dict[str, Setting]:
    """Return every setting by dotted key, in the order of the schema.

    The named groups and ``sweep`` hold free keys and are not in the table.
    """
    table: dict[str, Setting] = {}
    hints = typing.get_type_hints(schema)
    for field in fields(schema):
        hint = hints[field.name]
        key = prefix + field.name
        if is_dataclass(hint):
            table |= settings(typing.cast(type, hint), key + ".")
        elif "allowed" in field.metadata:
            table[key] = _setting(key, hint, field.metadata["allowed"])
    return table


def like(key: str, default: Any) -> Setting:
    """Return the setting in a named group that has this default value, and thus its type."""
    item = type(default[0]) if isinstance(default, list) and default else None
    return Setting(key, type(default), Allowed(), item=item)


def convert(setting: Setting, found: Located) -> tuple[Any, str | None]:
    """Return the value for a setting, and its ``${oc.env:...}`` text if it came from there.

    Raises ConfigError, naming place, key, value and what is allowed, if it does not fit exactly;
    the one conversion is from an integer to a number.
    """
    where, value = found.where, found.value
    secrets.refuse(setting.key, value, where)
    template = None
    if isinstance(value, str) and "${" in value:
        template = value
        if not may_be_referred(setting.key):
            raise ConfigError(
                f"{where}: `{setting.key}` = {show(value)} is not allowed: its run folder would "
                "not say what was run. Write the value down; paths, wandb and how the work is "
                "shared may come from the environment."
            )
        value, ambiguous = environment.resolve(setting.key, value, where, setting.kind is str)
        secrets.refuse(setting.key, value, where)
        found = Located(value, where, ambiguous)
    wrong = _ambiguous(setting, found) or problem(setting, found.plain())
    if wrong:
        raise ConfigError(f"{where}: {wrong}")
    return canonical(setting, found.plain()), template


def canonical(setting: Setting, value: Any) -> Any:
    """Return a checked value in the setting's own type."""
    if setting.kind is float and value is not None:
        return float(value)
    if setting.item is float:
        return [float(item) for item in value]
    return value


def problem(setting: Setting, value: Any) -> str | None:
    """Return what is wrong with a value, in words for the user; None if it may be held."""
    if value is None and setting.optional:
        return None
    if setting.kind is list:
        items = value if isinstance(value, list) else [value]
        wrong = not isinstance(value, list) or not (value or setting.allowed.empty)
        wrong = wrong or len(items) > MOST_ITEMS
        wrong = wrong or any(_wrong(_item(setting), item) for item in items)
    else:
        wrong = _wrong(setting, value)
    if not wrong:
        return None
    return f"`{setting.key}` = {show(value)} is not allowed: it takes {expected(setting)}." + _hint(
        setting, value
    )


def expected(setting: Setting) -> str:
    """Return in words what a setting takes."""
    allowed = setting.allowed
    if setting.kind is list:
        empty = ", or [] for none" if allowed.empty else ""
        return f"a list, each item {expected(_item(setting))}, at most {MOST_ITEMS} of them{empty}"
    if allowed.choices:
        words = "one of " + ", ".join(map(str, allowed.choices))
    elif allowed.words:
        words = allowed.words
    else:
        words = {int: "an integer", float: "a finite number", bool: "true or false"}.get(
            setting.kind, "text"
        ) + _range(allowed)
    return words + (", or null" if setting.optional else "")


def show(value: Any) -> str:
    """Return a value as the user would write it, cut to a readable length."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def suggestion(name: str, known: Iterable[str], likely: Sequence[str] = ()) -> str:
    """Return " Did you mean ...?" with ``likely`` and the closest known names, or nothing."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    if not close and not likely:
        leaf = name.rpartition(".")[2]
        ends = {known_name.rpartition(".")[2] for known_name in names}
        leaves = difflib.get_close_matches(leaf, ends, n=3, cutoff=0.6)
        close = [known_name for known_name in names if known_name.rpartition(".")[2] in leaves]
    found = dict.fromkeys([*likely, *close])
    return f" Did you mean {' or '.join(f'`{n}`' for n in found)}?" if found else ""


def _setting(key: str, hint: Any, allowed: Allowed) -> Setting:
    optional = isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
    if optional:
        hint = next(h for h in typing.get_args(hint) if h is not type(None))
    if typing.get_origin(hint) is list:
        return Setting(key, list, allowed, optional, typing.get_args(hint)[0])
    return Setting(key, hint, allowed, optional)


def _item(setting: Setting) -> Setting:
    return Setting(setting.key, setting.item or str, setting.allowed)


def _wrong(setting: Setting, value: Any) -> bool:
    """Say whether a scalar has the wrong type or lies outside what is allowed."""
    allowed = setting.allowed
    if setting.kind is float:
        if type(value) not in (int, float) or (type(value) is float and not math.isfinite(value)):
            return True
    elif type(value) is not setting.kind:
        return True
    if _unheld(setting.kind, value):
        return True
    if allowed.choices:
        return value not in allowed.choices
    if setting.kind is str:
        return bool(allowed.pattern) and not re.fullmatch(allowed.pattern, value)
    return (
        (allowed.low is not None and value < allowed.low)
        or (allowed.high is not None and value > allowed.high)
        or (allowed.above is not None and value <= allowed.above)
        or (allowed.below is not None and value >= allowed.below)
    )


def _unheld(kind: type, value: Any) -> bool:
    """Say whether a number is none that tensors hold: another would be used without a word."""
    if kind is float:
        return value != 0 and not _SMALLEST <= abs(value) <= _LARGEST
    return kind is int and not -_WIDEST <= value < _WIDEST


def _ambiguous(setting: Setting, found: Located) -> str | None:
    """Refuse unquoted text that YAML 1.1 readers take for something else."""
    items = found.value if isinstance(found.value, list) else [found]
    if not any(i.ambiguous and i.value not in setting.allowed.choices for i in items):
        return None
    return (
        f"`{setting.key}` = {show(found.plain())} is ambiguous: without quotes, YAML readers take "
        f"it for different things. `{setting.key}` takes {expected(setting)}. Put quotes around "
        "text; write numbers without leading zeros, and true or false in full."
    )


def _range(allowed: Allowed) -> str:
    """Return the bounds in words; every setting with bounds has a lower and an upper one."""
    if allowed.high is None and allowed.below is None:
        return ""
    low = f"above {allowed.above:.12g}" if allowed.low is None else f"from {allowed.low:.12g}"
    high = f"below {allowed.below:.12g}" if allowed.high is None else f"to {allowed.high:.12g}"
    return f" {low} {high}" if allowed.high is not None else f" {low} and {high}"


def _hint(setting: Setting, value: Any) -> str:
    """Return the fix for the common mistakes of type."""
    if setting.kind in (int, float, bool) and isinstance(value, str):
        quoted = not isinstance(scalar(value)[0], str)
        return " Write it without quotes." if quoted else ""
    if setting.kind is int and isinstance(value, float):
        return " Write it without decimal point and exponent."
    if type(value) in (int, float) and _unheld(setting.kind, value):
        return " It must fit into " + ("64 bits." if setting.kind is int else "fp32.")
    if setting.kind is str and value is not None and not isinstance(value, (str, list, dict)):
        return f" It is read as {word_for(value)}: put quotes around it to make it text."
    return ""
