"""Checkpoints that training goes on from: `step-N` with `weights.pt` and `optimizer.pt`.

They belong to no world: every tensor is whole, fp32, and named after its parameter, as if one
process had trained. So any number of ranks, sequence groups and ZeRO stage can go on from them, and
no file holds code. All else that training depends on is a function of the step: the order of the
data, ids that are drawn, the learning rate and what the encoding does. The model has no dropout,
and training reads no global random state, so there is none to keep.
"""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
from pipeline.config.durable import sync, write_file
from pipeline.errors import CheckpointError, StorageError, free_space

MOMENTS = ("exp_avg", "exp_avg_sq")
_LATEST = "latest"
Named = Mapping[str, Tensor]


@dataclass(frozen=True)
class TrainingState:
    """Training after `step` optimizer steps, `tokens` target tokens and `seconds` of its clock.

    `weights` are the fp32 masters by parameter name; `moments` are, by `MOMENTS`, those of Adam:
    its running means of gradients and of their squares (Kingma and Ba 2015, arXiv 1412.6980).
    `losses` are those of the last steps, which the next one is judged by. `validation_loss`, in
    nats per token, is what the best checkpoint is chosen by; None = this one was not measured.
    """

    step: int
    tokens: int
    seconds: float
    weights: Named
    moments: Mapping[str, Named]
    losses: Sequence[float] = ()
    validation_loss: float | None = None


@dataclass(frozen=True)
class Found:
    """A checkpoint that verified, with its manifest; `bad` tells what is wrong with newer ones."""

    folder: Path
    manifest: Manifest
    bad: tuple[str, ...]


class Keeper:
    """Writes the checkpoints of one run; on rank 0 only.

    `facts` are added to every manifest; `newest` is the checkpoint that training went on from;
    `rows` is a file whose rows must not be lost before a checkpoint that comes after them. With
    `keep_best` one of those kept is that with the lowest validation loss, whatever its age.
    """

    def __init__(
        self,
        checkpoints: Path,
        keep: int,
        facts: Mapping[str, Any],
        newest: Path | None = None,
        rows: Path | None = None,
        keep_best: bool = False,
    ) -> None:
        self.checkpoints, self.keep, self.facts = checkpoints, keep, dict(facts)
        self.newest, self.rows, self.keep_best = newest, rows, keep_best

    def save(self, state: TrainingState) -> Path:
        """Write one checkpoint; once it is verified, delete all but `keep`.

        Raises:
            StorageError: the disk refused; the checkpoints before it are untouched.
        """
        self.prune()
        facts = {
            **self.facts,
            "step": state.step,
            "tokens": state.tokens,
            "seconds": state.seconds,
            "losses": list(state.losses),
            VALIDATION_LOSS: state.validation_loss,
            "parameters": sum(weight.numel() for weight in state.weights.values()),
        }
        files = {
            WEIGHTS: dict(state.weights),
            OPTIMIZER: {name: dict(state.moments[name]) for name in MOMENTS},
        }
        _sync_rows(self.rows)
        self.newest = write_folder(self.checkpoints, files, facts)
        _write_latest(self.newest)
        self.prune()
        return self.newest

    def prune(self) -> None:
        """Delete all but `keep` checkpoints, the newest that verified and those before it.

        One of a higher step was bad when training went on from the newest. A kill may have left
        more than `keep`.

        Raises:
            StorageError: the disk refused.
        """
        if self.newest is None:
            return
        every = steps_of(self.checkpoints)
        usable = every[every.index(self.newest) :]
        kept = usable[: self.keep]
        best = best_of(usable) if self.keep_best else None
        if best is not None and best not in kept:
            kept[-1] = best
        for folder in every:
            if folder not in kept:
                _delete(folder)


def find_state(checkpoints: Path) -> Found | None:
    """The newest checkpoint that verifies and that training can go on from; None if there is none.

    The file `latest` is not asked: it may be stale.

    Raises:
        CheckpointError: there are checkpoints, and all are bad; it names each with its reason.
    """
    bad = []
    for folder in steps_of(checkpoints):
        try:
            manifest = verify(folder)
        except CheckpointError as error:
            bad.append(str(error))
            continue
        if OPTIMIZER in manifest["files"]:
            return Found(folder, manifest, tuple(bad))
    if bad:
        raise CheckpointError(
            f"{checkpoints}: no checkpoint can be used: {'; '.join(bad)}. Restore one, or delete "
            "them all to train from the start"
        )
    return None


def load_state(folder: Path, seal: str) -> TrainingState:
    """Read one checkpoint, that whose manifest has this seal.

    Raises:
        CheckpointError: it is damaged, or another one.
    """
    manifest = verify(folder)
    if manifest["seal"] != seal:
        raise CheckpointError(f"{folder}: is not the checkpoint that rank 0 found there")
    moments = load_tensors(folder / OPTIMIZER)
    weights = load_tensors(folder / WEIGHTS)
    for name in MOMENTS:
        if moments.get(name, {}).keys() != weights.keys():
            raise CheckpointError(f"{folder}: {OPTIMIZER} and {WEIGHTS} are of different models")
    step, tokens = manifest["step"], manifest["tokens"]
    seconds, losses = float(manifest["seconds"]), manifest.get("losses", ())
    return TrainingState(step, tokens, seconds, weights, moments, losses)


def stale_latest(found: Found) -> str | None:
    """What the file `latest` says, if it is not the checkpoint found."""
    try:
        said = (found.folder.parent / _LATEST).read_text(errors="replace").strip()
    except OSError:
        return None
    return None if said == found.folder.name else repr(said)


def best_of(checkpoints: Iterable[Path]) -> Path | None:
    """That with the lowest validation loss, by their manifests; None if none was measured."""
    measured = []
    for folder in checkpoints:
        try:
            loss = load_manifest(folder).get(VALIDATION_LOSS)
        except CheckpointError:
            continue
        if loss is not None:
            measured.append((loss, folder))
    return min(measured, key=lambda one: one[0], default=(None, None))[1]


def keep_only(checkpoint: Path, best_too: bool = False) -> None:
    """Delete all but the export of a run that is trained, once that verified, and, if asked, the
    checkpoint of a lower validation loss.

    Raises:
        CheckpointError: it is damaged; nothing is deleted.
        StorageError: the disk refused.
    """
    verify(checkpoint)
    every = steps_of(checkpoint.parent)
    best = best_of(every) if best_too else None
    for folder in every:
        if folder not in (checkpoint, best):
            _delete(folder)
    (checkpoint.parent / _LATEST).unlink(missing_ok=True)


def _sync_rows(path: Path | None) -> None:
    if path is None:
        return
    try:
        if path.exists():
            sync(path)
    except OSError as error:
        raise StorageError(
            f"{path}: cannot be synced: {error.strerror}; {free_space(path)}"
        ) from error


def _write_latest(folder: Path) -> None:
    path = folder.with_name(_LATEST)
    try:
        write_file(path, f"{folder.name}\n".encode())
    except OSError as error:
        raise StorageError(
            f"{path}: cannot be written: {error.strerror}; {free_space(path)}"
        ) from error


def _delete(folder: Path) -> None:
    """Under another name first: what is half deleted must not look like a checkpoint."""
    gone = folder.with_name(f"{folder.name}.partial")
    try:
        folder.rename(gone)
        shutil.rmtree(gone)
    except OSError as error:
        raise StorageError(f"{folder}: cannot be deleted: {error.strerror}") from error
