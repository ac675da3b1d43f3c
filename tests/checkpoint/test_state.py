"""Checkpoints that training goes on from: whatever happens to one is noticed, named and skipped."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.checkpoint import folder as written
from pipeline.checkpoint.export import load_export
from pipeline.checkpoint.folder import OPTIMIZER, WEIGHTS, load_manifest
from pipeline.checkpoint.state import MOMENTS, Keeper, find_state, load_state, stale_latest
from pipeline.errors import CheckpointError
from tests.checkpoint.made_states import FACTS, flip_bit, saved, state, truncate

MANIFEST = "manifest.json"


def test_round_trip(tmp_path: Path) -> None:
    saved(tmp_path, 3, 12)
    found = find_state(tmp_path / "checkpoints")
    assert found is not None and (found.folder.name, found.bad) == ("step-12", ())
    back, given = load_state(found.folder, found.manifest["seal"]), state(12)
    assert (back.step, back.tokens, back.seconds, list(back.losses)) == (12, 120, 6.0, [1.0, 0.1])
    for name, weight in given.weights.items():
        assert torch.equal(back.weights[name], weight)
        for moment in MOMENTS:
            assert torch.equal(back.moments[moment][name], given.moments[moment][name])
    assert found.manifest["parameters"] == 40 * 30 + 7
    assert stale_latest(found) is None


def test_tests_can_read_one_as_well(tmp_path: Path) -> None:
    weights, manifest = load_export(saved(tmp_path, 3) / "step-3")
    assert torch.equal(weights["a"], state(3).weights["a"]) and manifest["step"] == 3


def test_nothing_is_found_where_nothing_is(tmp_path: Path) -> None:
    assert find_state(tmp_path / "checkpoints") is None


def zero_tail(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2 :] = bytes(len(content) - len(content) // 2)
    file.write_bytes(content)


def lengthen(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"\0")


def empty(file: Path) -> None:
    file.write_bytes(b"")


def of_another_step(file: Path) -> None:
    shutil.copy(file.parent.parent / "step-1" / file.name, file)


def become_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


KINDS: tuple[Callable[[Path], Any], ...] = (
    truncate, zero_tail, flip_bit, lengthen, empty, of_another_step, become_folder, Path.unlink,
)  # fmt: skip


@pytest.mark.parametrize("file", [WEIGHTS, OPTIMIZER, MANIFEST])
@pytest.mark.parametrize("damage", KINDS)
def test_a_damaged_file_is_named_and_the_next_older_checkpoint_found(
    damage: Callable[[Path], Any], file: str, tmp_path: Path
) -> None:
    checkpoints = saved(tmp_path, 1, 2, 3)
    seal = load_manifest(checkpoints / "step-3")["seal"]
    damage(checkpoints / "step-3" / file)
    found = find_state(checkpoints)
    assert found is not None and found.folder.name == "step-2"
    (reason,) = found.bad
    assert "step-3" in reason and file.partition(".")[0] in reason
    with pytest.raises(CheckpointError, match="step-3"):
        load_state(checkpoints / "step-3", seal)


def add_shard(folder: Path) -> None:
    (folder / "weights-2.pt").write_bytes((folder / WEIGHTS).read_bytes())


def swap_files(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "x")
    (folder / OPTIMIZER).rename(folder / WEIGHTS)
    (folder / "x").rename(folder / OPTIMIZER)


def swap_folders(folder: Path) -> None:
    """Both are whole, and each is where the other should be."""
    folder.rename(folder.with_name("x"))
    folder.with_name("step-2").rename(folder)
    folder.with_name("x").rename(folder.with_name("step-2"))


def edit(key: str, value: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        manifest = json.loads((folder / MANIFEST).read_text())
        if key not in manifest:
            manifest = manifest["files"][WEIGHTS]
        manifest[key] = value
        whole = json.loads((folder / MANIFEST).read_text())
        whole |= manifest if key in whole else {"files": {**whole["files"], WEIGHTS: manifest}}
        (folder / MANIFEST).write_text(json.dumps(whole))

    return change


@pytest.mark.parametrize(
    ("damage", "left", "reason"),
    [
        (add_shard, "step-2", "weights-2.pt is not in its manifest"),
        (swap_files, "step-2", "has .* bytes, not"),
        (swap_folders, "step-1", "its manifest is of step 2"),
        (edit("tokens", 31), "step-2", "edited"),
        (edit("step", 2), "step-2", "edited"),
        (edit("config_hash", "d"), "step-2", "edited"),
        (edit("sha256", "0" * 64), "step-2", "edited"),
        (edit("files", {}), "step-2", "edited"),
        (shutil.rmtree, "step-2", None),
    ],
)
def test_a_changed_checkpoint_is_named_and_an_older_one_found(
    damage: Callable[[Path], Any], left: str, reason: str | None, tmp_path: Path
) -> None:
    checkpoints = saved(tmp_path, 1, 2, 3)
    damage(checkpoints / "step-3")
    found = find_state(checkpoints)
    assert found is not None and found.folder.name == left
    assert len(found.bad) == (0 if reason is None else 2 if left == "step-1" else 1)
    if reason is not None:
        with pytest.raises(CheckpointError, match=reason):
            raise CheckpointError(found.bad[0])


@pytest.mark.parametrize("content", [b"", b"step-1\n", b"step-99\n", b"\xff\xfe", None])
def test_the_file_latest_is_only_a_hint(content: bytes | None, tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 1, 2, 3)
    assert (checkpoints / "latest").read_text() == "step-3\n"
    (checkpoints / "latest").unlink()
    if content is not None:
        (checkpoints / "latest").write_bytes(content)
    found = find_state(checkpoints)
    assert found is not None and found.folder.name == "step-3"
    assert (stale_latest(found) is None) == (content is None)


def test_if_all_are_bad_each_is_named(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 1, 2)
    truncate(checkpoints / "step-1" / WEIGHTS)
    flip_bit(checkpoints / "step-2" / OPTIMIZER)
    with pytest.raises(CheckpointError) as caught:
        find_state(checkpoints)
    said = str(caught.value)
    assert caught.value.exit_code == 3
    assert "step-1/weights.pt: has" in said and "step-2/optimizer.pt: sha256" in said


def test_a_checkpoint_cut_off_while_it_was_written_is_none(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 1)
    shutil.copytree(checkpoints / "step-1", checkpoints / "step-2.partial")
    found = find_state(checkpoints)
    assert found is not None and found.folder.name == "step-1" and found.bad == ()
    saved(tmp_path, 3)
    assert not (checkpoints / "step-2.partial").exists()


def test_another_checkpoint_of_that_step_is_refused(tmp_path: Path) -> None:
    """A rank that sees another file system than rank 0."""
    seal = load_manifest(saved(tmp_path, 3) / "step-3")["seal"]
    other = Keeper(tmp_path / "other", 1, {"config_hash": "other"}).save(state(3))
    with pytest.raises(CheckpointError, match="not the checkpoint that rank 0 found"):
        load_state(other, seal)


@pytest.mark.parametrize("file", [WEIGHTS, OPTIMIZER])
def test_no_code_in_a_sealed_file_is_run(file: str, tmp_path: Path) -> None:
    class Canary:
        def __reduce__(self) -> tuple[object, tuple[str, str]]:
            return (open, (str(tmp_path / "canary"), "w"))

    keeper = Keeper(tmp_path / "checkpoints", 2, FACTS)
    keeper.save(state(1))
    facts = {**FACTS, "step": 2, "tokens": 1, "seconds": 1.0, "losses": []}
    plain = {WEIGHTS: dict(state(2).weights), OPTIMIZER: dict(state(2).moments)}
    path = written.write_folder(tmp_path / "checkpoints", {**plain, file: {"a": Canary()}}, facts)
    with pytest.raises(CheckpointError, match=f"{file}: holds no plain tensors"):
        load_state(path, load_manifest(path)["seal"])
    assert not (tmp_path / "canary").exists()
