"""Every fault of the catalogue must be caught: the test it names fails on a copy that has it."""

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.distributed.ranks import ROOT
from tests.mutations import attending, measuring, sharding
from tests.mutations.mutation import Mutation

MUTATIONS = (*sharding.FAULTS, *measuring.FAULTS, *attending.FAULTS)
COPIED = ("pipeline", "configs", "tests", "pyproject.toml", "train.py")


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name.replace(" ", "-"))
def test_fault_is_one_line_of_the_code_as_it_is(mutation: Mutation) -> None:
    text = (ROOT / mutation.file).read_text()
    assert text.count(mutation.old) == 1 and mutation.old != mutation.new
    assert (ROOT / mutation.test).is_file()


def test_names_differ() -> None:
    assert max(Counter(m.name for m in MUTATIONS).values()) == 1


def run_on_copy(copy: Path, tests: list[str], matrix: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests],
        cwd=copy,
        env={
            **os.environ,
            "FARSIGHT_MATRIX": matrix,
            "PYTHONPATH": str(copy),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, tmp_path / name, ignore=ignored)
        else:
            shutil.copy(source, tmp_path / name)
    return tmp_path


@pytest.mark.slow
def test_a_copy_without_a_fault_passes(copy: Path) -> None:
    """Or a test that fails on every copy would pass for one that notices every fault."""
    done = run_on_copy(copy, sorted({m.test for m in MUTATIONS}), "accumulate2-bf16")
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name.replace(" ", "-"))
def test_fault_is_caught(mutation: Mutation, copy: Path) -> None:
    broken = copy / mutation.file
    broken.write_text(broken.read_text().replace(mutation.old, mutation.new))
    done = run_on_copy(copy, [mutation.test], mutation.matrix)
    # 1 = tests ran and some failed; anything else is no verdict
    assert done.returncode == 1, f"survived ({done.returncode}):\n{done.stdout[-2000:]}"
