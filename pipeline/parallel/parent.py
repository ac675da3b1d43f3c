"""A child process ends with the process that started it, however that ends."""

import ctypes
import os
import signal
import sys

PARENT = "FARSIGHT_PARENT"
"""Environment variable: the process id of the one that starts children."""

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Let the kernel end this process when the one that started it has gone (Linux).

    Without it, ranks whose parent was killed would train on into a folder no longer theirs.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if str(os.getppid()) != os.environ.get(PARENT, str(os.getppid())):
        os._exit(1)
