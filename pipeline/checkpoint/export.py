"""The fp32 export: whole weights of one decoder, independent of ranks, ZeRO stage and precision.

A checkpoint folder `step-N` that holds weights alone: what training leaves, and tests read.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor

from pipeline.checkpoint.folder import (
    OPTIMIZER,
    VALIDATION_LOSS,
    WEIGHTS,
    Manifest,
    load_manifest,
    load_tensors,
    steps_of,
    verify,
    write_folder,
)
from pipeline.errors import CheckpointError

__all__ = ["latest_export", "load_export", "load_manifest", "save_export", "what_is_lost"]


def save_export(
    checkpoints: Path,
    weights: Mapping[str, Tensor],
    *,
    step: int,
    tokens: int,
    config_hash: str,
    validation_loss: float | None = None,
) -> Path:
    """Write `checkpoints/step-<step>`; `weights` are fp32 CPU tensors by parameter name.

    `validation_loss`, in nats per token, is what the best checkpoint is chosen by.

    Raises:
        StorageError: the disk refused; nothing called `step-<step>` is left.
    """
    facts = {
        "step": step,
        "tokens": tokens,
        "config_hash": config_hash,
        VALIDATION_LOSS: validation_loss,
        "parameters": sum(weight.numel() for weight in weights.values()),
    }
    return write_folder(checkpoints, {WEIGHTS: dict(weights)}, facts)


def latest_export(checkpoints: Path) -> Path:
    """The checkpoint with the highest step, which is to be what training left.

    Raises:
        CheckpointError: there is none, or it is one that training goes on from: its weights are not
            those that the run ended with.
    """
    with _advising():
        return _latest(checkpoints)


def load_export(folder: Path) -> tuple[dict[str, Tensor], Manifest]:
    """Verified weights and the manifest of one checkpoint.

    Raises:
        CheckpointError: a file is missing, added, or differs from the manifest.
    """
    with _advising():
        manifest = verify(folder)
    weights: dict[str, Tensor] = load_tensors(folder / WEIGHTS)
    return weights, manifest


def what_is_lost(checkpoints: Path) -> str | None:
    """Why the weights that training left cannot be used; None = they can. All of them are read."""
    try:
        verify(_latest(checkpoints))
    except CheckpointError as error:
        return str(error)
    return None


def _latest(checkpoints: Path) -> Path:
    for folder in steps_of(checkpoints):
        if (folder / OPTIMIZER).exists():
            raise CheckpointError(
                f"{checkpoints}: holds no weights of a whole training, only checkpoints up to "
                f"{folder.name}"
            )
        return folder
    raise CheckpointError(f"{checkpoints}: holds no checkpoint")


@contextmanager
def _advising() -> Iterator[None]:
    try:
        yield
    except CheckpointError as error:
        raise CheckpointError(
            f"{error}. Restore it, or give the command that trains this run: it makes the weights "
            "again from an older checkpoint, or says that none is left"
        ) from error
