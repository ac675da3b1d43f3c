"""Jobs of a real cluster that are stopped in every way end as ones that never were."""

import os
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.record.fake_wandb import FakeWandb
from tests.record.mirroring import KEY
from tests.slurm.cluster import Study, fact, same, scontrol, signal_job, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.distributed, pytest.mark.usefixtures("lab")]
STEPS = 240
ALONE = "trainer.sequence_parallel=1"


@pytest.fixture(scope="module")
def whole(lab: None, tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Four encodings, one task of an array each, that nobody stops."""
    study = Study(tmp_path_factory.mktemp("whole"), "rope, alibi, t5, none", STEPS)
    job = study.submit("--array", ALONE)
    for task in range(4):
        study.finish(f"{job}_{task}")
    assert study.status().count(" done ") == 4
    return study


def test_one_task_of_an_array_is_requeued_alone(whole: Study, tmp_path: Path) -> None:
    study = Study(tmp_path, "rope, alibi, t5, none", STEPS)
    job = study.submit("--array", ALONE)
    study.reach(20, "none")
    # the last task: its bare number is that of the whole array
    signal_job(f"{job}_3", "USR1")
    for task in range(4):
        assert "goes on from" not in study.finish(f"{job}_{task}") or task == 3
        assert fact(f"{job}_{task}", "Restarts") == str(int(task == 3))
    for position in ("rope", "alibi", "t5", "none"):
        same(study, whole, position)
    assert [len(study.restarts(position)) for position in ("t5", "none")] == [0, 1]


def test_stopped_until_no_more_requeues_are_left_and_submitted_again(
    whole: Study, tmp_path: Path
) -> None:
    """With a loader process and W&B, which get every signal too."""
    study = Study(tmp_path, "rope", STEPS, FARSIGHT_MAX_REQUEUES="3")
    more = (ALONE, "data.workers=1")
    job = study.submit(*more)
    stops: list[int] = []
    for number in range(4):
        study.reach((stops or [0])[-1] + 20)
        signal_job(job, "USR1")
        wait_for(lambda: fact(job, "JobState") in ("PENDING", "FAILED"))
        stops.append(study.rows()[-1]["step"])
        assert fact(job, "Restarts") == str(min(number + 1, 3))
    assert "started again 3 times already" in study.finish(job)
    assert (fact(job, "JobState"), fact(job, "ExitCode")) == ("FAILED", "85:0")
    assert " failed " in study.status()
    study.finish(study.submit(*more))
    assert study.restarts() == stops
    same(study, whole)
    assert not list(tmp_path.glob("slurm-*.marker*"))
    every_step_is_sent_once(study, starts=5)


def every_step_is_sent_once(study: Study, starts: int) -> None:
    with FakeWandb() as server:
        key = {"WANDB_API_KEY": KEY, "WANDB_BASE_URL": server.url}
        said = study.python("-m", "pipeline", "sync", study.folder / "runs", **key)
        assert f"{starts} of {starts} segments" in said
        sent = list(server.only_run().rows)
        again = study.python("-m", "pipeline", "sync", study.folder / "runs", **key)
        assert f"0 of {starts} segments" in again and server.only_run().rows == sent
    steps = Counter(row["train/step"] for row in sent if "train/step" in row)
    assert steps == Counter(range(1, STEPS + 1))
    losses = {row["step"]: row["loss"] for row in study.rows() if row["kind"] == "train"}
    for row in sent:
        if "train/step" in row:
            assert row["train/loss"] == losses[row["train/step"]]


def test_two_nodes_share_a_sequence_and_lose_their_nodes(tmp_path: Path) -> None:
    """Preempted with a warning and without one, and a node that goes down: `whole` ran on none."""
    for name in ("alone", "jobs"):
        (tmp_path / name).mkdir()
    alone = Study(tmp_path / "alone", "rope", STEPS, processes=2)
    alone.python("-m", "pipeline", "train", alone.file, *alone.settings)
    study = Study(tmp_path / "jobs", "rope", STEPS, processes=1)
    job = study.submit("trainer.nodes=2", "trainer.sequence_parallel=2")
    stops: list[int] = []
    for event in (preempt, preempt_without_a_warning, take_down):
        study.reach((stops or [0])[-1] + 20)
        event(job)
        wait_for(lambda: fact(job, "JobState") in ("PENDING", "FAILED"))
        stops.append(study.rows()[-1]["step"])
    log = study.finish(job)
    assert (fact(job, "JobState"), fact(job, "Restarts")) == ("COMPLETED", "3"), log
    assert "2 nodes x 1 ranks" in log
    assert study.restarts() == stops
    same(study, alone)
    every_step_is_sent_once(study, starts=4)


def preempt(job: str) -> None:
    """A short job of the partition that goes first wants all nodes."""
    command = ["sbatch", "--parsable", "--partition=high", "--nodes=3", "--exclusive"]
    subprocess.run([*command, "--output=/dev/null", "--wrap=sleep 1"], check=True)


def preempt_without_a_warning(job: str) -> None:
    """As most sites: SIGTERM alone."""
    conf = Path(os.environ["SLURM_CONF"])
    conf.write_text(conf.read_text().replace("SlurmctldParameters=", "#SlurmctldParameters="))
    scontrol("reconfigure")
    preempt(job)


def take_down(job: str) -> None:
    scontrol("update", "nodename=lab2", "state=down", "reason=test")
    wait_for(lambda: fact(job, "JobState") == "PENDING")
    # unless it has come back by itself
    subprocess.run(["scontrol", "update", "nodename=lab2", "state=resume"], check=False)


def test_the_time_limit_is_only_an_interruption(tmp_path: Path) -> None:
    """Of a training that goes on for longer than this test."""
    study = Study(tmp_path, "rope", 1_000_000)
    job = study.submit(ALONE, sbatch=("--time=2", "--signal=USR1@60"))
    wait_for(study.restarts, 200.0)
    (stopped,) = study.restarts()
    study.reach(stopped + 20)
    subprocess.run(["scancel", job], check=True)
    study.finish(job)
    assert (fact(job, "JobState"), fact(job, "Restarts")) == ("CANCELLED", "1")
    steps = [row["step"] for row in study.rows()]
    assert steps == list(range(1, len(steps) + 1)) and len(steps) >= stopped + 20


def test_what_fails_ends_the_job_with_its_code(tmp_path: Path) -> None:
    study = Study(tmp_path, "rope", STEPS)
    job = study.submit("trainer.nodes=2", "trainer.sequence_parallel=2", sbatch=("--time=5",))
    study.reach(5)
    config = study.run() / "config.yaml"
    assert fact(job, "JobState") == "RUNNING" and config.is_file()
    ranks = subprocess.run(
        ["pgrep", "--full", f"train.py {study.run()} "], capture_output=True, text=True
    )
    os.kill(int(ranks.stdout.split()[-1]), signal.SIGKILL)
    study.finish(job)
    assert (fact(job, "JobState"), fact(job, "Restarts")) == ("FAILED", "0")
    config.write_text(config.read_text().replace("seed: 0", "seed: x"))
    spoiled = study.sbatch(study.run())
    assert "`seed`" in study.finish(spoiled)
    assert (fact(spoiled, "ExitCode"), fact(spoiled, "Restarts")) == ("2:0", "0")
