"""How the runs of a study stand: from their folders, and from SLURM's queue where there is one."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.config.compose import load
from pipeline.errors import DataError, FarsightError, StorageError
from pipeline.launch.tables import find_runs
from pipeline.record import lock
from pipeline.record.folder import RunFolder
from pipeline.record.metrics import read_rows

_COLUMNS = (
    "run", "state", "step", "loss", "tokens/s", "MFU", "memory", "restarts", "left", "job", "limit",
    "why",
)  # fmt: skip
_FIELDS = "%i|%A|%T|%L|%r"
WAITING, RUNNING = "PENDING", "RUNNING"
_ACTIVE = (WAITING, RUNNING, "COMPLETING", "CONFIGURING", "SUSPENDED", "REQUEUED", "REQUEUE_HOLD",
           "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED")  # fmt: skip
_ENDED = ("COMPLETED", "CANCELLED", "PREEMPTED")


@dataclass(frozen=True)
class Job:
    """One job, or one task of an array, as SLURM sees it; `left` is the time until its limit."""

    number: str
    state: str
    left: str
    reason: str

    @property
    def active(self) -> bool:
        """Whether it runs, ends, or will run."""
        return self.state in _ACTIVE

    @property
    def why(self) -> str:
        """SLURM's reason why it waits or failed; of a job that was cancelled it is an old one."""
        return "-" if self.reason == "None" or self.state in _ENDED else self.reason


class Standing(NamedTuple):
    """A table, one line a run; a line for each run whose files are damaged; and of the runs that
    are not done how many may still go on, and a line for each of the others."""

    table: str
    damage: list[str]
    going: int
    ended: list[str]


def queue() -> dict[str, Job] | None:
    """The user's jobs, those that ended lately included, by either of their numbers; None without
    SLURM, or, which is said, where it does not answer."""
    if shutil.which("squeue") is None:
        return None
    command = ["squeue", "--noheader", "--array", "--states=all", "--me", f"--format={_FIELDS}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1:]
        print(f"note: nothing is known of jobs: {''.join(said)}", file=sys.stderr, flush=True)
        return None
    found: dict[str, Job] = {}
    for line in done.stdout.splitlines():
        number, single, state, left, reason = line.strip().split("|", 4)
        found[number] = found[single] = Job(number, state, left, reason)
    return found


def submitted(folder: RunFolder) -> str | None:
    """The number of the job that this run was submitted as last.

    Raises:
        DataError: what keeps it is damaged.
    """
    if not folder.submitted.is_file():
        return None
    rows = read_rows(folder.submitted)
    if not rows:
        return None
    with _row_of(folder.submitted, len(rows)):
        return str(rows[-1]["job"])


def status(folders: Sequence[Path]) -> Standing:
    """How the runs stand.

    Raises:
        ConfigError: one of `folders` holds no run.
    """
    jobs, damage, going, ended = queue(), list[str](), 0, list[str]()
    lines: list[tuple[str, ...]] = [_COLUMNS]
    for path in find_runs(folders):
        folder = RunFolder(path)
        try:
            lines.append((_name(folder), *_line(folder, jobs or {})))
        except (FarsightError, OSError) as error:
            lines.append((_name(folder), "damaged", *("-",) * (len(_COLUMNS) - 2)))
            damage.append(f"{_name(folder)} is damaged: {error}")
        if folder.finished:
            continue
        if jobs is None or _goes_on(folder, jobs):
            going += 1
        else:
            ended.append(f"{_name(folder)} is not done, and no job is there for it: {lines[-1][1]}")
    widths = [max(len(line[place]) for line in lines) for place in range(len(_COLUMNS))]
    table = "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
    return Standing(table, damage, going, ended)


def _goes_on(folder: RunFolder, jobs: dict[str, Job]) -> bool:
    """Whether a run that is not done may be, without its being submitted again; also where that
    cannot be told."""
    holder = _holder(folder)
    try:
        number, job = submitted(folder), _job(folder, holder, jobs)
    except (FarsightError, OSError):
        return True
    return number is None or _apart(holder) or (job is not None and job.active)


def _apart(holder: dict[str, object] | None) -> bool:
    """Whether a process writes the run that is part of no job."""
    return holder is not None and holder.get("job") is None


def _job(folder: RunFolder, holder: dict[str, object] | None, jobs: dict[str, Job]) -> Job | None:
    """The job that the run was submitted as, or that writes it now: by plain sbatch, say."""
    numbers = (submitted(folder) or "", str((holder or {}).get("job")))
    found = [jobs[number] for number in numbers if number in jobs]
    ended = None if _apart(holder) or not found else found[0]
    return next((job for job in found if job.active), ended)


@contextmanager
def _row_of(path: Path, number: int) -> Iterator[None]:
    """Within it, a row is read of which it is not known whether it is as it was written."""
    try:
        yield
    except (LookupError, TypeError, ValueError, ArithmeticError) as error:
        raise DataError(
            f"{path}:{number}: not a row that a run writes ({error!r}); restore the file, or "
            "delete the run folder and run again"
        ) from error


def _name(folder: RunFolder) -> str:
    return f"{folder.path.parent.name}/{folder.path.name}"


def _line(folder: RunFolder, jobs: dict[str, Job]) -> tuple[str, ...]:
    """What stands behind the name of a run.

    Raises:
        FarsightError: a file of it is damaged.
    """
    folder.check_finished()
    rows = read_rows(folder.metrics) if folder.metrics.is_file() else []
    step, loss, left, speed, last = "0", "-", "-", ("-",) * 3, 0
    steps = load(folder.config, [])[0].trainer.max_steps
    for number, row in enumerate(rows, start=1):
        with _row_of(folder.metrics, number):
            if row["kind"] == "train":
                last = number
    if last:
        with _row_of(folder.metrics, last):
            row = rows[last - 1]
            step, loss, speed = str(row["step"]), f"{row['loss']:.3f}", _speed(row)
            rest = _clock((steps - row["step"]) * row["seconds"] / row["step"])
        left = "-" if folder.trained.is_file() else rest
    holder = _holder(folder)
    job = _job(folder, holder, jobs)
    restarts = len(read_rows(folder.restarts)) if folder.restarts.is_file() else 0
    active = job is not None and job.active
    return (
        _state(folder, job, bool(holder), bool(rows)),
        f"{step}/{steps}",
        loss,
        *speed,
        str(restarts),
        left,
        job.number if job is not None else "-",
        job.left if job is not None and active else "-",
        job.why if job is not None else "-",
    )


def _speed(row: dict[str, Any]) -> tuple[str, str, str]:
    """Tokens per second, MFU and the most memory of rank 0; a row of an earlier version has one."""
    tokens = f"{row['tokens_per_second']:,.0f}"
    if "mfu" not in row:
        return tokens, "-", "-"
    return tokens, f"{row['mfu']:.0%}", f"{row['peak_memory_bytes'] / 2**20:,.0f} MiB"


def _state(folder: RunFolder, job: Job | None, held: bool, begun: bool) -> str:
    if folder.finished:
        return "done"
    if job is not None and job.state == WAITING:
        return "waiting"
    if job is not None and not job.active and job.state not in ("COMPLETED", "PREEMPTED"):
        return job.state.lower().replace("_", " ")
    if job is not None and job.active and not held:
        # its ranks have not come that far, or have ended
        known = job.state in (RUNNING, "CONFIGURING")
        return "starting" if known else job.state.lower().replace("_", " ")
    if held if job is None else job.active:
        if folder.trained.is_file():
            return "evaluating"
        return "training" if begun else "starting"
    return "stopped" if begun else "not begun"


def _holder(folder: RunFolder) -> dict[str, object] | None:
    """Who writes the run now, if anybody may."""
    path = folder.path / "lock"
    try:
        lock.refuse_writer(path)
    except StorageError:
        try:
            holder: dict[str, object] = json.loads(path.read_text())
            return holder
        except (OSError, ValueError):
            return None
    return None


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
