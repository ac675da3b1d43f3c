"""Segments that were written offline go to the server once."""

import json
import shutil
from pathlib import Path

import pytest

from pipeline.launch.cli import main
from pipeline.record import lock
from tests.record.fake_wandb import FakeWandb
from tests.record.mirroring import KEY, ROWS, mirror


def test_every_segment_is_sent_once(
    folder: Path,
    server: FakeWandb,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """While a job writes, its newest segment waits; what failed is sent by the next call."""
    lock.release(folder / "lock")
    mirror(folder, rows=ROWS[:2], exit_code=85, WANDB_MODE="offline")
    mirror(folder, rows=ROWS[2:5], WANDB_MODE="offline")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_INIT_TIMEOUT", "3")

    lock.take(folder / "lock")
    monkeypatch.setenv("WANDB_BASE_URL", server.url)
    assert main(["sync", str(folder)]) == 0
    assert "1 of 1 segments sent now" in capsys.readouterr().out
    assert [row["train/step"] for row in server.only_run().rows] == [1, 2]

    lock.release(folder / "lock")
    assert main(["sync", str(folder)]) == 0
    assert "1 of 2 segments sent now" in capsys.readouterr().out
    assert main(["sync", str(folder)]) == 0
    assert "0 of 2 segments sent now" in capsys.readouterr().out
    assert [row["train/step"] for row in server.only_run().rows] == [1, 2, 3, 4, 5]
    assert len(json.loads((folder / "wandb" / "sent.json").read_text())) == 2


def test_of_a_start_that_was_killed_what_is_whole_is_sent_once(
    folder: Path,
    server: FakeWandb,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lock.release(folder / "lock")
    mirror(folder, rows=ROWS[:5], WANDB_MODE="offline")
    (segment,) = (folder / "wandb").glob("offline-run-*/run-*.wandb")
    content = segment.read_bytes()
    segment.write_bytes(content[: content.rindex(b"train/step") + 4])
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("WANDB_BASE_URL", server.url)
    for now in (1, 0):
        assert main(["sync", str(folder)]) == 0
        assert f"{now} of 1 segments sent now" in capsys.readouterr().out
        steps = [row["train/step"] for row in server.only_run().rows]
        assert steps and steps == list(range(1, len(steps) + 1))


def test_what_was_not_taken_is_said_and_not_noted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lock.release(folder / "lock")
    mirror(folder, rows=ROWS[:2], WANDB_MODE="offline")
    for name in ("WANDB_API_KEY", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(folder.parent))
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    assert main(["sync", str(folder)]) == 1
    said = capsys.readouterr().err
    assert "W&B did not take it" in said and ".." not in said.partition("did not take it")[2]
    assert not (folder / "wandb" / "sent.json").exists()


def test_a_reader_who_has_enough_does_not_end_the_sending(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Results come when all is sent; until then each is said on standard error."""
    lock.release(folder / "lock")
    other = folder.with_name("other")
    shutil.copytree(folder, other)
    for number in (1, 2):
        segment = folder / "wandb" / f"offline-run-{number}" / "run-x.wandb"
        segment.parent.mkdir(parents=True)
        segment.write_text(str(number))
    out = list[str]()
    monkeypatch.setattr("pipeline.launch.sync._send", lambda _: out.append(capsys.readouterr().out))
    assert main(["sync", str(other), str(folder)]) == 0
    assert out == ["", ""]
    said = capsys.readouterr()
    assert said.err == f"{folder}/wandb/offline-run-2 is sent\n"
    assert said.out.splitlines() == [
        f"{other}: nothing to send",
        f"{folder}: 2 of 2 segments sent now, the others before",
    ]
