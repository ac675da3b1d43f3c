"""Every command of the page on SLURM does what the page says: it runs, in order, on a cluster.

In a copy of the project whose configurations are small. What a reader fills in (JOB, CONFIG) and
what this cluster is too small for is replaced, in `FILLED`; what needs a network or a container is
named in `SKIPPED` with the reason. A command that is neither run nor named fails the test.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pipeline.config.compose import load
from tests.distributed.ranks import ROOT
from tests.launch.made_study import write_study
from tests.record.fake_wandb import FakeWandb
from tests.record.mirroring import KEY
from tests.slurm.cluster import fact, wait_for

PAGE = (ROOT / "slurm" / "README.md").read_text()
PROGRAMS = (
    "make", "source", "python", "sbatch", "sacct", "scontrol", "scancel", "squeue", "srun",
    "docker", "apptainer", "enroot", "wandb", "torchrun", "pip",
)  # fmt: skip
CODE = re.compile(r"^```\n(.*?)^```|`([^`]+)`", re.DOTALL | re.MULTILINE)

NETWORK, CONTAINER = "needs a network", "needs Docker or a container runtime"
OURS = "is what the batch scripts do, not what a reader types"
SKIPPED = {
    "make install": f"{NETWORK}; its environment is that of the tests",
    "wandb login": f"{NETWORK}; the key is in the environment",
    "sacct -j <job id>": "needs the accounting database of a site",
    "docker build -t farsight .": CONTAINER,
    "apptainer build farsight.sif docker-daemon://farsight:latest": CONTAINER,
    "enroot import -o farsight.sqsh dockerd://farsight:latest": CONTAINER,
    "scontrol requeue": OURS,
    "scontrol show hostnames": OURS,
    "srun --kill-on-bad-exit=1": OURS,
}
# what a node of two CPUs has no room for, and what a reader knows and the page does not say
FILLED = {
    "--ntasks-per-node=8": "--ntasks-per-node=1",
    "--array=0-17%4": "--array=0-1%4",
    "sbatch --ntasks": "sbatch --cpus-per-task=1 --ntasks",
    "sbatch --nodes": "sbatch --cpus-per-task=1 --nodes",
    "sbatch --array": "sbatch --cpus-per-task=1 --array",
    "submit CONFIG": "submit configs/compare.yaml experiment=large",
    " CONFIG": " configs/compare.yaml",
}
LENGTHS = "train_length: 512\neval_lengths: [256, 512]\n"
ENDLESS = "python -m pipeline submit configs/compare.yaml position=rope trainer.max_steps=1000000"


def commands() -> list[str]:
    """In the order of the page: the lines of its blocks, and what stands in `...` and begins with
    a program, or is what `submit` or the smoke run may be given."""
    found: list[str] = []
    for block, words in CODE.findall(PAGE):
        found += block.splitlines()
        words = " ".join(words.split())
        if words.partition(" ")[0] in PROGRAMS and " " in words:
            found.append(words)
        elif words.startswith("--sbatch="):
            found.append(f"python -m pipeline submit CONFIG position=rope {words}")
        elif re.fullmatch(r"--nodes=\d+ --ntasks-per-node=\d+", words):
            found.append(f"sbatch {words} slurm/smoke.sbatch")
    return [*dict.fromkeys(found)]


@dataclass
class Reader:
    """Types commands into one shell: what was sourced stays so."""

    folder: Path
    environment: dict[str, str]
    sourced: list[str] = field(default_factory=list)

    def types(self, command: str, job: str = "") -> str:
        """Type one, filled in; returns what it said. It must succeed."""
        for told, filled in FILLED.items():
            command = command.replace(told, filled)
        command = re.sub(r"<job id>|\bJOB\b|\b12(?=_0)", job, command)
        done = subprocess.run(
            ["bash", "-c", "\n".join(["set -e", *self.sourced, command])], cwd=self.folder,
            env=self.environment, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        if command.startswith("source"):
            self.sourced.append(command.partition("&&")[0])
        return done.stdout

    def finishes(self, said: str) -> str:
        """Wait for a job that was just handed over, and see that all its tasks succeeded."""
        job = submitted(said)
        wait_for(lambda: not {fact(task, "JobState") for task in tasks(job)} & LIVING, 300.0)
        for task in tasks(job):
            logs = "".join(log.read_text()[-3000:] for log in self.folder.glob(f"slurm-*{job}*"))
            assert fact(task, "JobState") == "COMPLETED", logs
        return job


LIVING = {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING"}


def submitted(said: str) -> str:
    """The number of a job, as sbatch or `submit` said it."""
    found = re.search(r"^(?:Submitted batch job|job) (\d+)", said, re.MULTILINE)
    assert found, said
    return found[1]


def tasks(job: str) -> list[str]:
    """A job alone, or the tasks of an array."""
    done = subprocess.run(
        ["squeue", "-h", "-r", "-t", "all", "-j", job, "-o", "%i"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.split()


@pytest.fixture
def reader(lab: None, tmp_path: Path) -> Iterator[Reader]:
    """Somebody in the top folder of a copy whose studies are small, with a key and a server."""
    top = tmp_path / "farsight"
    for name in ("pipeline", "configs", "slurm"):
        shutil.copytree(ROOT / name, top / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "train.py", top)
    (top / ".venv").symlink_to(sys.prefix)
    small = write_study(tmp_path, "rope, alibi").read_text().replace(f"{tmp_path}/runs", "runs")
    small = re.sub("train_length: .*\neval_lengths: .*\n", LENGTHS, small)
    small = re.sub("wandb: .*\n", "", small)
    alone = small.replace(
        "trainer: {", "trainer: {processes: 1, sequence_parallel: 1, threads: 1, "
    )
    for name, text in (("compare", alone), ("smoke", small), ("long", small)):
        named = text.replace("experiment: path", f"experiment: {name}")
        (top / "configs" / f"{name}.yaml").write_text(named)
    with FakeWandb() as server:
        own = {"WANDB_API_KEY": KEY, "WANDB_BASE_URL": server.url, "HOME": str(tmp_path)}
        given = {
            k: v for k, v in os.environ.items() if not re.match("WANDB_|PYTHONPATH|VIRTUAL", k)
        }
        yield Reader(top, {**given, **own})
        jobs = subprocess.run(["squeue", "-h", "-o", "%A"], capture_output=True, text=True)
        subprocess.run(["scancel", *jobs.stdout.split()], check=False)


def test_what_is_filled_in_is_true_of_the_real_study() -> None:
    """The array of the page is that of its study, and the run that it evaluates is one of these."""
    runs = load(ROOT / "configs" / "compare.yaml", [])
    assert f"--array=0-{len(runs) - 1}%4" in PAGE
    found = {f"{r.experiment}/{r.position['name']}-L{r.train_length}-s{r.seed}" for r in runs}
    assert set(re.findall(r"runs/(\w+/[\w-]+-L\d+-s\d+)", PAGE)) <= found
    (long,) = load(ROOT / "configs" / "long.yaml", ["position=alibi", "trainer.nodes=2"])
    assert long.trainer.processes == 8 and 16 % long.trainer.sequence_parallel == 0


@pytest.mark.slow
@pytest.mark.distributed
def test_the_commands_of_the_page_run(reader: Reader) -> None:
    found = commands()
    assert SKIPPED.keys() <= set(found) and len(found) - len(SKIPPED) >= 22
    job = ""
    for command in found:
        if command in SKIPPED:
            print(f"not run: {command}: {SKIPPED[command]}")
        elif command.startswith("scancel"):
            job = ends(reader, command, job)
        elif "sbatch" in command:
            job = hands_over(reader, command)
        else:
            said = reader.types(command, job)
            print(f"run: {command}\n{said[-300:]}")
            if "watch" in command:
                assert all(" done " in line for line in said.rstrip().splitlines()[-2:])
    assert (reader.folder / "report" / "index.html").is_file()


def hands_over(reader: Reader, command: str) -> str:
    """Give a job to SLURM and wait for its end; `watch` waits for that of the study."""
    runs = reader.folder / "runs" / "compare"
    if "train.sbatch configs/compare.yaml" in command:
        # or there is nothing left to train
        shutil.rmtree(runs)
    said = reader.types(command)
    print(f"run: {command}")
    if "--dry-run" in command:
        assert said.splitlines()[-1].startswith("sbatch ") and not runs.exists()
        return ""
    if "submit" in command and "--array" in command:
        return submitted(said)
    job = reader.finishes(said)
    if "smoke" in command:
        assert [*reader.folder.glob(f"build/smoke-{job}/smoke/*/finished")]
    return job


def ends(reader: Reader, command: str, job: str) -> str:
    """Send a signal to a job that trains for ever, and see it requeued; or end it for good."""
    if "--signal" not in command:
        reader.types(command, job)
        print(f"run: {command}")
        wait_for(lambda: fact(tasks(job)[0], "JobState") == "CANCELLED")
        return job
    # one that trains already would slow what follows
    subprocess.run(["scancel", job], check=False, capture_output=True)
    name = f"endless{job}"
    array = "--array" if "_0" in command else ""
    job = submitted(reader.types(f"{ENDLESS} experiment={name} {array}"))
    task = f"{job}_0" if array else job
    metrics = reader.folder / "runs" / name / "rope-L512-s0" / "metrics.jsonl"
    wait_for(metrics.is_file, 180.0)
    reader.types(command, job)
    print(f"run: {command}")
    wait_for(lambda: fact(task, "Restarts") == "1", 180.0)
    return job
