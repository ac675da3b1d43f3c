"""How the runs of a study stand: from their folders, and from SLURM's queue where there is one."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pipeline.config.compose import load
from pipeline.errors import FarsightError, StorageError
from pipeline.launch.reached import goes_beyond, left_by_earlier_start, progress, row_of
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
_STARTING = "starting"
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
    """A table, one line a run; a line for each run whose files are damaged, and one if the queue
    does not answer; and of the runs that are not done how many may still go on, and a line for each
    of the others."""

    table: str
    damage: list[str]
    going: int
    ended: list[str]


def _print_note(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def queue(note: Callable[[str], None] = _print_note) -> dict[str, Job] | None:
    """The user's jobs, those that ended lately included, by either of their numbers; None without
    SLURM, or, which `note` is told, where it does not answer."""
    if shutil.which("squeue") is None:
        return None
    command = ["squeue", "--noheader", "--array", "--states=all", "--me", f"--format={_FIELDS}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        # what came before a timeout is left undecoded
        text = said.decode(errors="replace") if isinstance(said, bytes) else said
        note(f"note: nothing is known of jobs: {''.join(text.strip().splitlines()[-1:])}")
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
    with row_of(folder.submitted, len(rows)):
        return str(rows[-1]["job"])


def status(folders: Sequence[Path]) -> Standing:
    """How the runs stand.

    Raises:
        ConfigError: one of `folders` holds no run.
    """
    damage, going, ended = list[str](), 0, list[str]()
    jobs = queue(damage.append)
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


def _name(folder: RunFolder) -> str:
    return f"{folder.path.parent.name}/{folder.path.name}"


def _line(folder: RunFolder, jobs: dict[str, Job]) -> tuple[str, ...]:
    """What stands behind the name of a run.

    Raises:
        FarsightError: a file of it is damaged.
    """
    folder.check_finished()
    holder = _holder(folder)
    # asked before the rows are read, so that those of before are never taken for new ones
    earlier = holder is not None and left_by_earlier_start(folder)
    starts = read_rows(folder.restarts) if folder.restarts.is_file() else []
    rows = read_rows(folder.metrics) if folder.metrics.is_file() else []
    steps = load(folder.config, [])[0].trainer.max_steps
    reached = progress(folder, rows, steps)
    job = _job(folder, holder, jobs)
    trains = not earlier and goes_beyond(folder, rows, starts)
    state = _state(folder, job, bool(holder), bool(rows), trains)
    unseen = state == _STARTING and holder is None and not folder.trained.is_file()
    if rows and (earlier or unseen):
        # those of before are no progress of this start: it goes on from a checkpoint, or anew
        reached = (f"-/{steps}", *("-",) * 5)
    *now, left = reached
    active = job is not None and job.active
    return (
        state,
        *now,
        str(len(starts) + earlier),
        left,
        job.number if job is not None else "-",
        job.left if job is not None and active else "-",
        job.why if job is not None else "-",
    )


def _state(folder: RunFolder, job: Job | None, held: bool, begun: bool, trains: bool) -> str:
    """In a word; `begun` if any start has left rows, `trains` if the present one has."""
    if folder.finished:
        return "done"
    if job is not None and job.state == WAITING:
        return "waiting"
    if job is not None and not job.active and job.state not in ("COMPLETED", "PREEMPTED"):
        return job.state.lower().replace("_", " ")
    if job is not None and job.active and not held:
        # its ranks have not come that far, or have ended
        known = job.state in (RUNNING, "CONFIGURING")
        return _STARTING if known else job.state.lower().replace("_", " ")
    if held if job is None else job.active:
        if folder.trained.is_file():
            return "evaluating"
        return "training" if trains else _STARTING
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
