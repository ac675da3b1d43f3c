"""What CI leaves out of the slow tests at one commit, it runs at another."""

import os
import subprocess
import sys

import pytest

from tests.architecture.tree import ROOT
from tests.sampling import commit_here, sampled

SLURM = "tests/slurm/test_lab.py"
OTHERS = ["tests/faults/test_kill.py", "tests/faults/test_orphans.py"]


@pytest.mark.parametrize("count", [0, 1])
def test_of_slow_files_all_of_slurm_and_as_many_others_as_asked_are_left(count: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "slow", SLURM, *OTHERS],
        cwd=ROOT, env={**os.environ, "FARSIGHT_SLOW": str(count)}, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    left = {line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line}
    assert left == {SLURM, *sampled(OTHERS, count, commit_here(), str)}
    assert len(left) == 1 + (count or len(OTHERS))
