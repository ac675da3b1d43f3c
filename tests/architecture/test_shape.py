"""The size and the names of files and functions."""

import ast
from pathlib import Path

from tests.architecture.tree import ROOT, parse, project_files, sources

CODE = {".py", ".sh", ".sbatch", ".env", ".yaml", ".toml", ".md", ""}


def test_every_file_is_shorter_than_300_lines() -> None:
    code = [path for path in project_files() if path.suffix in CODE]
    assert Path("Makefile") in code
    long = {str(path): lines for path in code if (lines := _lines(path)) >= 300}
    assert not long


def test_every_function_is_shorter_than_60_lines() -> None:
    long = {
        f"{path}:{node.lineno} {node.name}": length
        for path in sources("pipeline", "tests", "train.py")
        for node in ast.walk(parse(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or node.lineno) - node.lineno + 1) >= 60
    }
    assert not long


def test_nothing_is_named_utils() -> None:
    drawers = {"utils", "util"}
    assert not [path for path in project_files() if drawers & {path.stem, *path.parent.parts}]


def _lines(path: Path) -> int:
    return len((ROOT / path).read_text(encoding="utf-8").splitlines())
