"""Encodings by name: the name is the file stem, the settings are the keywords of its class."""

import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pipeline.positions
from pipeline.errors import ConfigError
from pipeline.positions.base import Position, Shape

_NOT_ENCODINGS = {"base", "registry", "scores"}


def names() -> list[str]:
    """All encodings, sorted by name."""
    found = {module.name for module in pkgutil.iter_modules(pipeline.positions.__path__)}
    return sorted(found - _NOT_ENCODINGS)


def position_class(name: str) -> type[Position]:
    """The class that file `positions/<name>.py` defines.

    Raises:
        ConfigError: no such encoding.
    """
    if name not in names():
        close = difflib.get_close_matches(name, names(), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ConfigError(f"position={name!r}: unknown encoding{hint} Known: {', '.join(names())}")
    module = importlib.import_module(f"pipeline.positions.{name}")
    own = [
        member
        for member in vars(module).values()
        if inspect.isclass(member)
        and issubclass(member, Position)
        and member.__module__ == module.__name__
    ]
    if len(own) != 1:
        raise ConfigError(
            f"positions/{name}.py must define exactly one subclass of Position, found {len(own)}"
        )
    return own[0]


def default_settings(name: str) -> dict[str, Any]:
    """The settings of an encoding with their defaults, as its class declares them."""
    parameters = inspect.signature(position_class(name)).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def build(settings: Mapping[str, Any], shape: Shape) -> Position:
    """The encoding `settings["name"]` with its other settings.

    Raises:
        ConfigError: unknown encoding, a setting it does not take, or a value it refuses.
    """
    own = {key: value for key, value in settings.items() if key != "name"}
    name = settings["name"]
    known = default_settings(name)
    for key in own:
        if key not in known:
            raise ConfigError(
                f"position.{key}: not used by {name!r}, which takes: "
                f"{', '.join(known) or 'nothing'}"
            )
    return position_class(name)(shape, **own)


def facts_of(name: str) -> dict[str, Any]:
    """What an encoding declares, as plain values, with its settings and their defaults."""
    facts = asdict(position_class(name).facts)
    shape = Shape(width=64, layers=1, heads=2, train_length=16)
    longest = build({"name": name}, shape).max_length
    known = {None: "unbounded", shape.train_length: "train_length"}
    facts["max_length"] = known.get(longest, longest)
    return {"name": name, **facts, "settings": default_settings(name)}
