"""What a batch script is told about how its ranks ended."""

from pathlib import Path

import pytest

from pipeline.record import marker


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "job.marker"
    monkeypatch.setenv(marker.MARKER, str(path))
    return path


def test_the_first_word_stays(told: Path) -> None:
    """The first failure is the cause of the others."""
    marker.leave(4)
    marker.leave(1)
    assert told.read_text() == "4\n"
    assert list(told.parent.iterdir()) == [told]


def test_a_request_says_how_far_it_came(told: Path) -> None:
    assert marker.wanted()
    marker.leave(85, "step 12")
    assert told.read_text() == "85 step 12\n"


def test_nothing_is_written_without_a_batch_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(marker.MARKER, raising=False)
    monkeypatch.chdir(tmp_path)
    assert not marker.wanted()
    marker.leave(85, "step 12")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_refuses_changes_nothing(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(marker.MARKER, "/proc/nowhere/marker")
    marker.leave(74)
    assert not told.exists()
