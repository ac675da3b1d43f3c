"""Settings in words: one value as tables show it, and an extension as rows and folders name it."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

_FILE_NAME = re.compile(r"[A-Za-z0-9_.=-]{1,100}")


def shown(value: Any) -> str:
    """A value of a setting on one line: ``4``, ``0.5``, ``true``, ``null``, ``[1,2]``, text."""
    if isinstance(value, list):
        return f"[{','.join(map(shown, value))}]"
    if isinstance(value, str) and re.fullmatch(r'[^\s="]+', value):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return json.dumps(value, default=str)


def own_settings(group: Mapping[str, Any]) -> str:
    """All settings of what a named group names, on one line: ``scale=4 share=0.5``."""
    return " ".join(f"{key}={shown(value)}" for key, value in group.items() if key != "name")


def label(group: Mapping[str, Any]) -> str:
    """The name and all settings of what a named group names: ``yarn scale=4``.

    Different settings have different labels, so that their numbers are never taken for one.
    """
    return f"{group['name']} {own_settings(group)}".rstrip()


def file_name(label: str) -> str:
    """A label as the name of a file, ``yarn-scale=4``; different labels have different ones."""
    name = label.replace(" ", "-")
    if _FILE_NAME.fullmatch(name):
        return name
    digest = hashlib.sha256(label.encode()).hexdigest()[:12]
    return f"{label.partition(' ')[0]}-{digest}"
