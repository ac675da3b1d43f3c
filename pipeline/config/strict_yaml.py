"""YAML without surprises: every value keeps its file and line, and means one thing only.

Scalars follow YAML 1.2 (``1e-3`` is a number; only ``true`` and ``false`` are booleans). Text that
YAML 1.1 readers take for something else (``no``, ``off``, ``010``, ``1_000``, ``1:30``) stays
exactly that text and is marked ambiguous, so that the caller can refuse it. Repeated keys, tags,
anchors, aliases, several documents and anything but UTF-8 are refused.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pipeline.errors import ConfigError

_MAX_BYTES = 100_000
_MAX_DEPTH = 16
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL_FLOAT = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")
_NULLS = ("", "~", "null", "Null", "NULL")
_BOOLEANS = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


@dataclass(frozen=True)
class Located:
    """A value with its place: a scalar, a list of Located or a dict of str to Located."""

    value: Any
    where: str
    ambiguous: bool = False

    def plain(self) -> Any:
        """Return the value with all places removed."""
        if isinstance(self.value, dict):
            return {key: item.plain() for key, item in self.value.items()}
        if isinstance(self.value, list):
            return [item.plain() for item in self.value]
        return self.value


def read(path: Path) -> Located:
    """Read the mapping in a YAML file; an empty file is an empty mapping.

    Raises ConfigError, naming file and line, if it cannot be read or breaks a rule of this module.
    """
    shown = _shown(path)
    root = _parse(_text(path, shown), shown)
    if root.value is None:
        return Located({}, shown)
    if not isinstance(root.value, dict):
        raise ConfigError(
            f"{root.where}: a configuration must be a mapping of settings (`key: value`), "
            f"not a {word_for(root.value)}."
        )
    return root


def read_value(text: str, key: str, where: str) -> Located:
    """Read the value of a key as typed on the command line; ``where`` is its place in errors.

    Raises ConfigError if it is not one YAML value that uses up the whole text.
    """
    place = f"{where}: `{key}`"
    if "\n" in text or "\r" in text:
        raise ConfigError(f"{place}: a value must be on one line.")
    return _placed(_parse(text, place, lines=False), where)


def scalar(text: str) -> tuple[Any, bool]:
    """Return what an unquoted scalar means, and whether YAML 1.1 readers would disagree."""
    if text in _NULLS:
        return None, False
    if text in _BOOLEANS:
        return _BOOLEANS[text], False
    if _LEADING_ZERO.fullmatch(text):
        return text, True
    if _INT.fullmatch(text):
        return (int(text), False) if len(text) <= 30 else (float(text), False)
    if _FLOAT.fullmatch(text) or _SPECIAL_FLOAT.fullmatch(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan")), False
    old = yaml.resolver.Resolver().resolve(yaml.ScalarNode, text, (True, False))
    return text, old != "tag:yaml.org,2002:str"


def word_for(value: Any) -> str:
    """Return the word for the type of a value."""
    words = {bool: "true/false value", int: "integer", float: "number", str: "text"}
    words |= {list: "list", dict: "mapping", type(None): "null"}
    return words.get(type(value), type(value).__name__)


def dump(values: dict[str, Any]) -> str:
    """Write plain values as YAML that this module and any YAML 1.1 reader read back unchanged."""
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=4096)


class _Loader(yaml.BaseLoader):
    """Composes nodes without deciding types, and refuses tags, anchors and aliases."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()
        mark = event.start_mark
        if self.depth == _MAX_DEPTH:
            raise yaml.composer.ComposerError(None, None, "nested too deeply", mark)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            words = "anchors (&) and aliases (*) are not supported: write the value out"
            raise yaml.composer.ComposerError(None, None, words, mark)
        if getattr(event, "tag", None):
            words = f"the tag {event.tag!r} is not supported: write the plain value"
            raise yaml.composer.ComposerError(None, None, words, mark)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


class _Dumper(yaml.SafeDumper):
    """Quotes every text that a reader could take for something else."""


def _quoted(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    meaning, ambiguous = scalar(text)
    risky = ambiguous or not isinstance(meaning, str)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="'" if risky else None)


def _flow_list(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.Node:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=True)


_Dumper.add_representer(str, _quoted)
_Dumper.add_representer(list, _flow_list)


def _placed(found: Located, where: str) -> Located:
    """Return a value with another place throughout."""
    value = found.value
    if isinstance(value, dict):
        value = {key: _placed(item, where) for key, item in value.items()}
    elif isinstance(value, list):
        value = [_placed(item, where) for item in value]
    return Located(value, where, found.ambiguous)


def _shown(path: Path) -> str:
    """Return the path as short as it can be named from here."""
    absolute = path.absolute()
    here = Path.cwd()
    return str(absolute.relative_to(here)) if absolute.is_relative_to(here) else str(path)


def _text(path: Path, shown: str) -> str:
    """Read a small UTF-8 text file, or say why that cannot be done."""
    try:
        if not path.is_file():
            state = "is not a regular file" if path.exists() else "does not exist"
            others = sorted(item.name for item in path.parent.glob("*.yaml"))
            beside = f" In that folder: {', '.join(others)}." if others else ""
            raise ConfigError(f"{shown}: the configuration file {state}.{beside}")
        size = path.stat().st_size
        if size > _MAX_BYTES:
            raise ConfigError(
                f"{shown}: {size} bytes is too large for a configuration (at most {_MAX_BYTES})."
            )
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{shown}: the configuration file cannot be read: {error}.") from error
    if data.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        raise ConfigError(f"{shown}:1: a byte order mark is not allowed. Save it as plain UTF-8.")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{shown}:{line}: byte 0x{data[error.start]:02x} is not UTF-8. Save it as UTF-8."
        ) from error


def _parse(text: str, name: str, lines: bool = True) -> Located:
    """Parse text; errors begin with ``name:line``, or with ``name`` alone."""

    def place(line: int) -> str:
        return f"{name}:{line}" if lines else name

    try:
        node = yaml.compose(text, Loader=_Loader)
        if not lines and text.strip() and (not node or node.end_mark.index < len(text.rstrip())):
            raise ConfigError(
                f"{name}: everything from '#' on would be lost. Put quotes around the value, "
                "inside those of the shell: key='\"a #b\"'."
            )
        return Located(None, place(1)) if node is None else _located(node, place)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(
            f"{place(line)}: the character #x{error.character:04x} is not allowed in YAML."
        ) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context
        tab = "\\t" in str(problem)
        hint = " Indent with spaces, not with tabs." if tab else ""
        hint = hint if lines else " Put quotes around the value, inside those of the shell."
        line = mark.line + 1 if mark else 1
        raise ConfigError(f"{place(line)}: not valid YAML: {problem}.{hint}") from error


def _located(node: yaml.Node, place: Any) -> Located:
    """Turn a node into a value with its place; refuse repeated keys."""
    where = place(node.start_mark.line + 1)
    if isinstance(node, yaml.ScalarNode):
        if node.style is not None:
            return Located(node.value, where)
        value, ambiguous = scalar(node.value)
        return Located(value, where, ambiguous)
    if isinstance(node, yaml.SequenceNode):
        return Located([_located(item, place) for item in node.value], where)
    entries: dict[str, Located] = {}
    for key, item in node.value:
        line = place(key.start_mark.line + 1)
        if not isinstance(key, yaml.ScalarNode):
            raise ConfigError(f"{line}: a key must be a name, not a list or a mapping.")
        if key.value in entries:
            first = entries[key.value].where
            raise ConfigError(
                f"{line}: the key `{key.value}` is given twice (before that in {first}). Keep one."
            )
        entries[key.value] = _located(item, place)
    return Located(entries, where)
