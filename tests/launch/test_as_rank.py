"""How a rank that was asked to stop ends, with and without a batch script that reads it."""

from pathlib import Path

import pytest
import torch.distributed as dist

from pipeline.errors import Preempted
from pipeline.launch import as_rank
from pipeline.launch.cli import main
from pipeline.record import marker


def asked() -> int:
    raise Preempted("step 12")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collectives that this rank entered."""
    entered: list[str] = []
    monkeypatch.setattr(dist, "get_rank", lambda: 0)
    for name in ("barrier", "destroy_process_group"):
        monkeypatch.setattr(dist, name, lambda name=name: entered.append(name))
    return entered


def test_it_ends_well_once_the_batch_script_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: list[str]
) -> None:
    """Any other code than 0 would make srun end the ranks that are still at it."""
    monkeypatch.setenv(marker.MARKER, str(tmp_path / "marker"))
    assert as_rank._ended(asked) == 0
    assert (tmp_path / "marker").read_text() == "85 after step 12\n"
    assert calls == ["barrier", "destroy_process_group"]


def test_without_a_batch_script_its_exit_code_says_it(
    monkeypatch: pytest.MonkeyPatch, calls: list[str]
) -> None:
    monkeypatch.delenv(marker.MARKER, raising=False)
    assert as_rank._ended(asked) == 85
    assert calls == ["barrier", "destroy_process_group"]


def test_what_is_refused_is_told_to_the_batch_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once, however many ranks it is refused on; a rank that fails for another reason says that."""
    told = tmp_path / "marker"
    monkeypatch.setenv(marker.MARKER, str(told))
    for name, value in (("WORLD_SIZE", "3"), ("MASTER_ADDR", "n"), ("MASTER_PORT", "20000")):
        monkeypatch.setenv(name, value)
    said = []
    for rank, file in enumerate(("nowhere", "nowhere", "elsewhere")):
        monkeypatch.setenv("RANK", str(rank))
        assert main(["plan", f"{file}.yaml"]) == 2
        said.append(capsys.readouterr().err)
    assert "nowhere.yaml" in said[0] and said[1] == "" and "elsewhere.yaml" in said[2]
    assert told.read_text().startswith("2 0:")
    # without a file in common nobody knows what the others say
    monkeypatch.delenv(marker.MARKER)
    assert main(["plan", "nowhere.yaml"]) == 2
    assert capsys.readouterr().err == said[0]
