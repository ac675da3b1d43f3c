"""The fp32 export: whole weights of one decoder, independent of ranks, ZeRO stage and precision.

A folder `step-N` with `weights.pt` and `manifest.json` (sha256, size, step, tokens, config hash).
It is written under another name, synced and renamed, so a folder called `step-N` is whole; it is
verified before it is loaded, and loaded without running code (`weights_only`).
"""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pipeline.config.durable import sync
from pipeline.errors import CheckpointError, StorageError

_WEIGHTS, _MANIFEST = "weights.pt", "manifest.json"
_MANIFEST_KEYS = {"sha256": str, "bytes": int, "step": int, "tokens": int, "config_hash": str}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def save_export(
    checkpoints: Path, weights: dict[str, Tensor], *, step: int, tokens: int, config_hash: str
) -> Path:
    """Write `checkpoints/step-<step>`; `weights` are fp32 CPU tensors by parameter name.

    Raises:
        StorageError: the disk refused; nothing called `step-<step>` is left.
    """
    final = checkpoints / f"step-{step}"
    partial = checkpoints / f"step-{step}.partial"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        # without parents: a run folder that somebody deleted must not come back as a torso
        checkpoints.mkdir(exist_ok=True)
        partial.mkdir()
        torch.save(weights, partial / _WEIGHTS)
        manifest = {
            "sha256": _sha256(partial / _WEIGHTS),
            "bytes": (partial / _WEIGHTS).stat().st_size,
            "step": step,
            "tokens": tokens,
            "config_hash": config_hash,
        }
        (partial / _MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
        for path in (partial / _WEIGHTS, partial / _MANIFEST, partial):
            sync(path)
        os.replace(partial, final)
        sync(checkpoints)
    except (OSError, RuntimeError) as error:  # torch.save reports a full disk as RuntimeError
        raise StorageError(f"{final}: could not write the checkpoint: {error}") from error
    return final


def latest_export(checkpoints: Path) -> Path:
    """The whole export with the highest step.

    Raises:
        CheckpointError: there is none.
    """
    whole = [p for p in checkpoints.glob("step-*") if p.name.removeprefix("step-").isdigit()]
    if not whole:
        raise CheckpointError(f"{checkpoints}: holds no checkpoint; train this run first")
    return max(whole, key=lambda p: int(p.name.removeprefix("step-")))


def load_manifest(folder: Path) -> dict[str, Any]:
    """What an export says of itself: sha256 and bytes of the weights, step, tokens, config_hash.

    Raises:
        CheckpointError: it is missing or damaged.
    """
    try:
        manifest: dict[str, Any] = json.loads((folder / _MANIFEST).read_text())
        for key, kind in _MANIFEST_KEYS.items():
            if not isinstance(manifest[key], kind):
                raise ValueError(f"{key} = {manifest[key]!r}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{folder}: not a whole checkpoint: {error!r}") from error
    return manifest


def load_export(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Verified weights and the manifest of one export.

    Raises:
        CheckpointError: a file is missing or differs from the manifest.
    """
    weights, manifest = folder / _WEIGHTS, load_manifest(folder)
    try:
        found = _sha256(weights)
    except OSError as error:
        raise CheckpointError(f"{folder}: not a whole checkpoint: {error}") from error
    if found != manifest["sha256"]:
        raise CheckpointError(
            f"{weights}: sha256 {found} differs from the manifest's {manifest['sha256']}; "
            "the file is damaged or was exchanged"
        )
    return torch.load(weights, map_location="cpu", weights_only=True), manifest
