"""Every command of every page in docs/ does what the page says it does: it runs."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.distributed.ranks import ROOT

PAGES = sorted((ROOT / "docs").glob("*.md"))
COPIED = ("pipeline", "configs", "docs", "tests", "pyproject.toml", "train.py")
BLOCK = re.compile(r"^```bash\n(.*?)^```", re.DOTALL | re.MULTILINE)


def commands(page: Path) -> list[str]:
    """The lines of its bash blocks, without remarks."""
    lines = [line for block in BLOCK.findall(page.read_text()) for line in block.splitlines()]
    return [line for text in lines if (line := text.split("#")[0].strip())]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project to run them in."""
    copy: Path = tmp_path_factory.mktemp("pages") / "farsight"
    copy.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy / name)
    (copy / "data" / "prepared").mkdir(parents=True, exist_ok=True)
    return copy


def test_there_are_commands() -> None:
    assert sum(len(commands(page)) for page in PAGES) >= 8


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("page", [p for p in PAGES if commands(p)], ids=lambda page: page.stem)
def test_the_commands_of_a_page_run(page: Path, tree: Path) -> None:
    environment = {
        **os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "WANDB_MODE": "offline", "PYTHONPATH": str(tree),
    }  # fmt: skip
    for command in commands(page):
        done = subprocess.run(
            ["bash", "-c", command], cwd=tree, env=environment, capture_output=True, text=True,
            timeout=900,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
