"""`make install` with a stand-in for Python: which one it takes, when it installs, what it says."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT

# Answers the three calls of the Makefile: its version, `-m venv --clear FOLDER`, `-m pip ...`.
STAND_IN = """#!/bin/sh
case "$*" in
  *version_info*) echo {version} ;;
  *"-m venv --clear"*) rm -rf "$4"; mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
  *"-m pip"*) echo "$*" >> {calls}; exit {pip_code} ;;
esac
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def test_python_too_old_is_refused_with_what_was_found(tree: Path) -> None:
    _stand_in(tree, version="3.10.4")
    done = _install(tree)
    assert done.returncode != 0
    assert "Python 3.11 or 3.12 is needed" in done.stderr
    assert "is 3.10.4" in done.stderr
    assert not (tree / ".venv").exists()


def test_installs_once_and_again_only_for_a_changed_pyproject(tree: Path) -> None:
    _stand_in(tree)
    for expected in (1, 1):
        assert _install(tree).returncode == 0
        assert len(_pip_calls(tree)) == expected
    assert _pip_calls(tree)[0].endswith("--editable .[dev]")

    (tree / "pyproject.toml").write_text("[project]\n")
    for expected in (2, 2):
        assert _install(tree).returncode == 0
        assert len(_pip_calls(tree)) == expected


def test_a_moved_tree_gets_a_new_environment(tree: Path) -> None:
    moved = tree / "moved"
    _stand_in(tree)
    _install(tree)
    moved.mkdir()
    for name in ("Makefile", "pyproject.toml", "python", ".venv"):
        shutil.move(tree / name, moved)
    (moved / ".venv" / "from-before").touch()
    assert _install(moved).returncode == 0
    assert not (moved / ".venv" / "from-before").exists()


def test_failed_pip_is_explained_and_tried_again(tree: Path) -> None:
    _stand_in(tree, pip_code=1)
    done = _install(tree)
    assert done.returncode != 0
    assert "the installation failed" in done.stderr

    _stand_in(tree)
    assert _install(tree).returncode == 0
    assert len(_pip_calls(tree)) == 2


def _stand_in(tree: Path, version: str = "3.11.7", pip_code: int = 0) -> None:
    python = tree / "python"
    python.write_text(STAND_IN.format(version=version, calls=tree / "pip-calls", pip_code=pip_code))
    python.chmod(0o755)


def _install(tree: Path) -> subprocess.CompletedProcess[str]:
    # The make that runs these tests hands its own settings down through MAKEFLAGS.
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "install", f"PYTHON={tree / 'python'}", "VENV=.venv"]
    return subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True, timeout=60)


def _pip_calls(tree: Path) -> list[str]:
    return (tree / "pip-calls").read_text().splitlines()
