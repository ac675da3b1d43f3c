"""What `submit` checks, keeps and hands over, with a stand-in for sbatch and squeue."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.launch.cli import main
from pipeline.record.folder import RunFolder
from tests.architecture.tree import ROOT
from tests.launch.made_study import write_study

OWN = ("trainer.processes=4", "trainer.nodes=2", "trainer.sequence_parallel=4", "trainer.threads=3")
SHAPE = ["--nodes=2", "--ntasks-per-node=4", "--cpus-per-task=3"]


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study of two encodings; what sbatch got is in the file `sbatch`, squeue shows `squeue`."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (tmp_path / "squeue").touch()
    for name, does in (
        ("sbatch", f'printf \'%s\\n\' "$FARSIGHT_CODE" "$@" > {tmp_path}/sbatch; echo 77'),
        ("squeue", f"cat {tmp_path}/squeue"),
    ):
        (programs / name).write_text(f"#!/bin/bash\n{does}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return write_study(tmp_path, "rope, alibi")


def handed_over(folder: Path) -> list[str]:
    return (folder / "sbatch").read_text().splitlines()


def test_a_dry_run_says_all_and_does_nothing(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(study.parent.iterdir())
    assert main(["submit", str(study), *OWN, "--array", "--at-once", "1", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "# rope-L33-s0: " in said and "# alibi-L33-s0: " in said
    assert f"sbatch {' '.join(SHAPE)} --array=0-1%1 slurm/sweep.sbatch" in said
    assert sorted(study.parent.iterdir()) == before


def test_an_array_has_a_task_for_every_run_that_is_left(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--array", "--sbatch", "--time=5 --qos='a b'"]
    assert main(["submit", str(study), *OWN, *more]) == 0
    code, *command = handed_over(study.parent)
    listed = command[-1]
    assert not Path(listed).name.endswith("-1.txt")
    shape = ["--parsable", "--export=ALL", *SHAPE, "--time=5", "--qos=a b", "--array=0-1"]
    assert command == [*shape, f"{code}/slurm/sweep.sbatch", listed]
    runs = [Path(line) for line in Path(listed).read_text().splitlines()]
    assert [run.name for run in runs] == ["rope-L33-s0", "alibi-L33-s0"]
    for task, run in enumerate(runs):
        (row,) = map(json.loads, (run / "submitted.jsonl").read_text().splitlines())
        assert (row["job"], row["code"]) == (f"77_{task}", code)
        assert not (run / "lock").exists()
    # one of them waits: the other alone is submitted again
    (study.parent / "squeue").write_text("77_0|77|PENDING|1:00|Priority\n77_1|78|FAILED|0|x\n")
    assert main(["submit", str(study), *OWN, "--array"]) == 0
    assert "rope-L33-s0 is job 77_0, pending; left out" in capsys.readouterr().err
    assert Path(handed_over(study.parent)[-1]).read_text() == f"{runs[1]}\n"


def test_the_job_runs_the_code_and_configuration_of_now(study: Path) -> None:
    assert main(["submit", str(study), "position=rope", "seed=3"]) == 0
    code, *command = handed_over(study.parent)
    run = Path(command[-1])
    assert run.name == "rope-L33-s3" and command[-2] == f"{code}/slurm/train.sbatch"
    for path in ("train.py", "pipeline/launch/submit.py", "configs/base.yaml", "slurm/job.sh"):
        assert (Path(code) / path).read_bytes() == (ROOT / path).read_bytes()
    held = json.loads((run / "environment.json").read_text())["git"]
    ask = "from pipeline.record.environment import environment; print(environment()['git'])"
    copy = {**os.environ, "PYTHONPATH": code}
    said = subprocess.run([sys.executable, "-c", ask], cwd="/", env=copy, capture_output=True)
    assert said.stdout.decode().strip() == str(held)
    study.write_text("position: none")  # edited after it was submitted
    told = [sys.executable, f"{code}/train.py", str(run), "--dry-run"]
    done = subprocess.run(told, env=copy, capture_output=True, text=True)
    assert done.stdout.startswith("# rope-L33-s3: rope: "), done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "names 2 runs; submit them as one --array"),
        (("--array", "--at-once", "0"), "a number above 0"),
        (("--array", "sweep={trainer.nodes: [1, 2]}", "position=rope"), "same trainer.nodes"),
        (("position=rope", "trainer.max_step=3"), "max_step"),
        (("position=rope", "--sbatch=--comment='x"), "--sbatch: No closing quotation"),
        (("position=rope", "--sbatch=--qos=a b"), "word 2 of it is no option"),
        (("position=rope", "--at-once", "4"), "a number above 0, together with --array"),
    ],
)
def test_refused_before_anything_is_written(
    study: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    assert main(["submit", str(study), *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not (study.parent / "runs").exists() and not (study.parent / "sbatch").exists()


def test_two_arrays_of_one_second_have_a_list_each(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.launch.submit.time.strftime", lambda *_: "submitted-now")
    lists = []
    for more in ("seed=1", "seed=2"):
        assert main(["submit", str(study), more, "--array"]) == 0
        lists.append(Path(handed_over(study.parent)[-1]))
    assert [path.name for path in lists] == ["submitted-now.txt", "submitted-now-1.txt"]
    assert ["-s1" in lists[0].read_text(), "-s2" in lists[1].read_text()] == [True, True]


def test_a_number_of_tasks_is_refused_though_none_is_left(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["submit", str(study), "--array"]) == 0
    (study.parent / "squeue").write_text("77_0|77|PENDING|1:00|x\n77_1|78|PENDING|1:00|x\n")
    assert main(["submit", str(study), "--array", "--at-once", "-3"]) == 2
    assert "--at-once -3: a number above 0" in capsys.readouterr().err
    assert main(["submit", str(study), "--array"]) == 0
    assert "nothing to submit" in capsys.readouterr().err


def test_a_damaged_note_of_the_last_job_is_refused(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["submit", str(study), "--array"]) == 0
    (run,) = study.parent.glob("runs/path/rope-*")
    (run / "submitted.jsonl").write_text('{"x": 1}\n')
    assert main(["submit", str(study), "--array"]) == 2
    assert "rope-L33-s0/submitted.jsonl:1: not a row" in capsys.readouterr().err


def test_what_sbatch_says_is_passed_on(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sbatch = study.parent / "programs" / "sbatch"
    words = "printf 'sbatch: error: invalid partition\\nsbatch: error: bad name\\n'"
    sbatch.write_text(f"#!/bin/bash\n{words} >&2\nexit 1\n")
    assert main(["submit", str(study), "position=rope"]) == 2
    said = capsys.readouterr().err
    assert "error: sbatch refused the job: invalid partition; bad name\n" in said
    assert "checking run 1 of 1: rope-L33-s0\n" in said
    run = RunFolder(study.parent / "runs" / "path" / "rope-L33-s0")
    assert not run.submitted.exists()


def test_a_run_folder_that_was_moved_is_refused(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["submit", str(study), "position=rope"]) == 0
    moved = study.parent / "elsewhere"
    (study.parent / "runs" / "path").rename(moved)
    assert main(["train", str(moved / "rope-L33-s0"), "--dry-run"]) == 2
    assert "its experiment is 'path'" in capsys.readouterr().err
