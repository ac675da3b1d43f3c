"""Files that are there whole or not at all, also after a power cut."""

import contextlib
import os
from pathlib import Path


def write_file(path: Path, content: bytes) -> None:
    """Write `content` so that `path` holds all of it or is untouched, whatever happens.

    Raises OSError, which names `path`, if the disk refuses.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error


def sync(path: Path) -> None:
    """Wait until what `path`, a file or a folder, holds now is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
