"""Writing that is never seen half-done: durable files, one builder at a time, rename at the end."""

import fcntl
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.config.durable import sync
from pipeline.errors import StorageError


@contextmanager
def building(folder: Path) -> Iterator[Path | None]:
    """Give an empty `.partial` folder that becomes `folder` when the block ends without an error.

    Processes of one machine take turns; the block gets None if another has finished `folder` by
    then. Where locks do not work (some network file systems) several may build, and the first to
    finish wins. After an error or a kill `folder` does not exist, and the next builder clears what
    was left. Raises StorageError if the disk is full or not writable.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _turn(folder) as alone:
            if folder.exists():
                yield None
                return
            prefix = f"{folder.name}.{socket.gethostname()}-"
            if alone:
                for stale in folder.parent.glob(f"{prefix}*.partial"):
                    shutil.rmtree(stale)
            partial = folder.with_name(f"{prefix}{os.getpid()}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            try:
                yield partial
                _publish(partial, folder)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise StorageError(
            f"{error.filename or folder}: cannot be written: {error.strerror or error}; free space "
            f"or point data.prepared at a writable folder"
        ) from error


@contextmanager
def _turn(folder: Path) -> Iterator[bool]:
    handle = os.open(folder.parent, os.O_RDONLY)
    try:
        yield _lock(handle, folder)
    finally:
        os.close(handle)


def _lock(handle: int, folder: Path) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"another process prepares data in {folder.parent}; waiting for it", file=sys.stderr)
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError:
        return False
    return True


def _publish(partial: Path, folder: Path) -> None:
    sync(partial)
    try:
        os.rename(partial, folder)
    except OSError:
        if not folder.is_dir():  # otherwise another machine was first, with the same content
            raise
    sync(folder.parent)
