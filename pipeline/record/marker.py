"""How a job ended, for the batch script that started its ranks.

`srun --kill-on-bad-exit` ends all ranks when one fails, and its own exit code is then that of a
kill: so the code goes through a file, which the batch script names in the environment.
"""

import contextlib
import os
from pathlib import Path

MARKER = "FARSIGHT_MARKER"
"""Environment variable: the file that is to say how the job ended."""


def wanted() -> bool:
    """Whether a batch script reads how this job ends."""
    return bool(os.environ.get(MARKER))


def told() -> str | None:
    """The progress that was written first; None where nobody reads it, or it cannot be read."""
    if not wanted():
        return None
    try:
        return Path(os.environ[MARKER]).read_text().partition(" ")[2].strip()
    except OSError:
        return None


def leave(exit_code: int, progress: str = "") -> None:
    """Write `<exit code> <progress>`, unless a rank has said it before: the first failure is the
    cause of the others. Without a batch script nothing is written."""
    if not wanted():
        return
    path = Path(os.environ[MARKER])
    # whole before it has its name; a batch script without it goes by the exit code of srun
    with contextlib.suppress(OSError):
        partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        partial.write_text(f"{exit_code} {progress}".strip() + "\n")
        with contextlib.suppress(FileExistsError):
            os.link(partial, path)
        partial.unlink()
