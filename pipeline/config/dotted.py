"""Nested settings as one level of dotted keys, `trainer.max_steps`."""

from collections.abc import Mapping
from typing import Any


def dotted(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Every leaf of `tree` by its dotted key, in the order of the tree."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat.update(dotted(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat
