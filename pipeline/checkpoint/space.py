"""Whether the place of a run can hold its checkpoints, known before anything is built."""

import os
import shutil
from pathlib import Path

from pipeline.errors import StorageError

# weights and two moments, fp32
BYTES_PER_PARAMETER = 12
# one checkpoint, the next one before the first is deleted, and some more for manifests and rows
ROOM = 2.2


def check_space(run: Path, parameters: int) -> None:
    """Refuse to start where two checkpoints of so many parameters do not fit.

    Args:
        run: the run folder, which may not exist yet.
        parameters: of the decoder.

    Raises:
        StorageError: nothing can be written there, or less than 2.2 checkpoints are free.
    """
    place = run / "checkpoints"
    while not place.exists():
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise StorageError(
            f"{run}: cannot be written: {place} is not a folder that you may write to. Choose one "
            "with runs=<folder>"
        )
    needed = int(ROOM * BYTES_PER_PARAMETER * parameters)
    free = shutil.disk_usage(place).free
    if free < needed:
        raise StorageError(
            f"{run}: {free} bytes are free there, and the checkpoints of {parameters} parameters "
            f"need {needed}. Free some space, or choose another place with runs=<folder>"
        )
