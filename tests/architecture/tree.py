"""The files of the project, for the tests that read them as text."""

import ast
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def project_files() -> list[Path]:
    """Every file that .gitignore does not leave out, relative to ROOT; works without git too."""
    ignored = [line.rstrip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if line]
    return sorted(_walk(ROOT, [".git", *ignored]))


def sources(*places: str) -> list[Path]:
    """The Python files at or below the named places, relative to ROOT."""
    found = [
        path
        for path in project_files()
        if path.suffix == ".py" and any(path.is_relative_to(place) for place in places)
    ]
    assert found, f"no Python file in {places}: this test would look at nothing"
    return found


def parse(path: Path) -> ast.Module:
    """The syntax tree of a file, given relative to ROOT."""
    return ast.parse((ROOT / path).read_text(encoding="utf-8"), filename=str(path))


def _walk(folder: Path, ignored: list[str]) -> Iterator[Path]:
    for path in folder.iterdir():
        relative = path.relative_to(ROOT)
        places = (path.name, str(relative), f"/{relative}")
        if any(fnmatch(place, name) for place in places for name in ignored):
            continue
        if path.is_dir():
            yield from _walk(path, ignored)
        else:
            yield relative
