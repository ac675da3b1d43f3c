"""Old checkpoints go only after newer ones are whole, and a full disk costs none."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

import pytest
import torch

from pipeline.checkpoint import folder as written
from pipeline.checkpoint.folder import WEIGHTS, load_manifest, verify
from pipeline.checkpoint.state import MOMENTS, Keeper, find_state, keep_only, load_state
from pipeline.errors import CheckpointError, StorageError
from tests.checkpoint.made_states import FACTS, flip_bit, saved, state, truncate


def test_never_more_than_one_beyond_those_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looked at before and after every rename and every deletion."""
    most, rename, rmtree = [0], Path.rename, shutil.rmtree

    def look() -> None:
        held = [p for p in (tmp_path / "checkpoints").iterdir() if p.is_dir()]
        most[0] = max(most[0], len(held))
        assert not held[:1] or find_state(tmp_path / "checkpoints") or most[0] == 1

    def watched(work: Callable[..., Any]) -> Callable[..., Any]:
        def do(*arguments: Any, **more: Any) -> Any:
            look()
            result = work(*arguments, **more)
            look()
            return result

        return do

    monkeypatch.setattr(Path, "rename", watched(rename))
    monkeypatch.setattr(shutil, "rmtree", watched(rmtree))
    monkeypatch.setattr(os, "replace", watched(os.replace))
    keeper = Keeper(tmp_path / "checkpoints", 2, FACTS)
    for step in (1, 2, 5, 9):
        keeper.save(state(step))
        look()
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == [
        "latest", "step-5", "step-9",
    ]  # fmt: skip
    assert most == [3]


def test_an_older_one_stays_until_the_newer_is_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that gives back other bytes than it was given."""
    keeper = Keeper(tmp_path / "checkpoints", 1, FACTS)
    keeper.save(state(1))
    monkeypatch.setattr(written, "sync", lambda path: flip_bit(path) if path.is_file() else None)
    with pytest.raises(StorageError, match="does not hold what was written"):
        keeper.save(state(2))
    found = find_state(tmp_path / "checkpoints")
    assert found is not None and found.folder.name == "step-1" and found.bad == ()


def test_what_was_bad_is_replaced_and_the_one_gone_on_from_kept(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 1, 2, 3)
    flip_bit(checkpoints / "step-3" / WEIGHTS)
    found = find_state(checkpoints)
    assert found is not None
    keeper = Keeper(checkpoints, 1, FACTS, found.folder)
    keeper.prune()
    assert [p.name for p in checkpoints.glob("step-*")] == ["step-2"]
    keeper.save(state(3))
    assert [p.name for p in checkpoints.glob("step-*")] == ["step-3"]
    assert load_state(checkpoints / "step-3", load_manifest(checkpoints / "step-3")["seal"])


def test_a_trained_run_keeps_its_weights_alone(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 1, 2)
    keep_only(checkpoints / "step-2")
    assert [p.name for p in checkpoints.iterdir()] == ["step-2"]
    truncate(checkpoints / "step-2" / WEIGHTS)
    saved(tmp_path, 1)
    with pytest.raises(CheckpointError, match="step-2"):
        keep_only(checkpoints / "step-2")
    assert (checkpoints / "step-1").exists()


@pytest.mark.parametrize("limit", [0, 1, 5000, 9000])
def test_a_full_disk_is_named_and_the_one_before_stays(
    limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = Keeper(tmp_path / "checkpoints", 2, FACTS)
    keeper.save(state(1))

    whole = written._Hashing.write

    def write(self: Any, content: bytes) -> int:
        if self.bytes + len(content) > limit:
            self.refused = OSError(28, "No space left on device")
            raise self.refused
        return int(whole(self, content))

    monkeypatch.setattr(written._Hashing, "write", write)
    with pytest.raises(StorageError, match=r"step-2: .*No space left.* \d+ bytes are free"):
        keeper.save(state(2))
    monkeypatch.undo()
    found = find_state(tmp_path / "checkpoints")
    assert found is not None and found.folder.name == "step-1" and found.bad == ()
    keeper.save(state(2))
    assert not list((tmp_path / "checkpoints").glob("*.partial"))


@pytest.mark.slow
def test_a_core_verifies_400_mib_a_second(tmp_path: Path) -> None:
    """In seconds of this process, whatever else the machine does; the best of three."""
    tensor = torch.randn(64 << 18, generator=torch.Generator().manual_seed(1))
    folder = Keeper(tmp_path / "checkpoints", 1, FACTS).save(
        replace(state(1), weights={"a": tensor}, moments={m: {"a": tensor} for m in MOMENTS})
    )
    mebibytes = sum(path.stat().st_size for path in folder.iterdir()) / 2**20
    assert mebibytes > 128.0
    seconds = []
    for _ in range(3):
        began = process_time()
        verify(folder)
        seconds.append(process_time() - began)
    assert mebibytes / min(seconds) >= 400.0
