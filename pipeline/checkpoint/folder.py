"""One checkpoint folder `step-N`: files of tensors, and a manifest that tells whether it is whole.

It is written under another name, verified on the disk, synced and renamed, so that a folder called
`step-N` was whole once. The manifest holds sha256 and bytes of every file, and a seal, the sha256
of all else in it: a changed byte anywhere is noticed, which torch.load does not do.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import torch

from pipeline.config.durable import sync
from pipeline.errors import CheckpointError, StorageError, free_space

WEIGHTS, OPTIMIZER, _MANIFEST = "weights.pt", "optimizer.pt", "manifest.json"
VALIDATION_LOSS = "validation_loss"
_KEYS = {"files": dict, "step": int, "tokens": int, "config_hash": str}
Manifest = dict[str, Any]


def steps_of(checkpoints: Path) -> list[Path]:
    """The folders `step-N`, newest first, whatever they hold."""
    named = [p for p in checkpoints.glob("step-*") if p.name.removeprefix("step-").isdigit()]
    return sorted(named, key=lambda p: int(p.name.removeprefix("step-")), reverse=True)


def write_folder(checkpoints: Path, files: Mapping[str, Any], facts: Mapping[str, Any]) -> Path:
    """Write `checkpoints/step-<facts["step"]>`, in the place of one of that name.

    Args:
        checkpoints: the folder of all checkpoints of a run; the run folder above it must exist.
        files: what torch.save writes, by file name.
        facts: what the manifest says besides; step, tokens and config_hash must be among it.

    Raises:
        StorageError: the disk refused, or does not hold what was written; nothing of that name is
            changed.
    """
    final = checkpoints / f"step-{facts['step']}"
    partial = checkpoints / f"{final.name}.partial"
    try:
        for left in checkpoints.glob("step-*.partial"):
            shutil.rmtree(left)
        # without parents: a run folder that somebody deleted must not come back as a torso
        checkpoints.mkdir(exist_ok=True)
        partial.mkdir()
        hashes = {name: _write(partial / name, content) for name, content in files.items()}
        (partial / _MANIFEST).write_text(_sealed({**facts, "files": hashes}))
        for path in (*partial.iterdir(), partial):
            sync(path)
        verify(partial, final.name)
        if final.exists():
            shutil.rmtree(final)
        os.replace(partial, final)
        sync(checkpoints)
    except CheckpointError as error:
        raise StorageError(f"the disk does not hold what was written: {error}") from error
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise StorageError(
            f"{final}: could not write the checkpoint: {error}; {free_space(final)}"
        ) from error
    return final


def load_manifest(folder: Path) -> Manifest:
    """What a checkpoint says of itself: step, tokens, config_hash, files; `sha256` of the weights.

    Raises:
        CheckpointError: it is missing, damaged, edited or of another folder.
    """
    return _read_manifest(folder, folder.name)


def verify(folder: Path, name: str | None = None) -> Manifest:
    """The manifest of a checkpoint, all of whose files are as they were written.

    Args:
        folder: where it lies.
        name: what the folder is to be called; None = as it is.

    Raises:
        CheckpointError: naming what is missing, added or changed.
    """
    manifest = _read_manifest(folder, name or folder.name)
    found = {path.name for path in folder.iterdir()} - {_MANIFEST}
    for file in sorted(found ^ manifest["files"].keys()):
        what = "is not in its manifest" if file in found else "is missing"
        raise CheckpointError(f"{folder / file} {what}")
    for file, expected in manifest["files"].items():
        _verify_file(folder / file, expected)
    return manifest


def load_tensors(path: Path) -> Any:
    """What a file of a verified checkpoint holds, on CPU; no code in it is run, and it is read from
    the disk where it is used.

    Raises:
        CheckpointError: it is no file of tensors.
    """
    try:
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # of many kinds, as the file may hold anything
        reason = str(error).splitlines()[0] if str(error) else repr(error)
        raise CheckpointError(f"{path}: holds no plain tensors: {reason}") from error
    if not _named_tensors(found):
        raise CheckpointError(f"{path}: holds no plain tensors: they have no names")
    return found


def _named_tensors(found: Any) -> bool:
    """Whether it is tensors by name, or by names, and nothing else."""
    return isinstance(found, dict) and all(
        isinstance(name, str) and (isinstance(held, torch.Tensor) or _named_tensors(held))
        for name, held in found.items()
    )


class _Hashing:
    """A file whose sha256 is known when it is written, not as the disk gives it back."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.hash, self.bytes = file, hashlib.sha256(), 0
        self.refused: OSError | None = None

    def write(self, content: bytes) -> int:
        self.hash.update(content)
        self.bytes += len(content)
        try:
            return self.file.write(content)
        except OSError as error:
            self.refused = error
            raise

    def flush(self) -> None:
        self.file.flush()


def _write(path: Path, content: Any) -> dict[str, Any]:
    with path.open("wb") as file:
        hashing = _Hashing(file)
        try:
            torch.save(content, hashing)  # type: ignore[arg-type]
        except RuntimeError:
            # how torch.save reports a full disk
            if hashing.refused is None:
                raise
            raise hashing.refused from None
    return {"sha256": hashing.hash.hexdigest(), "bytes": hashing.bytes}


def _sealed(manifest: Manifest) -> str:
    return json.dumps({**manifest, "seal": _seal(manifest)}, indent=1) + "\n"


def _seal(manifest: Manifest) -> str:
    held = {key: value for key, value in manifest.items() if key != "seal"}
    return hashlib.sha256(json.dumps(held, sort_keys=True).encode()).hexdigest()


def _read_manifest(folder: Path, name: str) -> Manifest:
    path = folder / _MANIFEST
    try:
        manifest: Manifest = json.loads(path.read_text())
        if manifest["seal"] != _seal(manifest):
            raise ValueError("its seal does not fit: it was edited or damaged")
        for key, kind in _KEYS.items():
            if not isinstance(manifest[key], kind):
                raise ValueError(f"{key} = {manifest[key]!r}")
        for file in manifest["files"].values():
            if not (isinstance(file["sha256"], str) and isinstance(file["bytes"], int)):
                raise ValueError("it lacks sha256 or bytes of a file")
        sha256 = str(manifest["files"][WEIGHTS]["sha256"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{folder}: not a whole checkpoint: {path.name}: {error}") from error
    if name != f"step-{manifest['step']}":
        raise CheckpointError(f"{folder}: its manifest is of step {manifest['step']}")
    return {**manifest, "sha256": sha256}


def _verify_file(path: Path, expected: Mapping[str, Any]) -> None:
    try:
        size = path.stat().st_size
        if size != expected["bytes"]:
            raise CheckpointError(f"{path}: has {size} bytes, not {expected['bytes']}")
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    if found != expected["sha256"]:
        raise CheckpointError(
            f"{path}: sha256 {found[:12]}... differs from the manifest's "
            f"{expected['sha256'][:12]}...: the file is damaged or was exchanged"
        )
