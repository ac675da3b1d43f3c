"""Encodings and extensions by name: the name is the file stem, the settings are the keywords of an
encoding's class, or of an extension's `configure`."""

import difflib
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from types import ModuleType
from typing import Any, TypeVar

import pipeline.positions
import pipeline.positions.extensions
import pipeline.positions.ids
from pipeline.errors import ConfigError
from pipeline.positions.base import Position, Shape
from pipeline.positions.extension import Extension, extend
from pipeline.positions.position_ids import PositionIds, check_fit

_NOT_ENCODINGS = {
    "base", "facts", "declared", "registry", "scores", "extension", "masks", "position_ids",
}  # fmt: skip
NO_EXTENSION = "none"
Kind = TypeVar("Kind")


def names() -> list[str]:
    """All encodings, sorted by name."""
    return sorted(_files(pipeline.positions) - _NOT_ENCODINGS)


def extension_names() -> list[str]:
    """All extensions, sorted by name."""
    return sorted(_files(pipeline.positions.extensions))


def ids_names() -> list[str]:
    """All schemes of position ids, sorted by name."""
    return sorted(_files(pipeline.positions.ids))


def _files(package: ModuleType) -> set[str]:
    return {module.name for module in pkgutil.iter_modules(package.__path__) if not module.ispkg}


def sources(position: str, ids: str, extension: str) -> tuple[list[str], list[str]]:
    """Files below ``pipeline`` that every encoding stands on, and those of these three alone.

    Raises:
        ConfigError: one of them is unknown.
    """
    shared = {f"pipeline.positions.{name}" for name in _NOT_ENCODINGS}
    waiting = [position_class(position).__module__, ids_class(ids).__module__]
    if extension != NO_EXTENSION:
        waiting.append(extension_class(extension).__module__)
    own: set[str] = set()
    while waiting:
        own.add(module := waiting.pop())
        used = {str(getattr(one, "__module__", "")) for one in vars(sys.modules[module]).values()}
        waiting += [one for one in used - own - shared if one.startswith("pipeline.positions.")]
    return _files_of(shared), _files_of(own)


def _files_of(modules: set[str]) -> list[str]:
    return sorted("/".join(module.split(".")[1:]) + ".py" for module in modules)


def position_class(name: str) -> type[Position]:
    """The class that file `positions/<name>.py` defines.

    Raises:
        ConfigError: no such encoding.
    """
    _known("position", "encoding", name, names())
    return _only_class(f"pipeline.positions.{name}", Position)


def extension_class(name: str) -> type[Extension]:
    """The class that file `positions/extensions/<name>.py` defines.

    Raises:
        ConfigError: no such extension.
    """
    _known("extension", "extension", name, [NO_EXTENSION, *extension_names()])
    return _only_class(f"pipeline.positions.extensions.{name}", Extension)


def ids_class(name: str) -> type[PositionIds]:
    """The class that file `positions/ids/<name>.py` defines.

    Raises:
        ConfigError: no such scheme.
    """
    _known("position_ids", "scheme", name, ids_names())
    return _only_class(f"pipeline.positions.ids.{name}", PositionIds)


def _known(key: str, kind: str, name: str, known: list[str]) -> None:
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ConfigError(f"{key}={name!r}: unknown {kind}{hint} Known: {', '.join(known)}")


def _only_class(path: str, base: type[Kind]) -> type[Kind]:
    module = importlib.import_module(path)
    own = [
        member
        for member in vars(module).values()
        if inspect.isclass(member)
        and issubclass(member, base)
        and member.__module__ == module.__name__
    ]
    if len(own) != 1:
        file = "/".join(path.split(".")[1:])
        raise ConfigError(
            f"{file}.py must define exactly one subclass of {base.__name__}, found {len(own)}"
        )
    return own[0]


def default_settings(name: str) -> dict[str, Any]:
    """The settings of an encoding with their defaults, as its class declares them."""
    return _keywords(position_class(name))


def extension_settings(name: str) -> dict[str, Any]:
    """The settings of an extension with their defaults, as its `configure` declares them."""
    return {} if name == NO_EXTENSION else _keywords(extension_class(name).configure)


def ids_settings(name: str) -> dict[str, Any]:
    """The settings of a scheme of position ids with their defaults, as its class declares them."""
    return _keywords(ids_class(name))


def _keywords(function: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def _settings(group: str, settings: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    own = {key: value for key, value in settings.items() if key != "name"}
    for key in own:
        if key not in known:
            raise ConfigError(
                f"{group}.{key}: not used by {settings['name']!r}, which takes: "
                f"{', '.join(known) or 'nothing'}"
            )
    return own


def build(settings: Mapping[str, Any], shape: Shape) -> Position:
    """The encoding `settings["name"]` with its other settings.

    Raises:
        ConfigError: unknown encoding, a setting it does not take, or a value it refuses.
    """
    name = settings["name"]
    own = _settings("position", settings, default_settings(name))
    return position_class(name)(shape, **own)


def build_ids(
    settings: Mapping[str, Any], position: Position, encoding: str, train_length: int
) -> PositionIds:
    """The scheme of position ids `settings["name"]` with its other settings, for an encoding called
    `encoding` and training sequences of `train_length` tokens.

    Raises:
        ConfigError: unknown scheme, one that does not fit the encoding, a setting it does not
            take, or a value it refuses.
    """
    name = settings["name"]
    own = _settings("position_ids", settings, ids_settings(name))
    shape = replace(position.shape, train_length=train_length)
    scheme = ids_class(name)(shape, **own)
    check_fit(scheme, name, position, encoding)
    return scheme


def extension_fits(kind: str, position: Position) -> bool:
    """Whether an extension, by its name, fits an encoding."""
    return extension_class(kind).refusal(position) is None


def extended(position: Position, name: str, settings: Mapping[str, Any]) -> Position:
    """A trained encoding, called `name`, under the extension `settings["name"]`; "none" leaves it.

    Raises:
        ConfigError: unknown extension, one that does not fit, or a value it refuses.
    """
    kind = settings["name"]
    if kind == NO_EXTENSION:
        return position
    own = _settings("extension", settings, extension_settings(kind))
    refusal = extension_class(kind).refusal(position)
    if refusal is not None:
        raise ConfigError(f"extension={kind} does not fit position={name}: {refusal}")
    return extend(position, extension_class(kind), **own)


def facts_of(name: str) -> dict[str, Any]:
    """What an encoding declares, as plain values, with its settings and their defaults."""
    facts = asdict(position_class(name).facts)
    return {"name": name, "kind": "encoding", **facts, "settings": default_settings(name)}


def facts_of_extension(name: str) -> dict[str, Any]:
    """What an extension declares, as plain values, with its settings and their defaults."""
    about = asdict(extension_class(name).about)
    return {"name": name, "kind": "extension", **about, "settings": extension_settings(name)}


def facts_of_ids(name: str) -> dict[str, Any]:
    """What a scheme of position ids declares, as plain values, with its settings and defaults."""
    facts = asdict(ids_class(name).facts)
    return {"name": name, "kind": "position ids", **facts, "settings": ids_settings(name)}
