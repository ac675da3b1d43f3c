"""What encodings declare, read from their files without running them: torch need not be there."""

import ast
import re
from pathlib import Path

from pipeline.positions.facts import Facts


def declared(name: str) -> Facts | None:
    """The facts that `positions/<name>.py` declares; None if there is no such encoding, or if what
    it declares is not written out as plain values."""
    path = Path(__file__).parent / f"{name}.py"
    if not re.fullmatch(r"[a-z0-9_]+", name) or not path.is_file():
        return None
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Assign) and _is_facts(node):
            assert isinstance(node.value, ast.Call)
            try:
                return Facts(**{
                    str(word.arg): ast.literal_eval(word.value) for word in node.value.keywords
                })  # fmt: skip
            except (ValueError, TypeError):
                return None
    return None


def _is_facts(node: ast.Assign) -> bool:
    """Whether this is `facts = Facts(...)`."""
    target, value = node.targets[0], node.value
    named = isinstance(target, ast.Name) and target.id == "facts"
    called = isinstance(value, ast.Call) and isinstance(value.func, ast.Name)
    return named and called and value.func.id == "Facts"  # type: ignore[attr-defined]
