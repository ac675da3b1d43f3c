"""Every fault of the catalogue must be caught: the test it names fails on a copy that has it.

`FARSIGHT_FAULTS=N` in the environment tries N of them, others at every commit: CI has no hour.
"""

import os
import shutil
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

import pytest

from tests.distributed.ranks import ROOT
from tests.mutations import (
    attending,
    comparing,
    continuing,
    extending,
    guarding,
    judging,
    killing,
    measuring,
    mending,
    owning,
    planning,
    probing,
    reporting,
    requeueing,
    resuming,
    scoring,
    sharding,
    stopping,
    tasking,
)
from tests.mutations.mutation import Mutation
from tests.sampling import commit_here, sampled

CATALOGUES = (
    sharding, measuring, attending, extending, tasking, scoring, comparing, continuing, probing,
    judging, mending, resuming, stopping, guarding, killing, requeueing, owning,
    reporting, planning,
)  # fmt: skip
MUTATIONS = tuple(fault for catalogue in CATALOGUES for fault in catalogue.FAULTS)
COPIED = ("pipeline", "configs", "slurm", "tests", "pyproject.toml", "train.py")


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name.replace(" ", "-"))
def test_fault_is_one_line_of_the_code_as_it_is(mutation: Mutation) -> None:
    text = (ROOT / mutation.file).read_text()
    assert text.count(mutation.old) == 1 and mutation.old != mutation.new
    assert (ROOT / mutation.test).is_file()


def chosen(count: int, commit: str) -> list[Mutation]:
    return sampled(MUTATIONS, count, commit, lambda fault: fault.name)


def test_a_sample_is_another_one_at_another_commit_and_the_whole_without_a_count() -> None:
    one, other = (chosen(20, commit) for commit in ("a", "b"))
    assert len(set(one)) == len(set(other)) == 20 and set(one) != set(other)
    assert one == chosen(20, "a")
    assert chosen(0, "a") == list(MUTATIONS)


def test_names_differ() -> None:
    assert max(Counter(m.name for m in MUTATIONS).values()) == 1


def copy_of(folder: Path) -> Path:
    """What the tests need of this repository, in `folder`."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, folder / name, ignore=ignored)
        else:
            shutil.copy(source, folder / name)
    return folder


@dataclass(frozen=True)
class Trial:
    """Tests to be run on a copy, with a fault in it or without."""

    tests: str
    matrix: str = ""
    fault: Mutation | None = None

    def run(self, copy: Path) -> subprocess.CompletedProcess[str]:
        """The copy is whole again afterwards."""
        file = copy / (self.fault.file if self.fault else self.tests)
        text = file.read_text()
        if self.fault:
            file.write_text(text.replace(self.fault.old, self.fault.new))
        try:
            return subprocess.run(
                [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", self.tests],
                cwd=copy,
                env={
                    **os.environ,
                    "FARSIGHT_MATRIX": self.matrix,
                    "OMP_NUM_THREADS": "1",
                    "PYTHONPATH": str(copy),
                    "PYTHONDONTWRITEBYTECODE": "1",
                },
                capture_output=True,
                text=True,
                timeout=600,
            )
        finally:
            file.write_text(text)


TRIED = chosen(int(os.environ.get("FARSIGHT_FAULTS", "0")), commit_here())
# without a fault a test must pass, or one that fails on every copy would pass for one that notices
SOUND = [Trial(test, "accumulate2-bf16") for test in sorted({m.test for m in TRIED})]
BROKEN = [Trial(m.test, m.matrix, m) for m in TRIED]


@pytest.fixture(scope="module")
def verdicts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[Trial, subprocess.CompletedProcess[str]]:
    """The results of all trials asked for, one at a time on each core, in copies of their own."""
    calls = (getattr(item, "callspec", None) for item in request.session.items)
    wanted = {call.params["trial"] for call in calls if call and "trial" in call.params}
    copies: Queue[Path] = Queue()
    workers = os.cpu_count() or 1
    for _ in range(workers):
        copies.put(copy_of(tmp_path_factory.mktemp("copy")))

    def run(trial: Trial) -> subprocess.CompletedProcess[str]:
        copy = copies.get()
        try:
            return trial.run(copy)
        finally:
            copies.put(copy)

    chosen = [trial for trial in (*SOUND, *BROKEN) if trial in wanted]
    with ThreadPoolExecutor(workers) as pool:
        return dict(zip(chosen, pool.map(run, chosen), strict=True))


Verdicts = dict[Trial, subprocess.CompletedProcess[str]]


@pytest.mark.slow
@pytest.mark.parametrize("trial", SOUND, ids=lambda t: t.tests.replace("/", "-"))
def test_a_copy_without_a_fault_passes(trial: Trial, verdicts: Verdicts) -> None:
    assert verdicts[trial].returncode == 0, verdicts[trial].stdout[-4000:]


@pytest.mark.slow
@pytest.mark.parametrize("trial", BROKEN, ids=lambda t: t.fault.name.replace(" ", "-"))
def test_fault_is_caught(trial: Trial, verdicts: Verdicts) -> None:
    done = verdicts[trial]
    # 1 = tests ran and some failed; anything else is no verdict
    assert done.returncode == 1, f"survived ({done.returncode}):\n{done.stdout[-2000:]}"
