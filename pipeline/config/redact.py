"""What of a configuration is written down: environment references stay references."""

import hashlib
from pathlib import Path
from typing import Any

from pipeline.config.durable import write_file
from pipeline.config.environment import template_holds
from pipeline.config.schema import NAMED_GROUPS, Config
from pipeline.config.strict_yaml import dump, read
from pipeline.config.values import canonical, settings
from pipeline.errors import StorageError, free_space

_HEADER = "# The resolved configuration of one run; this file can be run again as it is.\n"


def public(config: Config) -> dict[str, Any]:
    """Return the nested settings in the order of the schema, fit to be written, sent and shown.

    A value that came from ``${oc.env:...}`` is that text, unless it was changed since.
    """
    nested: dict[str, Any] = {}
    table = settings()
    for key in _ordered_keys():
        if key in NAMED_GROUPS:
            nested[key] = {
                name: _shared(config, f"{key}.{name}", value)
                for name, value in getattr(config, key).items()
            }
        elif key == "sweep":
            nested[key] = dict(config.sweep)
        else:
            *parents, leaf = key.split(".")
            target, holder = nested, config
            for parent in parents:
                target, holder = target.setdefault(parent, {}), getattr(holder, parent)
            target[leaf] = _shared(config, key, canonical(table[key], getattr(holder, leaf)))
    return nested


def canonical_yaml(config: Config, without: tuple[str, ...] = ()) -> str:
    """Return the YAML that is saved and hashed, without some of the top keys."""
    return dump({key: value for key, value in public(config).items() if key not in without})


def save(config: Config, path: Path) -> None:
    """Write a configuration so that ``load`` gives it back; the file is complete or not there.

    Raises StorageError, naming the path, if it cannot be written.
    """
    text = _HEADER + canonical_yaml(config)
    try:
        write_file(path, text.encode())
    except OSError as error:
        raise StorageError(
            f"{path}: the configuration cannot be written: {error.strerror}; {free_space(path)}"
        ) from error


def config_hash(config: Config) -> str:
    """Return the sha256 (hex) of the canonical YAML without ``runs``: the identity of a run.

    Environment references count as their text, so that a run keeps its identity where they
    resolve to other paths.
    """
    return hashlib.sha256(canonical_yaml(config, without=("runs",)).encode()).hexdigest()


def saved_hash(path: Path) -> str:
    """Return the ``config_hash`` of the configuration that was saved there, as it was then.

    Settings that did not exist when it was saved do not count. Raises ConfigError if the file
    cannot be read.
    """
    held = {key: value for key, value in read(path).plain().items() if key != "runs"}
    return hashlib.sha256(dump(held).encode()).hexdigest()


def _ordered_keys() -> list[str]:
    """Return all dotted keys, the named groups after ``eval_lengths`` and ``sweep`` last."""
    keys = list(settings())
    place = keys.index("eval_lengths") + 1
    return [*keys[:place], *NAMED_GROUPS, *keys[place:], "sweep"]


def _shared(config: Config, key: str, value: Any) -> Any:
    template = config.unresolved.get(key)
    return template if template and template_holds(key, template, value) else value
