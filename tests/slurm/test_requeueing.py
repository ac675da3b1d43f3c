"""When a batch script starts its job again, and when not; with stand-ins for SLURM."""

from pathlib import Path

import pytest

from tests.architecture.tree import ROOT
from tests.slurm.batch_job import Job


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


@pytest.fixture
def asked(job: Job, tmp_path: Path) -> Job:
    """A job, in a folder of its own, whose ranks were asked to stop after step 7."""
    job.env.update(
        FARSIGHT_CODE=str(ROOT),
        SLURM_SUBMIT_DIR=str(tmp_path),
        TOLD="85 after step 7",
        SRUN_CODE="143",
    )
    return job


@pytest.mark.parametrize(
    ("array", "number"),
    [({}, "1234567"), ({"SLURM_ARRAY_JOB_ID": "99", "SLURM_ARRAY_TASK_ID": "3"}, "99_3")],
)
def test_a_job_that_was_asked_to_stop_is_requeued(
    asked: Job, array: dict[str, str], number: str, tmp_path: Path
) -> None:
    """By its number in the array: the bare one of the last task is that of the whole array."""
    asked.env.update(array)
    done = asked.run("train.sbatch", "c.yaml")
    assert done.returncode == 85
    state = ["show", "job", "-o", number]
    assert asked.every("scontrol") == ["show", "hostnames", "node[7-8]", *state, "requeue", number]
    assert f"job {number} is requeued; it stopped after step 7" in done.stdout
    assert (tmp_path / f"slurm-{number}.progress").read_text() == "after step 7\n"


@pytest.mark.parametrize("state", ["COMPLETING", "CANCELLED"])
def test_a_job_that_was_cancelled_stays_so(asked: Job, state: str) -> None:
    scontrol = Path(asked.env["PATH"].split(":")[0]) / "scontrol"
    recorded = scontrol.read_text().replace("echo node8", f"echo x JobState={state} y")
    scontrol.write_text(recorded)
    done = asked.run("train.sbatch", "c.yaml")
    assert done.returncode == 85 and "is being ended" in done.stderr
    assert "requeue" not in asked.every("scontrol")
    nothing_is_left(asked)


def nothing_is_left(job: Job) -> None:
    assert not list(Path(job.env["SLURM_SUBMIT_DIR"]).glob("slurm-*"))


def requeues(job: Job, progress: list[str], **env: str) -> int:
    """How often scontrol was asked to requeue a job whose starts came so far."""
    job.env.update(env)
    for restart, how_far in enumerate(progress):
        job.env.update(SLURM_RESTART_COUNT=str(restart), TOLD=f"85 after {how_far}")
        before = job.every("scontrol").count("requeue") if restart else 0
        assert job.run("train.sbatch", "c.yaml").returncode == 85
        if job.every("scontrol").count("requeue") == before:
            nothing_is_left(job)
            return before
    return job.every("scontrol").count("requeue")


def test_a_job_is_requeued_twenty_times(asked: Job) -> None:
    assert requeues(asked, [f"step {n}" for n in range(23)]) == 20


def test_the_most_requeues_can_be_set(asked: Job) -> None:
    assert requeues(asked, ["step 1", "step 2", "step 3", "x"], FARSIGHT_MAX_REQUEUES="2") == 2


def test_two_starts_in_vain_are_the_last(asked: Job) -> None:
    assert requeues(asked, ["step 3", "step 9", "step 9", "step 9", "step 9"]) == 3
    # a job of the same number, started anew, has a history of its own
    assert requeues(asked, ["step 9"]) == 4


@pytest.mark.parametrize("told", ["1", "2", "3", "4", "74"])
def test_what_failed_is_not_requeued_and_says_its_code(asked: Job, told: str) -> None:
    asked.env["TOLD"] = told
    assert asked.run("train.sbatch", "c.yaml").returncode == int(told)
    assert "requeue" not in asked.every("scontrol")
    nothing_is_left(asked)


def test_a_start_that_is_refused_leaves_nothing(asked: Job) -> None:
    assert asked.run("train.sbatch", "c.yaml").returncode == 85
    asked.env.update(SLURM_RESTART_COUNT="1", FARSIGHT_VENV="/nowhere")
    assert asked.run("train.sbatch", "c.yaml").returncode == 2
    nothing_is_left(asked)


def test_ranks_that_said_nothing_are_not_requeued(asked: Job) -> None:
    asked.env["TOLD"] = ""
    assert asked.run("train.sbatch", "c.yaml").returncode == 143
    assert "requeue" not in asked.every("scontrol")


def test_a_job_that_cannot_be_requeued_says_so(asked: Job) -> None:
    scontrol = Path(asked.env["PATH"].split(":")[0]) / "scontrol"
    scontrol.write_text('#!/bin/bash\n[ "$1" = show ] && echo node7\n')
    done = asked.run("train.sbatch", "c.yaml")
    assert done.returncode == 85
    assert "it stopped after step 7; submit it again to go on from there" in done.stderr
    nothing_is_left(asked)
