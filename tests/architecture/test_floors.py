"""Imports go down only, and each large library is met in one place."""

import ast
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.architecture.tree import ROOT, parse, sources

IMPORTERS = {
    "lightning": ["pipeline/training", "pipeline/data/module.py", "pipeline/launch"],
    "pytorch_lightning": [],
    "deepspeed": ["pipeline/parallel", "pipeline/training"],
    "omegaconf": ["pipeline/config"],
    "sentencepiece": ["pipeline/data/tokenizer.py"],
    "wandb": ["pipeline/record", "pipeline/report"],
}

IMPORT_REPORT = """
import importlib, pkgutil, sys
import pipeline.report
modules = [m.name for m in pkgutil.walk_packages(pipeline.report.__path__, "pipeline.report.")]
assert modules
for module in modules:
    importlib.import_module(module)
print(*sorted({"torch", "lightning", "deepspeed"} & sys.modules.keys()))
"""


def test_imports_keep_to_the_floors() -> None:
    linter = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = _python("-c", linter, "--no-cache", "--no-logo")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("library", IMPORTERS)
def test_only_its_own_places_import(library: str) -> None:
    places = IMPORTERS[library]
    strangers = [
        str(path)
        for path in sources("pipeline", "train.py")
        if library in _imported(parse(path)) and not any(path.is_relative_to(p) for p in places)
    ]
    assert not strangers, f"only {places} may import {library}"


def test_report_runs_without_torch() -> None:
    done = _python("-c", IMPORT_REPORT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


def _imported(tree: ast.Module) -> Iterator[str]:
    """The top-level names of the packages that a file imports, at its top or inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            named = [str(a.value) for a in node.args if isinstance(a, ast.Constant)]
            yield from (name.partition(".")[0] for name in named)


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
