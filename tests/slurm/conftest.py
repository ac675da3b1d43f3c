"""A SLURM cluster on this host, for the tests that are about SLURM itself."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

LAB = Path(__file__).parent / "lab.sh"
PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch")


@pytest.fixture(scope="session")
def lab() -> Iterator[None]:
    """A cluster of three nodes with two CPUs and two pretend GPUs each, as long as tests run.

    Skips where SLURM is not installed, or where we may not start its daemons.
    """
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"SLURM is not installed: no {', '.join(missing)} here")
    if os.geteuid() != 0:
        pytest.skip("a cluster of our own needs root")
    # not below pytest's own folder, which munge's user cannot enter
    folder = Path(tempfile.mkdtemp(prefix="farsight-lab-"))
    folder.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAB", str(folder))
        patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        try:
            subprocess.run(["bash", str(LAB), "up"], check=True, timeout=60)
            yield
        finally:
            subprocess.run(["bash", str(LAB), "down"], check=False, timeout=60)
            shutil.rmtree(folder, ignore_errors=True)
