"""The lock of a run folder: one holder, whoever comes and whenever."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline.errors import StorageError
from pipeline.parallel.parent import PARENT
from pipeline.record.lock import release, take

ROOT = Path(__file__).parents[2]
HOST = socket.gethostname()


def began(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def test_of_many_that_come_at_once_one_gets_it(tmp_path: Path) -> None:
    count, rounds = 8, 15
    racing = ["-m", "tests.record.lock_race", tmp_path / "lock", f"{count}", f"{rounds}"]
    subprocess.run([sys.executable, *map(str, racing)], cwd=ROOT, check=True, timeout=300)
    lines = (tmp_path / "outcome").read_text().splitlines()
    outcome = [json.loads(line) for line in lines]
    for turn in range(rounds):
        said = [words for number, _, words in outcome if number == turn]
        assert len(said) == count and said.count("") == 1, said
        # or, on a machine that is busy with other things, that the others are just taking it
        assert all("is being written by process" in w or "just taking" in w for w in said if w)


def test_the_holder_is_named_with_its_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    take(tmp_path / "lock")
    start = time.monotonic()
    with pytest.raises(StorageError, match=f"process {os.getpid()}, SLURM job 4711, on this"):
        take(tmp_path / "lock")
    assert time.monotonic() - start < 5.0
    release(tmp_path / "lock")
    take(tmp_path / "lock")


def test_of_another_host_nothing_is_known(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.write_text(json.dumps({"host": "elsewhere", "pid": 2**22 + 1, "job": "9"}))
    with pytest.raises(StorageError, match="SLURM job 9, on elsewhere .*delete .*lock"):
        take(lock)
    release(lock)
    assert lock.exists()


@pytest.mark.parametrize(
    ("job", "count", "free"),
    [("9", "3", True), ("9", "2", False), ("8", "3", False), ("9", None, False)],
)
def test_a_job_that_was_started_again_ended_before_wherever_that_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str, count: str | None, free: bool
) -> None:
    """A node that failed has left it. The same start of the job, or another job, may still run."""
    lock = tmp_path / "lock"
    lock.write_text(json.dumps({"host": "elsewhere", "pid": 7, "job": "9", "restart": 2}))
    monkeypatch.setenv("SLURM_JOB_ID", job)
    monkeypatch.delenv("SLURM_RESTART_COUNT", raising=False)
    if count is not None:
        monkeypatch.setenv("SLURM_RESTART_COUNT", count)
    if free:
        take(lock)
        assert json.loads(lock.read_text())["restart"] == 3
    else:
        with pytest.raises(StorageError, match="SLURM job 9, on elsewhere"):
            take(lock)


def test_a_number_that_went_to_another_process_holds_nothing(tmp_path: Path) -> None:
    lock, parent = tmp_path / "lock", os.getppid()
    holder = {"host": HOST, "pid": parent, "began": began(parent)}
    lock.write_text(json.dumps(holder))
    with pytest.raises(StorageError, match=f"process {parent} on this machine"):
        take(lock)
    lock.write_text(json.dumps({**holder, "began": began(parent) - 1}))
    take(lock)
    assert json.loads(lock.read_text())["pid"] == os.getpid()


def test_a_lock_that_a_kill_left_empty_is_recovered(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    start = time.monotonic()
    take(tmp_path / "lock")
    assert 1.0 < time.monotonic() - start < 5.0


def test_only_the_holder_and_its_ranks_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, other = tmp_path / "lock", os.getppid()
    lock.write_text(json.dumps({"host": HOST, "pid": other, "began": began(other)}))
    release(lock)
    assert lock.exists()
    monkeypatch.setenv(PARENT, str(other))
    release(lock)
    assert not lock.exists()
