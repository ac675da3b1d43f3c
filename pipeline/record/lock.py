"""The lock of a run folder: one file, made by whoever comes first, saying who writes there.

Making it is atomic on any file system, so of two jobs that start at once one is refused. A lock
whose process is gone is recovered, but only on the host it ran on: elsewhere nobody can know, but
that a SLURM job which was started again has ended before.
"""

import contextlib
import hashlib
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.errors import StorageError
from pipeline.parallel.parent import PARENT

_PATIENCE = 3.0
Holder = dict[str, Any]


def take(lock: Path) -> None:
    """Make the lock for this process.

    Raises:
        StorageError: another process holds it, naming that; within 5 s.
        OSError: the disk refuses; then there is no new lock.
    """
    with _one_at_a_time(lock):
        refuse_writer(lock)
        # of a process that is gone, or that was killed before it said who it is
        lock.unlink(missing_ok=True)
        try:
            _write(lock, _self())
        except FileExistsError:  # by another host, just now
            refuse_writer(lock)
            raise


def refuse_writer(lock: Path) -> None:
    """Return if nobody holds the lock.

    Raises:
        StorageError: a process does, or may.
    """
    holder = _read(lock)
    if holder is None or not _may_live(holder):
        return
    host, pid = holder["host"], holder["pid"]
    job = f", SLURM job {holder['job']}," if holder.get("job") else ""
    who = f"process {pid}{job} on this machine"
    if host != socket.gethostname():
        who = f"process {pid}{job} on {host} (if that is no longer so, delete {lock})"
    raise StorageError(
        f"{lock.parent} is being written by {who}. Wait for it, or choose another experiment"
    )


def release(lock: Path) -> None:
    """Remove the lock, if it is that of this process or of the one that started it."""
    holder = _read(lock)
    if holder is not None and _is_ours(holder):
        lock.unlink(missing_ok=True)


def _self() -> Holder:
    holder = {"host": socket.gethostname(), "pid": os.getpid(), "began": _began(os.getpid())}
    return {**holder, "job": os.environ.get("SLURM_JOB_ID"), "restart": _restart()}


def _restart() -> int:
    """How often SLURM has started this job again."""
    count = os.environ.get("SLURM_RESTART_COUNT", "")
    return int(count) if count.isdecimal() else 0


def _write(lock: Path, holder: Holder) -> None:
    handle = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(json.dumps(holder).encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        lock.unlink(missing_ok=True)
        raise


def _read(lock: Path) -> Holder | None:
    """Who made the lock; None without one, or if its maker was killed before it said who it is."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            holder: Holder = json.loads(lock.read_text())
            return {**holder, "host": str(holder["host"]), "pid": int(holder["pid"])}
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            if time.monotonic() > end:
                return None
            time.sleep(0.05)


def _is_ours(holder: Holder) -> bool:
    """Whether it is this process, or that which started this one as a rank."""
    if holder["host"] != socket.gethostname():
        return False
    own = {os.getpid(), int(os.environ.get(PARENT, os.getpid()))}
    return holder["pid"] in own and holder.get("began") in (None, _began(holder["pid"]))


def _may_live(holder: Holder) -> bool:
    job = os.environ.get("SLURM_JOB_ID")
    if job is not None and holder.get("job") == job and holder.get("restart", 0) < _restart():
        return False
    if holder["host"] != socket.gethostname():
        return True
    try:
        os.kill(holder["pid"], 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it lives, under another user
    # else the number has gone to another process
    return holder.get("began") in (None, _began(holder["pid"]))


def _began(pid: int) -> int | None:
    """When a process began, in clock ticks since the machine did; None where that is not known."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
        return int(text.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


@contextlib.contextmanager
def _one_at_a_time(lock: Path) -> Iterator[None]:
    """Within it, no other process of this host is.

    Two that both found a lock whose process is gone could else remove each other's new ones. A
    socket without a file holds nothing after its process, and is asked of no shared disk.
    """
    if sys.platform != "linux":
        yield
        return
    digest = hashlib.sha256(os.fsencode(lock.parent.resolve())).hexdigest()
    end = time.monotonic() + _PATIENCE + 1.0
    with socket.socket(socket.AF_UNIX) as mutex:
        while True:
            try:
                mutex.bind(f"\0farsight-{digest}")
                break
            except OSError:
                if time.monotonic() > end:
                    raise StorageError(
                        f"{lock.parent}: other processes are just taking it. Try again"
                    ) from None
                time.sleep(0.01)
        yield
