"""How `status` reads run folders and the queue."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pipeline.config.compose import load
from pipeline.errors import ConfigError
from pipeline.launch import status
from pipeline.launch.cli import main
from pipeline.launch.status import Job
from pipeline.launch.watch import watch
from pipeline.record.folder import RunFolder

SMOKE = Path(__file__).parents[2] / "configs" / "smoke.yaml"


def made(runs: Path, position: str) -> RunFolder:
    (config,) = load(SMOKE, [f"runs={runs}", "sweep={}", f"position={position}"])
    folder = RunFolder.create(config, name=f"{position}-L128-s0")
    folder.release()
    return folder


def lines(path: Path, *rows: dict[str, Any]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def trained_to(folder: RunFolder, step: int) -> None:
    row = {"kind": "train", "step": step, "loss": 2.5, "seconds": 60.0 * step, "mfu": 0.614,
           "tokens_per_second": 12345.6, "peak_memory_bytes": 700 * 2**20}  # fmt: skip
    lines(folder.metrics, {**row, "step": 1}, row, {"kind": "spike", "step": step})


def table(runs: Path, jobs: dict[str, Job], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The line of every run, by its name, with single blanks."""
    monkeypatch.setattr(status, "queue", lambda note: jobs)
    _, *found = status.status([runs])[0].splitlines()
    return {line.split()[0]: " ".join(line.split()[1:]) for line in found}


def test_every_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = {
        "7_0": Job("7_0", "RUNNING", "1:00:00", "None"),
        "7_1": Job("7_1", "PENDING", "2:00:00", "Resources"),
        "7_2": Job("7_2", "FAILED", "0:00", "NonZeroExitCode"),
        "7_3": Job("7_3", "RUNNING", "9:00", "None"),
        "7_4": Job("7_4", "COMPLETED", "0:00", "None"),
        "7_5": Job("7_5", "CANCELLED", "0:00", "JobArrayTaskLimit"),
        "7_6": Job("7_6", "RUNNING", "9:00", "None"),
    }
    names = ("rope", "alibi", "t5", "none", "learned", "kerple", "sandwich", "shaw", "xpos")
    folders = {name: made(tmp_path, name) for name in names}
    for number, name in enumerate(names[:7]):
        lines(folders[name].submitted, {"job": "6"}, {"job": f"7_{number}"})
    lines(folders["rope"].restarts, {"step": 4}, {"step": 9})
    folders["learned"].mark_finished()
    trained_to(folders["shaw"], 5)
    trained_to(folders["sandwich"], 5)  # before this start of its job
    for name, step in (("rope", 15), ("none", 20)):
        folders[name].take()
        trained_to(folders[name], step)
    folders["none"].trained.write_text("{}")
    assert table(tmp_path, jobs, monkeypatch) == {
        "smoke/rope-L128-s0": "training 15/20 2.500 12,346 61% 700 MiB 2 0:05:00 7_0 1:00:00 -",
        "smoke/alibi-L128-s0": "waiting 0/20 - - - - 0 - 7_1 2:00:00 Resources",
        "smoke/t5-L128-s0": "failed 0/20 - - - - 0 - 7_2 - NonZeroExitCode",
        "smoke/none-L128-s0": "evaluating 20/20 2.500 12,346 61% 700 MiB 0 - 7_3 9:00 -",
        "smoke/learned-L128-s0": "done 0/20 - - - - 0 - 7_4 - -",
        "smoke/kerple-L128-s0": "cancelled 0/20 - - - - 0 - 7_5 - -",
        "smoke/sandwich-L128-s0": "starting -/20 - - - - 0 - 7_6 9:00 -",
        "smoke/shaw-L128-s0": "stopped 5/20 2.500 12,346 61% 700 MiB 0 0:15:00 - - -",
        "smoke/xpos-L128-s0": "not begun 0/20 - - - - 0 - - - -",
    }


def test_a_run_without_slurm_is_at_work_while_its_lock_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made(tmp_path, "rope")
    folder.take()
    assert table(tmp_path, {}, monkeypatch)["smoke/rope-L128-s0"].startswith("starting ")
    trained_to(folder, 5)
    assert table(tmp_path, {}, monkeypatch)["smoke/rope-L128-s0"].startswith("training 5/20")
    folder.release()
    assert table(tmp_path, {}, monkeypatch)["smoke/rope-L128-s0"].startswith("stopped 5/20")


def mute_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An squeue that only says why it knows nothing."""
    (tmp_path / "squeue").write_text("#!/bin/bash\necho 'fatal: no controller' >&2\nexit 1\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


def test_a_queue_that_does_not_answer_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mute_queue(tmp_path, monkeypatch)
    assert status.queue() is None
    assert "nothing is known of jobs: fatal: no controller" in capsys.readouterr().err


@pytest.mark.parametrize("terminal", [False, True])
def test_watching_ends_when_all_runs_have(
    terminal: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folders, waited = [made(tmp_path, name) for name in ("rope", "alibi")], list[float]()
    monkeypatch.setattr(status, "queue", lambda note: {})
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) > 1:  # nothing changes in the first
            folders.pop().mark_finished()

    monkeypatch.setattr("pipeline.launch.watch.time.sleep", wait)
    watch([tmp_path], 2.0)
    assert waited == [2.0, 2.0, 2.0] and not folders
    said = capsys.readouterr().out
    assert said.count("tokens/s") == (4 if terminal else 3)
    assert said.rstrip().count("done") == 3 and said.startswith("\x1b[H" if terminal else "run ")


def test_watching_ends_when_no_job_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A minute later: a job that is requeued, or files of another node, may be seen late."""
    folders, waited = {name: made(tmp_path, name) for name in ("rope", "alibi", "t5")}, [0.0]
    jobs = {"7": Job("7", "PENDING", "1:00", "Priority"), "8": Job("8", "CANCELLED", "0:00", "x")}
    for name, number in (("rope", "7"), ("alibi", "8"), ("t5", "6")):
        lines(folders[name].submitted, {"job": number})
    folders["t5"].mark_finished()
    monkeypatch.setattr(status, "queue", lambda note: jobs)
    failing = {40.0: "FAILED", 80.0: "RUNNING", 120.0: "FAILED"}

    def wait(seconds: float) -> None:
        waited.append(waited[-1] + seconds)
        assert waited[-1] < 400
        state = failing.get(waited[-1], jobs["7"].state)
        jobs["7"] = Job("7", state, "0:00", "x")

    monkeypatch.setattr("pipeline.launch.watch.time.sleep", wait)
    assert main(["watch", str(tmp_path), "--every", "20"]) == 1
    assert waited[-1] == 180.0
    assert capsys.readouterr().err.splitlines() == [
        "smoke/alibi-L128-s0 is not done, and no job is there for it: cancelled",
        "smoke/rope-L128-s0 is not done, and no job is there for it: failed",
    ]


@pytest.mark.parametrize("what", ["no answer", "not submitted", "outside", "damaged"])
def test_watching_goes_on_where_nobody_knows(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made(tmp_path, "rope")
    jobs = {"8": Job("8", "CANCELLED", "0:00", "None")}
    if what != "not submitted":
        lines(folder.submitted, {"x" if what == "damaged" else "job": "8"})
    if what == "outside":
        folder.take()
    monkeypatch.setattr(status, "queue", lambda note: None if what == "no answer" else jobs)
    found = status.status([tmp_path])
    assert (found.going, found.ended) == (1, [])
    assert "cancelled" not in found.table


BROKEN = [
    ("metrics.jsonl", '{"kind": "spike"}\n{"step": 4}\n', "metrics.jsonl:2: .*KeyError.*kind"),
    ("metrics.jsonl", '{"kind": "train", "step": 4}\n', "metrics.jsonl:1: .*loss"),
    ("metrics.jsonl", '{"kind": "train", "step": 4, "loss": "x"}\n', "metrics.jsonl:1: .*ValueErr"),
    ("metrics.jsonl", '{"kind": "train", "step": 0, "loss": 2.5, "seconds": 1.0, '
     '"tokens_per_second": 1.0}\n', "metrics.jsonl:1: .*ZeroDivision"),
    ("metrics.jsonl", "[]\n", "metrics.jsonl:1: a row must be"),
    ("submitted.jsonl", '{"job": "1"}\n{"x": 1}\n', "submitted.jsonl:2: .*KeyError.*job"),
    ("restarts.jsonl", "{\n", "restarts.jsonl:1: "),
    ("config.yaml", "seed: 1\nposition: rop\n", "config.yaml.*rop"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "text", "message"), BROKEN)
def test_a_damaged_run_is_said_to_be_and_the_others_are_shown(
    file: str, text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained_to(made(tmp_path, "alibi"), 5)
    bad = made(tmp_path, "rope")
    (bad.path / file).write_text(text)
    found = table(tmp_path, {}, monkeypatch)
    assert found["smoke/rope-L128-s0"] == "damaged" + 10 * " -"
    assert found["smoke/alibi-L128-s0"].startswith("stopped 5/20 2.500 ")
    (words,) = status.status([tmp_path])[1]
    assert re.match(f"smoke/rope-L128-s0 is damaged: .*{message}", words)


def test_a_finished_run_of_another_configuration_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In `status`, and once in `watch`, which ends all the same."""
    folders = [made(tmp_path, name) for name in ("rope", "alibi")]
    folders[0].mark_finished()
    folders[0].config.write_text("seed: 1\n")
    monkeypatch.setattr(status, "queue", lambda note: {})
    assert main(["status", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert "smoke/rope-L128-s0   damaged" in said.out and "not begun" in said.out
    assert re.search(r"rope-L128-s0 is damaged: .*config\.yaml was changed after", said.err)
    monkeypatch.setattr("pipeline.launch.watch.time.sleep", lambda _: folders[1].mark_finished())
    watch([tmp_path], 2.0)
    said = capsys.readouterr()
    assert said.out.count("damaged") == 2 and said.err.count("damaged") == 1


def test_a_run_that_is_named_twice_is_shown_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path, "rope")
    (tmp_path / "link").symlink_to(tmp_path / "smoke")
    monkeypatch.setattr(status, "queue", lambda note: {})
    for other in (tmp_path / "smoke" / ".." / "smoke", tmp_path / "link"):
        assert len(status.status([tmp_path / "smoke", other])[0].splitlines()) == 2


@pytest.mark.parametrize("every", [0.0, -1.0, float("nan"), 1e9])
def test_no_time_to_wait_is_refused(every: float, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--every"):
        watch([tmp_path], every)
