"""A child process ends with the process that started it, however that ends."""

import ctypes
import os
import signal
import socket
import sys
from pathlib import Path

PARENT = "FARSIGHT_PARENT"
"""Environment variable: the process id of the one that starts children."""

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Let the kernel end this process when the one that started it has gone (Linux).

    Without it, ranks whose parent was killed would train on into a folder no longer theirs.
    """
    if sys.platform != "linux":
        return
    _signal_at_end_of_parent(signal.SIGKILL)
    if str(os.getppid()) != os.environ.get(PARENT, str(os.getppid())):
        os._exit(1)


def hear_end_of_torchrun() -> None:
    """Let the kernel send SIGTERM when the torchrun that started this process has gone (Linux).

    torchrun passes signals on to its ranks, but not the one that kills it. Under srun the parent is
    SLURM, which ends its tasks by itself.
    """
    if sys.platform != "linux" or "TORCHELASTIC_RUN_ID" not in os.environ:
        return
    _signal_at_end_of_parent(signal.SIGTERM)
    # it may have gone before; its number is not known, but its store is one that answered
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        store = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        try:
            socket.create_connection(store, timeout=5.0).close()
        except ConnectionRefusedError:
            os.kill(os.getpid(), signal.SIGTERM)
        except OSError:
            return  # slow or far away: the process group will see


def _signal_at_end_of_parent(number: int) -> None:
    # "parent" is the thread that started this process; torch's launchers start ranks from the main
    # one, which lives as long as they do
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


def child_sessions() -> list[int]:
    """Process ids of the children that lead a session of their own, as ranks do (Linux)."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, parent, _, session = path.read_text().rpartition(")")[2].split()[:4]
        except (OSError, ValueError):
            continue  # it has ended
        if int(parent) == os.getpid() and session == path.parent.name:
            found.append(int(session))
    return found
