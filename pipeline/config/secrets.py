"""Keeps secrets out of configurations: no setting needs one, and run folders are shared.

No error of this module shows the value it refuses.
"""

import os
import re
from typing import Any

from pipeline.errors import ConfigError

_NAME = re.compile(r"key$|_key|secret|token(?!s|iz)|passw|credential", re.IGNORECASE)
# of the scheme only its last character: any more would be tried from every letter of a long text
_URL = re.compile(r"[a-z0-9+.-]://[^/\s]+@", re.IGNORECASE)
_SHAPES = re.compile(
    r"(?=.*[a-f])[0-9a-f]{40}|wandb_v1_\w+|hf_[A-Za-z0-9]{20,}|AKIA[0-9A-Z]{16}|gh[pousr]_\w{20,}|sk-[\w-]{20,}"
)
_SHORTEST = 8
_ADVICE = (
    "No setting takes a secret, because run folders are shared. Put it into the environment of the "
    "job (WANDB_API_KEY, HF_TOKEN), where the libraries find it."
)


def refuse(key: str, value: Any, where: str) -> None:
    """Raise ConfigError if a value, or an item of a list, looks like a secret or holds one of this
    environment's."""
    if isinstance(value, list):
        for item in value:
            refuse(key, item, where)
    if not isinstance(value, str):
        return
    found = _URL.search(value) or _SHAPES.fullmatch(value) or _from_environment(value)
    if found:
        raise ConfigError(f"{where}: `{key}` holds what looks like a secret (not shown). {_ADVICE}")


def advice(key: str) -> str:
    """Return " No setting takes a secret ..." if an unknown key looks like the name of one."""
    return f" {_ADVICE}" if _NAME.search(key) else ""


def refuse_variable(key: str, variable: str, where: str) -> None:
    """Raise ConfigError if an environment variable's name says that it holds a secret."""
    if _NAME.search(variable):
        raise ConfigError(
            f"{where}: `{key}` is taken from {variable}, which looks like a secret. {_ADVICE}"
        )


def _from_environment(value: str) -> bool:
    held = (v for name, v in os.environ.items() if _NAME.search(name) and len(v) >= _SHORTEST)
    return any(secret in value for secret in held)
