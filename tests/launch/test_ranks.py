"""How a process learns that it is a rank, and which one."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from pipeline.errors import ConfigError, FarsightError
from pipeline.launch.ranks import (
    adopt_slurm_variables,
    check_one_node,
    check_world,
    is_rank,
    start_ranks,
    threads_per_rank,
)
from tests.distributed.ranks import ROOT
from tests.distributed.toy import toy_config

NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SLURM_STEP_ID",
         "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS")  # fmt: skip


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    """What is tested writes to the environment itself: put it back as it was."""
    saved = dict(os.environ)
    for name in NAMES:
        os.environ.pop(name, None)
    yield
    os.environ.clear()
    os.environ.update(saved)


def slurm(monkeypatch: pytest.MonkeyPatch, **more: str) -> None:
    task = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NTASKS": "8"}
    for name, value in {**task, **more}.items():
        monkeypatch.setenv(name, value)


def test_an_ordinary_process_and_a_batch_script_are_no_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not is_rank()
    monkeypatch.setenv("SLURM_PROCID", "0")
    assert not is_rank()


def test_a_task_of_srun_is_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm(monkeypatch, MASTER_ADDR="node1", MASTER_PORT="15000")
    assert is_rank()
    adopt_slurm_variables()
    adopted = [os.environ[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")]
    assert adopted == ["5", "1", "8"]


def test_torchrun_has_priority_over_srun(monkeypatch: pytest.MonkeyPatch) -> None:
    meets = {"MASTER_ADDR": "node1", "MASTER_PORT": "15000"}
    slurm(monkeypatch, RANK="2", LOCAL_RANK="0", WORLD_SIZE="4", **meets)
    adopt_slurm_variables()
    assert os.environ["RANK"] == "2" and os.environ["WORLD_SIZE"] == "4"


def test_no_meeting_point_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm(monkeypatch, MASTER_ADDR="node1")
    with pytest.raises(ConfigError, match="MASTER_PORT is not set"):
        adopt_slurm_variables()


def test_another_world_than_configured_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    config = toy_config("none", processes=2, nodes=2)
    monkeypatch.setenv("WORLD_SIZE", "4")
    check_world(config)
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(ConfigError, match=r"3 ranks were started, but .* = 4; make them equal"):
        check_world(config)


def test_several_nodes_are_not_started_from_one() -> None:
    check_one_node(toy_config("none"))
    with pytest.raises(ConfigError, match=r"trainer\.nodes=2"):
        check_one_node(toy_config("none", nodes=2))


def test_cores_are_shared_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert threads_per_rank(toy_config("none", processes=3)) == 2
    assert threads_per_rank(toy_config("none", processes=16)) == 1
    assert threads_per_rank(toy_config("none", processes=2, threads=7)) == 7


@pytest.mark.distributed
def test_the_exit_code_of_a_failed_rank_comes_back() -> None:
    """No run folder: rank main refuses with 2, which is not what the launcher itself says."""
    with pytest.raises(FarsightError, match="exit code 2") as caught:
        start_ranks(toy_config("none"), "pipeline.launch.rank", ["train", "absent", "absent"])
    assert caught.value.exit_code == 2


MEET = """import sys, torch.distributed as d
d.init_process_group("gloo")
sys.stdout.write(f"{d.get_world_size()} have met\\n")"""
NAMELESS = ("unshare", "--map-root-user", "--uts", "sh", "-c", 'hostname nowhere && exec "$@"', "")


@pytest.mark.distributed
def test_ranks_meet_where_the_name_of_the_machine_does_not_resolve() -> None:
    if subprocess.run([*NAMELESS, "true"], capture_output=True).returncode:
        pytest.skip("this system lets no process have a host name of its own")
    program = f"""
from pipeline.launch.ranks import start_ranks
from tests.distributed.toy import toy_config
start_ranks(toy_config("none", processes=2), "timeit", ["-n1", "-r1", {MEET!r}])
"""
    done = subprocess.run(
        [*NAMELESS, sys.executable, "-c", program],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("2 have met\n") == 2
