"""Errors meant for users, each with the exit code the command line ends with.

Raise one of these for anything a user can cause or repair; its message names the key or file, the
value, what is allowed and how to fix it. Mistakes of programmers stay ``assert`` or ``TypeError``.
"""

import errno
import os
import shutil
from pathlib import Path


class FarsightError(Exception):
    """Base of every error meant for users; the command line prints its message and no traceback."""

    exit_code: int = 1


class ConfigError(FarsightError):
    """A configuration file, override or combination of settings cannot be used."""

    exit_code = 2


class DataError(FarsightError):
    """A corpus, tokenizer or prepared folder is missing, unreadable or does not fit."""

    exit_code = 2


class CheckpointError(FarsightError):
    """A checkpoint is missing, damaged, incomplete or belongs to another configuration."""

    exit_code = 3


class TrainingDiverged(FarsightError):
    """The loss or a gradient is NaN or infinite; no parameter was updated with it."""

    exit_code = 4


class StorageError(FarsightError):
    """A folder cannot be written, is full or is held by another job."""

    exit_code = 74


class Preempted(FarsightError):
    """The job was asked to stop, and all that it did is kept: it goes on when it is started again.

    `done` names the last that was done, None = nothing since this start. `progress` says it as a
    time, `after step 7`; two equal ones mean that nothing was done in between.
    """

    exit_code = 85

    def __init__(self, done: str | None) -> None:
        self.progress = f"after {done}" if done else "before the first step of this start"
        super().__init__(f"stopped as asked {self.progress}; started again, it goes on from there")


_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EFBIG)


def free_space(place: str | os.PathLike[str]) -> str:
    """How much is free on the volume of a path, which need not exist, as errors say it."""
    folder = Path(place).absolute()
    while True:
        try:
            return f"{shutil.disk_usage(folder).free} bytes are free there"
        except OSError:
            if folder == folder.parent:
                return "how much is free there cannot be told"
            folder = folder.parent


def disk_refused(error: OSError) -> StorageError | None:
    """What a disk that is full, over its quota, broken or read-only is reported by; None for all
    other errors of the operating system, which are no user's."""
    if error.errno not in _DISK:
        return None
    where, free = "the disk", ""
    if isinstance(error.filename, str):  # else nobody knows which disk it was
        where, free = error.filename, f"; {free_space(error.filename)}"
    return StorageError(
        f"{where}: cannot be written: {error.strerror}{free}. Free some space, or choose another "
        "folder; what was whole there before is whole"
    )
