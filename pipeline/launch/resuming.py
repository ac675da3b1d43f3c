"""Where a broken-off run goes on: its newest whole checkpoint, and the rows up to there."""

import json
import time
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from pipeline.checkpoint.export import what_is_lost
from pipeline.checkpoint.folder import Manifest, steps_of
from pipeline.checkpoint.state import (
    Keeper,
    TrainingState,
    find_state,
    load_state,
    stale_latest,
)
from pipeline.config.schema import Config
from pipeline.config.values import show
from pipeline.data.prepare import Prepared
from pipeline.errors import CheckpointError, DataError
from pipeline.launch.checks import say
from pipeline.parallel.agree import told_by_first
from pipeline.positions.registry import sources
from pipeline.record.environment import training_sha256, versions
from pipeline.record.folder import RunFolder
from pipeline.record.metrics import MetricsLog, cut_rows

_VERSIONS = ("torch", "deepspeed", "lightning", "numpy")
_UNKNOWN = "unknown"
"""Stands for the code of checkpoints that are older than the field."""


@dataclass(frozen=True)
class Resumed:
    """What training goes on from, None = from the start, and what writes the next checkpoints.

    `codes` are the `training_sha256` that the weights come from, in the order they took over.
    """

    state: TrainingState | None
    keeper: Keeper
    codes: list[str]


def resume(
    config: Config,
    folder: RunFolder,
    prepared: Prepared,
    device: torch.device,
    origin: str | None,
) -> Resumed:
    """Find where a run goes on, and cut its rows to there; every rank calls it.

    Rank 0 searches, and all read what it found: clocks and caches of other machines do not matter.

    Args:
        config: the settings asked for now, which may differ as `RunFolder.create` allows.
        folder: the run folder, taken.
        prepared: the text that training reads now.
        device: that of this rank.
        origin: sha256 of the weights that a continued run begins with; None = it is none.

    Raises:
        CheckpointError: there are checkpoints and all are bad, or they are of another run.
        DataError: the text is not what the run was trained on so far.
        StorageError: the disk refused.
    """
    code = training_code(config)
    facts: dict[str, Any] = {
        "config_hash": folder.identity,
        "corpus_sha256": prepared.corpus_sha256,
        "tokenizer_sha256": prepared.tokenizer.sha256,
        "origin_sha256": origin,
        "versions": _versions(),
        "training_sha256": [code],
    }
    found = told_by_first(lambda: _find(folder, facts))
    state, newest = None, None
    if found is not None:
        name, seal, before = found
        newest = folder.checkpoints / name
        state = load_state(newest, seal)
        facts["training_sha256"] = before if before[-1] == code else [*before, code]
    if dist.is_initialized():
        dist.barrier()  # all have read it: rank 0 may write
    step = 0 if state is None else state.step
    told_by_first(lambda: _restart(config, folder, device, step, code))
    keep, best = config.trainer.keep, config.trainer.keep_best
    keeper = Keeper(folder.checkpoints, keep, facts, newest, folder.metrics, best)
    return Resumed(state, keeper, facts["training_sha256"])


def reopen_if_lost(folder: RunFolder) -> None:
    """Let a trained run whose weights are missing or damaged go on from a checkpoint, if one is
    left, as one that was broken off there. On rank 0.

    Without one a finished run is left as it is, since its rows stand. Both are said to the user.

    Raises:
        CheckpointError: it is not finished, and has no weights left to test.
        StorageError: another job writes the run, or the disk refused.
    """
    lost = what_is_lost(folder.checkpoints)
    if lost is None:
        return
    try:
        found = find_state(folder.checkpoints)
    except CheckpointError:
        found = None
    if found is not None:
        folder.check_checkpoint(found.folder, found.manifest["config_hash"])
        if folder.finished:
            folder.take()
        folder.reopen()
        say(f"warning: {lost}: {folder.path} is trained again from {found.folder.name} on")
        return
    again = f"restore the checkpoint, or delete {folder.path} and train again"
    if not folder.finished:
        raise CheckpointError(
            f"{lost}; none is left to make the weights from, and they were not tested to the end: "
            f"{again}"
        )
    say(
        f"warning: {lost}; none is left to make the weights from. The rows of the run stand. To "
        f"test or continue it, {again}"
    )


def training_code(config: Config) -> str:
    """The `training_sha256` of a run that is trained now."""
    groups = (config.position, config.position_ids, config.extension)
    return training_sha256(*sources(*(group["name"] for group in groups)))


def _versions() -> dict[str, str | None]:
    held = versions()
    return {name: held[name] for name in _VERSIONS}


def _find(folder: RunFolder, facts: dict[str, Any]) -> tuple[str, str, list[str]] | None:
    """Name and seal of the checkpoint to go on from, and what code it comes from; said to the user.
    Nothing is changed."""
    found = find_state(folder.checkpoints)
    if found is None:
        exports = steps_of(folder.checkpoints)
        if exports:
            say(
                f"warning: {exports[0]} holds the weights of a whole training, but "
                f"{folder.trained} is missing: it is trained again from the start, which replaces "
                "them. To keep them, stop this and restore that file"
            )
        elif folder.metrics.is_file():
            say(f"{folder.path} was broken off before its first checkpoint: it starts again")
        return None
    for reason in found.bad:
        say(f"warning: a checkpoint is skipped: {reason}")
    stale = stale_latest(found)
    if stale is not None:
        say(f"note: {found.folder.parent / 'latest'} says {stale}; {found.folder.name} is used")
    _check_same(folder, found.manifest, facts)
    codes, code = found.manifest.get("training_sha256", [_UNKNOWN]), facts["training_sha256"][-1]
    if codes[-1] != code:
        say(
            f"note: {found.folder} was trained by other code (training_sha256 {codes[-1][:12]}) "
            f"than goes on now ({code[:12]}): `report` puts no other run of known code beside "
            f"{folder.path}. For a run of one code, delete the folder and run it again"
        )
    say(f"{folder.path} goes on from {found.folder.name}, {found.manifest['tokens']:,} tokens")
    return found.folder.name, found.manifest["seal"], codes


def _check_same(folder: RunFolder, manifest: Manifest, facts: dict[str, Any]) -> None:
    where = folder.checkpoints / f"step-{manifest['step']}"
    folder.check_checkpoint(where, manifest["config_hash"])
    for key in ("corpus_sha256", "tokenizer_sha256"):
        if manifest[key] != facts[key]:
            raise DataError(
                f"data.source: the text is not what {folder.path} was trained on so far: {key} was "
                f"{manifest[key][:12]}..., is {facts[key][:12]}... now. Restore the corpus, or "
                "train again under another experiment"
            )
    if manifest["origin_sha256"] != facts["origin_sha256"]:
        raise CheckpointError(
            f"{where} continues weights {str(manifest['origin_sha256'])[:12]}..., and `init_from` "
            f"holds {str(facts['origin_sha256'])[:12]}... now. Delete {folder.path} to run it "
            "again, or choose another experiment"
        )
    if manifest["versions"] != facts["versions"]:
        say(
            f"note: {where} was made by {manifest['versions']}, and training goes on with "
            f"{facts['versions']}: its last digits may differ from those of one training"
        )


def _restart(config: Config, folder: RunFolder, device: torch.device, step: int, code: str) -> None:
    """Cut the rows of a run that was broken off, and leave one that says how it goes on."""
    if not folder.metrics.is_file():
        return
    cut_rows(folder.metrics, step)
    changed = {change.key: [change.there, change.here] for change in folder.changed(config)}
    if changed:
        words = ", ".join(
            f"{key} {show(old)} -> {show(new)}" for key, (old, new) in changed.items()
        )
        say(f"note: {folder.path} goes on with other settings than it began with: {words}")
    row = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "step": step,
        "world": config.trainer.world,
        "device": device.type,
        "versions": _versions(),
        "training_sha256": code,
        "changed": json.loads(json.dumps(changed)),
    }
    with MetricsLog(folder.restarts) as log:
        log.write(row)
