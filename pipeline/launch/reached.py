"""How far a run has come, by the rows that it has written, and whether the start that holds it now
wrote them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline.errors import DataError
from pipeline.record.folder import RunFolder

Rows = Sequence[dict[str, Any]]


@contextmanager
def row_of(path: Path, number: int) -> Iterator[None]:
    """Within it, a row is read of which it is not known whether it is as it was written."""
    try:
        yield
    except (LookupError, TypeError, ValueError, ArithmeticError) as error:
        raise DataError(
            f"{path}:{number}: not a row that a run writes ({error!r}); restore the file, or "
            "delete the run folder and run again"
        ) from error


def left_by_earlier_start(folder: RunFolder) -> bool:
    """Whether training has yet to take over the rows of the start before the one that holds the run
    now: it cuts them to its checkpoint, counts itself in restarts.jsonl, and then adds to them.

    No row says who wrote it, and the lock says when its process began in ticks of its own machine
    only. So this goes by file times, of two files in one folder: the lock is written once, by the
    machine that writes the rows, and taking over always writes metrics.jsonl anew.
    """
    if folder.trained.is_file() or folder.finished:
        return False
    try:
        rows, taken = folder.metrics.stat(), (folder.path / "lock").stat()
    except FileNotFoundError:
        return False
    return rows.st_mtime_ns < taken.st_mtime_ns


def goes_beyond(folder: RunFolder, rows: Rows, starts: Rows) -> bool:
    """Whether there are rows that training added after its last restart, if there was one."""
    if not rows or not starts:
        return bool(rows)
    with row_of(folder.restarts, len(starts)):
        first = int(starts[-1]["step"])
    with row_of(folder.metrics, len(rows)):
        return int(rows[-1]["step"]) > first


def progress(folder: RunFolder, rows: Rows, steps: int) -> tuple[str, ...]:
    """Step, loss, speed, MFU and memory of the last train row, and the training time left."""
    last = 0
    for number, row in enumerate(rows, start=1):
        with row_of(folder.metrics, number):
            if row["kind"] == "train":
                last = number
    if not last:
        return (f"0/{steps}", *("-",) * 5)
    with row_of(folder.metrics, last):
        row = rows[last - 1]
        reached = f"{row['step']}/{steps}", f"{row['loss']:.3f}", *_speed(row)
        rest = _clock((steps - row["step"]) * row["seconds"] / row["step"])
    return *reached, "-" if folder.trained.is_file() else rest


def _speed(row: dict[str, Any]) -> tuple[str, str, str]:
    """Tokens per second, MFU and the most memory of rank 0; a row of an earlier version has one."""
    tokens = f"{row['tokens_per_second']:,.0f}"
    if "mfu" not in row:
        return tokens, "-", "-"
    return tokens, f"{row['mfu']:.0%}", f"{row['peak_memory_bytes'] / 2**20:,.0f} MiB"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
