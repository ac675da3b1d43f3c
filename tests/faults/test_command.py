"""How `train` ends where the disk is full, or no checkpoint can be used: code, words, and what is
left."""

import re
import shutil
from pathlib import Path
from time import process_time
from types import SimpleNamespace

import pytest

from pipeline.checkpoint.state import find_state
from pipeline.launch import as_rank, study
from pipeline.launch.cli import main
from pipeline.record.metrics import read_rows
from tests.checkpoint.made_states import flip_bit
from tests.distributed.ranks import ROOT
from tests.faults.inject import ranks_as
from tests.faults.test_hang import left_after
from tests.faults.written import FREE
from tests.launch.made_study import command, write_study
from tests.launch.test_resuming import contents

DEMO = str(ROOT / "configs" / "demo.yaml")
REFUSING = "tests.faults.refusing_rank"
SETTINGS = ("trainer.save_every=1", "trainer.log_every=1", "trainer.keep=9")


@pytest.mark.parametrize("launcher", ["own", "srun"])
def test_a_volume_without_room_is_refused_before_anything_is_done(
    launcher: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """That of `runs`: where the command is given there is room."""
    target = tmp_path / "target"
    target.mkdir()
    monkeypatch.chdir(tmp_path)
    for name in ("RANK", "WORLD_SIZE", "SLURM_STEP_ID"):
        monkeypatch.delenv(name, raising=False)
    if launcher == "srun":
        rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}
        for name, value in {**rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}.items():
            monkeypatch.setenv(name, value)
        for name in ("listen", "end_alone"):
            monkeypatch.setattr(f"pipeline.parallel.stop.StopRequest.{name}", lambda *_: None)

    def usage(place: Path) -> SimpleNamespace:
        return SimpleNamespace(free=1000 if target in (place, *place.parents) else 10**15)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    # what would come next
    monkeypatch.setattr(study, "prepare_all", lambda runs: pytest.fail("it went on"))
    monkeypatch.setattr(as_rank, "set_up", lambda config: pytest.fail("it went on"))
    began = process_time()
    assert main(["train", DEMO, "--task", "0", f"runs={target}"]) == 74
    # seconds of this process, whatever else the machine does
    assert process_time() - began < 5.0
    said = capsys.readouterr().err
    assert said.startswith(f"error: {target}/demo/") and said.count("\n") == 1
    assert "1000 bytes are free there, and the checkpoints of" in said
    assert list(tmp_path.rglob("*")) == [target]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_study(tmp_path, "rope")
    return tmp_path / "runs" / "path" / "rope-L33-s0"


def test_refused_rows_end_all_ranks_and_bad_checkpoints_the_next_start(run: Path) -> None:
    """Of six steps, each with a row and then a checkpoint."""
    path = run.parents[2] / "study.yaml"
    program = ranks_as(REFUSING, "metrics.jsonl", "700")
    done = command("-c", program, "train", path, *SETTINGS, expect=74)
    # the first may stand behind a bar of progress
    first, second = (line for line in done.stderr.splitlines() if "error: " in line)
    assert f"error: {run}/metrics.jsonl: " in first and FREE.search(first)
    assert second == "error: rank 0 stopped with exit code 74; see above"
    # the other rank may say that it lost this one
    assert "[rank0]" not in done.stderr and left_after(str(run)) == []
    found = find_state(run / "checkpoints")
    assert found is not None and found.bad == () and not (run / "lock").exists()
    steps = [row["step"] for row in read_rows(run / "metrics.jsonl")]
    assert steps == list(range(1, found.manifest["step"] + 1)) and 1 < len(steps) < 6

    for folder in (run / "checkpoints").glob("step-*"):
        flip_bit(folder / "weights.pt")
    before = contents(run)
    said = command("train.py", path, *SETTINGS, expect=3).stderr.splitlines()
    for step in steps:
        assert any(f"step-{step}/weights.pt: sha256" in line for line in said)
    # all ranks end so, and the launcher names the first that it sees
    assert re.fullmatch(r"error: rank [01] stopped with exit code 3; see above", said[-1])
    assert contents(run) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["trained.json", "summary.json", "finished", "weights.pt", "rows.jsonl"]
)
def test_whatever_was_refused_the_same_command_comes_to_the_end(name: str, run: Path) -> None:
    path = run.parents[2] / "study.yaml"
    done = command("-c", ranks_as(REFUSING, name, "1"), "train", path, *SETTINGS, expect=74)
    assert f"error: {run}" in done.stderr and "[rank0]" not in done.stderr
    found = find_state(run / "checkpoints")
    assert found is None or found.bad == ()
    assert not (run / "finished").exists() and left_after(str(run)) == []
    command("train.py", path, *SETTINGS)
    assert (run / "finished").exists() and len(read_rows(run / "evaluation" / "rows.jsonl")) > 9
