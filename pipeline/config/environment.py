"""Settings taken from the environment: ``${oc.env:NAME}`` and ``${oc.env:NAME,default}``."""

import re
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pipeline.config import secrets
from pipeline.config.strict_yaml import scalar
from pipeline.errors import ConfigError

_REFERENCE = re.compile(r"\$\{oc\.env:([A-Za-z_][A-Za-z0-9_]*)(,[^${}]*)?\}")


def resolve(key: str, text: str, where: str, as_text: bool) -> tuple[Any, bool]:
    """Return what the text stands for, and whether that is ambiguous YAML.

    With ``as_text`` the result is exactly the text; otherwise it is read like an unquoted value.
    Raises ConfigError if a variable is not set or holds a secret, or if the text holds any other
    ``${...}``.
    """
    said = f"{where}: `{key}` = '{text if len(text) <= 80 else text[:77] + '...'}'"
    rest = _REFERENCE.sub("", text)
    if "${" in rest or "\\" in text:
        raise ConfigError(
            f"{said} cannot be resolved: only ${{oc.env:NAME}} and "
            "${oc.env:NAME,default} are supported, without backslashes."
        )
    for match in _REFERENCE.finditer(text):
        secrets.refuse_variable(key, match.group(1), where)
    try:
        found = OmegaConf.create({"value": text})["value"]
    except OmegaConfBaseException as error:
        names = ", ".join(match.group(1) for match in _REFERENCE.finditer(text))
        raise ConfigError(
            f"{said} cannot be resolved: the environment variable {names} is not set. Set it, or "
            "give a default: ${oc.env:NAME,default}."
        ) from error
    resolved = "" if found is None else str(found)
    if "${" in resolved:
        raise ConfigError(f"{said} resolves to text that holds another ${{.")
    return (resolved, False) if as_text else scalar(resolved)


def template_holds(key: str, template: str, value: Any) -> bool:
    """Say whether a template still resolves to this value."""
    try:
        return resolve(key, template, key, isinstance(value, str))[0] == value
    except ConfigError:
        return False
