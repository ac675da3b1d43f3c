"""What the environment says of a rank is checked before anything waits for the others."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline.launch.cli import main
from pipeline.launch.commands.listening import listening
from pipeline.record import marker
from tests.distributed.ranks import ROOT

TORCHRUN = {
    "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1",
    "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517",
}  # fmt: skip
SRUN = {
    "SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_LOCALID": "1", "SLURM_NTASKS": "2",
    "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517",
}  # fmt: skip
UNSET = "unset RANK WORLD_SIZE to start the ranks from here"
MEETS = """
import torch.distributed as dist
from pipeline.launch.commands.listening import listening
listening()
print("listens", flush=True)
dist.init_process_group("gloo")
"""


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*TORCHRUN, *SRUN, "TORCHELASTIC_RUN_ID"):
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("given", "name", "value", "said"),
    [
        (
            TORCHRUN,
            "RANK",
            "2",
            "RANK=2 in the environment of this rank: a whole number, from 0 to 1",
        ),
        (TORCHRUN, "RANK", "-1", "RANK=-1"),
        (TORCHRUN, "LOCAL_RANK", None, "LOCAL_RANK is not set"),
        (TORCHRUN, "LOCAL_RANK", "q", "LOCAL_RANK=q"),
        (TORCHRUN, "WORLD_SIZE", "abc", "WORLD_SIZE=abc"),
        (TORCHRUN, "WORLD_SIZE", "0", "WORLD_SIZE=0"),
        (TORCHRUN, "MASTER_ADDR", None, "MASTER_ADDR is not set"),
        (TORCHRUN, "MASTER_PORT", "65536", "MASTER_PORT=65536"),
        (SRUN, "SLURM_NTASKS", None, "SLURM_NTASKS is not set"),
        (SRUN, "SLURM_LOCALID", None, "SLURM_LOCALID is not set"),
        (SRUN, "MASTER_PORT", None, "MASTER_PORT is not set"),
    ],
)
def test_what_no_rank_can_have_is_refused(
    given: dict[str, str], name: str, value: str | None, said: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    for each, text in {**given, name: value}.items():
        if text is not None:
            monkeypatch.setenv(each, text)
    assert main(["train", "configs/smoke.yaml"]) == 2
    error = capsys.readouterr().err
    fix = UNSET if given is TORCHRUN else "unset SLURM_STEP_ID to start the ranks here"
    assert error.startswith(f"error: {said}") and fix in error and error.count("\n") == 1


def test_it_is_refused_before_libraries_stumble_over_it() -> None:
    done = subprocess.run(
        [sys.executable, "train.py", "configs/smoke.yaml"],
        cwd=ROOT, env={**os.environ, **TORCHRUN, "LOCAL_RANK": "q"},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2 and done.stderr.startswith("error: LOCAL_RANK=q")


def test_a_dry_run_needs_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["train", "configs/smoke.yaml", "--dry-run"]) == 0


def test_no_rank_listens_where_there_are_none() -> None:
    assert listening() is None


@pytest.mark.distributed
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_rank_that_waits_for_the_others_ends_when_it_is_asked_to(
    number: int, tmp_path: Path
) -> None:
    told = tmp_path / "marker"
    rank = subprocess.Popen(
        [sys.executable, "-c", MEETS],
        cwd=ROOT, env={**os.environ, **TORCHRUN, marker.MARKER: str(told)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert rank.stdout is not None and rank.stdout.readline() == "listens\n"
    time.sleep(2.0)  # it waits now, in foreign code
    rank.send_signal(number)
    try:
        assert rank.wait(10) == 85
    finally:
        rank.kill()
    said = rank.communicate()[1]
    assert said.endswith("rank 1: stopped as asked before the first step of this "
                         "start; started again, it goes on from there\n")  # fmt: skip
    assert told.read_text() == "85 before the first step of this start\n"
