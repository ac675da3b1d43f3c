"""Building a folder so that nobody ever sees half of it."""

import fcntl
import os
import socket
from pathlib import Path

import pytest

from pipeline.config.durable import write_file
from pipeline.data.folders import building
from pipeline.errors import StorageError


def build(folder: Path, content: str) -> bool:
    with building(folder) as partial:
        if partial is not None:
            (partial / "file").write_text(content)
        return partial is not None


def test_the_folder_appears_whole(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "prepared"
    with building(folder) as partial:
        assert partial is not None
        (partial / "file").write_text("new")
        assert not folder.exists()
    assert (folder / "file").read_text() == "new"
    assert os.listdir(folder.parent) == ["prepared"]
    assert folder.stat().st_mode & 0o700 == 0o700
    assert not build(folder, "again")
    assert (folder / "file").read_text() == "new"


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyError), building(tmp_path / "prepared") as partial:
        assert partial is not None
        (partial / "file").write_text("half")
        raise KeyError
    assert os.listdir(tmp_path) == []


def test_what_a_killed_builder_left_is_cleared(tmp_path: Path) -> None:
    for host in (socket.gethostname(), "another-machine"):
        stale = tmp_path / f"prepared.{host}-123.partial"
        stale.mkdir()
        (stale / "file").write_text("half")
    assert build(tmp_path / "prepared", "whole")
    assert sorted(os.listdir(tmp_path)) == ["prepared", "prepared.another-machine-123.partial"]


def test_without_locks_the_first_to_finish_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    running = tmp_path / f"prepared.{socket.gethostname()}-123.partial"
    running.mkdir()
    with building(tmp_path / "prepared") as partial:
        assert partial is not None
        (partial / "file").write_text("second")
        (tmp_path / "prepared").mkdir()
        (tmp_path / "prepared" / "file").write_text("first")
    assert (tmp_path / "prepared" / "file").read_text() == "first"
    assert running.exists(), "without a lock it may belong to a builder at work"
    assert not partial.exists()


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    with (
        pytest.raises(StorageError, match=r"prepared: .*No space left"),
        building(tmp_path / "prepared") as partial,
    ):
        assert partial is not None
        raise OSError(28, "No space left on device")
    assert os.listdir(tmp_path) == []


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file.*data.prepared"):
        build(tmp_path / "file" / "prepared", "x")


def test_a_file_is_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_file(tmp_path / "a", b"old")
    write_file(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"new"

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_file(tmp_path / "a", b"newer")
    assert (tmp_path / "a").read_bytes() == b"new"
