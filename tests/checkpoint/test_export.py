"""The fp32 export is whole or not there, verified, and loaded without running code."""

from pathlib import Path

import pytest
import torch

from pipeline.checkpoint.export import latest_export, load_export, save_export
from pipeline.checkpoint.folder import write_folder
from pipeline.errors import CheckpointError, StorageError
from tests.checkpoint.made_states import state
from tests.checkpoint.test_best import keeper

WEIGHTS = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(4)}


def save(folder: Path, step: int = 7) -> Path:
    return save_export(folder, WEIGHTS, step=step, tokens=70, config_hash="c")


def test_round_trip(tmp_path: Path) -> None:
    weights, manifest = load_export(save(tmp_path))
    assert weights.keys() == WEIGHTS.keys()
    assert all(torch.equal(weights[name], WEIGHTS[name]) for name in WEIGHTS)
    assert (manifest["step"], manifest["tokens"], manifest["config_hash"]) == (7, 70, "c")


def test_latest_is_by_number_and_only_whole_ones_count(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        latest_export(tmp_path)
    save(tmp_path, 9)
    save(tmp_path, 10)
    (tmp_path / "step-11.partial").mkdir()
    assert latest_export(tmp_path).name == "step-10"


def test_a_checkpoint_of_training_is_no_export(tmp_path: Path) -> None:
    """Where what the run ended with is gone, older weights must not be tested in its place."""
    keeper(tmp_path).save(state(3, 1.0))
    with pytest.raises(CheckpointError, match="no weights of a whole training.*up to step-3"):
        latest_export(tmp_path / "checkpoints")
    save(tmp_path / "checkpoints")
    assert latest_export(tmp_path / "checkpoints").name == "step-7"


@pytest.mark.parametrize("damage", ["flip", "cut", "gone", "no manifest", "manifest is a list"])
def test_damage_is_named(tmp_path: Path, damage: str) -> None:
    folder = save(tmp_path)
    weights, manifest = folder / "weights.pt", folder / "manifest.json"
    content = bytearray(weights.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 1
        weights.write_bytes(content)
    elif damage == "cut":
        weights.write_bytes(content[:-10])
    elif damage == "gone":
        weights.unlink()
    elif damage == "no manifest":
        manifest.unlink()
    else:
        manifest.write_text("[]")
    with pytest.raises(CheckpointError, match=str(folder)):
        load_export(folder)


def test_a_pickle_with_a_matching_hash_runs_nothing(tmp_path: Path) -> None:
    class Canary:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (open, (str(tmp_path / "canary"), "w"))  # type: ignore[return-value]

    facts = {"step": 7, "tokens": 70, "config_hash": "c"}
    folder = write_folder(tmp_path, {"weights.pt": {"a": Canary()}}, facts)
    with pytest.raises(CheckpointError, match="weights.pt: holds no plain tensors"):
        load_export(folder)
    assert not (tmp_path / "canary").exists()


def test_a_failed_write_leaves_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(StorageError, match="No space left"):
        save(tmp_path)
    assert not (tmp_path / "step-7").exists()
    monkeypatch.undo()
    assert load_export(save(tmp_path))[1]["step"] == 7
