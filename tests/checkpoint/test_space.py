"""Too little room is known before anything is built."""

import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from pipeline.checkpoint.space import check_space
from pipeline.errors import StorageError

Usage = namedtuple("Usage", "total used free")


@pytest.mark.parametrize(("free", "fits"), [(26399, False), (26400, True)])
def test_two_checkpoints_and_some_more_must_fit(
    free: int, fits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1000 parameters: 12 bytes each, times 2.2; asked of the volume that the run will lie on."""
    asked = []

    def usage(path: Path) -> Usage:
        asked.append(path)
        return Usage(10**9, 0, free)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    if fits:
        check_space(tmp_path / "runs" / "a" / "b", 1000)
    else:
        with pytest.raises(StorageError, match="26399 bytes are free .* need 26400") as caught:
            check_space(tmp_path / "runs" / "a" / "b", 1000)
        assert caught.value.exit_code == 74 and str(tmp_path / "runs") in str(caught.value)
    assert asked == [tmp_path]
    (tmp_path / "runs" / "a" / "b" / "checkpoints").mkdir(parents=True)
    asked.clear()
    if fits:
        check_space(tmp_path / "runs" / "a" / "b", 1000)
        assert asked == [tmp_path / "runs" / "a" / "b" / "checkpoints"]


def test_a_place_that_cannot_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file is not a folder that you may write to"):
        check_space(tmp_path / "file" / "run", 1)
    monkeypatch.setattr("os.access", lambda path, how: False)  # root may write anywhere
    with pytest.raises(StorageError, match="may write to"):
        check_space(tmp_path / "run", 1)
