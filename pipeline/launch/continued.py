"""Continued runs: what they take from the finished run whose weights they train on.

That run is the origin. Its weights are those of its newest checkpoint; settings that shape them, or
say what they mean, must be its own. The encoding stays scaled to what it was scaled to there.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from pipeline.checkpoint.export import latest_export, load_export
from pipeline.config.compose import load
from pipeline.config.continued import check_origin, origin_path
from pipeline.config.label import label
from pipeline.config.schema import Config
from pipeline.config.validate import validate
from pipeline.config.values import show
from pipeline.data.prepare import Prepared
from pipeline.errors import CheckpointError, ConfigError, DataError
from pipeline.launch.checks import say
from pipeline.model.decoder import Decoder, load_weights
from pipeline.positions import registry
from pipeline.record.folder import RunFolder
from pipeline.training.start import Start

Ancestor = dict[str, Any]


@dataclass(frozen=True)
class Origin:
    """A finished run, its newest checkpoint and the runs that it continues itself."""

    folder: Path
    config: Config
    weights: dict[str, Tensor]
    manifest: dict[str, Any]
    summary: dict[str, Any]

    @property
    def lineage(self) -> list[Ancestor]:
        """This run and those before it, oldest first: which weights came of which training."""
        where, manifest = self.folder.resolve(), self.manifest
        own = {
            "run": f"{where.parent.name}/{where.name}",
            "config_hash": manifest["config_hash"],
            "step": manifest["step"],
            "tokens": manifest["tokens"],
            "train_length": self.config.train_length,
            "extension": label(self.config.extension),
            "weights_sha256": manifest["sha256"],
            "training_sha256": self.summary.get("training_sha256", []),
        }
        # runs that were finished before any could be continued hold none
        return [*self.summary.get("lineage", []), own]


def find_origin(config: Config) -> Origin:
    """The run that `config` continues, with verified weights.

    Raises:
        ConfigError: there is no such run folder, or its run is not finished.
        CheckpointError: it holds no whole checkpoint of the configuration that it names.
    """
    path = origin_path(config)
    try:
        folder = RunFolder.open(path)
    except ConfigError as error:
        raise ConfigError(f"`init_from` = {show(config.init_from)}: {error}") from error
    if not folder.finished:
        raise ConfigError(
            f"`init_from` = {show(config.init_from)}: {path} holds a run that was not finished. "
            "Wait for it, or run it again"
        )
    origin = load(folder.config, [])[0]
    checkpoint = latest_export(path / "checkpoints")
    weights, manifest = load_export(checkpoint)
    folder.check_checkpoint(checkpoint, manifest["config_hash"])
    return Origin(path, origin, weights, manifest, _summary(folder))


def settle(runs: Sequence[Config]) -> list[Config]:
    """The configurations of a study, those of continued runs filled in from their origins.

    Raises:
        ConfigError: an origin does not exist, is not finished, or does not fit, naming the keys;
            or the extension cannot be trained under.
        CheckpointError: an origin's weights are missing, damaged, or of another model.
    """
    return [config if config.init_from is None else _settled(config) for config in runs]


def _settled(config: Config) -> Config:
    origin = find_origin(config)
    check_origin(config, origin.config, origin.folder)
    settled = replace(config, encoding_length=origin.config.scale_length)
    settled.unresolved = dict(config.unresolved)
    validate(settled)
    _check_position_ids(settled, origin)
    _check_extension(settled)
    with torch.device("meta"):
        decoder = Decoder(settled)
    try:
        load_weights(decoder, origin.weights)
    except CheckpointError as error:
        raise CheckpointError(f"`init_from` = {show(config.init_from)}: {error}") from error
    before, now = label(origin.config.extension), label(config.extension)
    if before not in (now, registry.NO_EXTENSION):
        say(f"note: {origin.folder} was trained under the extension {before}; this run has {now}")
    return settled


def _check_position_ids(config: Config, origin: Origin) -> None:
    """Refuse other position ids where these have weights of their own.

    Raises:
        ConfigError: they do.
    """
    own, there = config.position_ids, origin.config.position_ids
    if own == there:
        return
    for group in (own, there):
        if registry.ids_class(group["name"]).facts.extra_parameters != "0":
            raise ConfigError(
                f"`position_ids` = {label(own)} here, {label(there)} there: {label(group)} has "
                f"trained weights, and these weights are of {origin.folder} (`init_from`). Use "
                "those of that run, or train without init_from."
            )


def _check_extension(config: Config) -> None:
    """Refuse an extension that training could not see, or would see where tests do not.

    Any other extension that fits the encoding can be trained under.

    Raises:
        ConfigError: it goes by tokens, and training numbers them otherwise or is too short.
    """
    kind = config.extension["name"]
    if kind == registry.NO_EXTENSION:
        return
    about = registry.extension_class(kind).about
    ids, length = config.position_ids["name"], config.train_length
    if about.counts_tokens and ids != "consecutive":
        raise ConfigError(
            f"`extension` = {kind} is not allowed in training with `position_ids` = {ids}: it "
            "takes position ids for places in the text. Use position_ids=consecutive."
        )
    if about.changes.get("length_dependent") and length <= config.scale_length:
        raise ConfigError(
            f"`extension` = {kind} is not allowed in training at `train_length` = {length}: it "
            f"goes by the number of tokens, and changes nothing up to {config.scale_length}. Use "
            "longer training sequences, or another extension."
        )


def check_tokenizer(config: Config, prepared: Prepared) -> None:
    """Refuse to train weights on tokens that mean something else than they learned.

    Raises:
        DataError: the tokenizer is not that of the run that is continued.
    """
    if config.init_from is None:
        return
    path = origin_path(config)
    there, here = _summary(RunFolder(path))["tokenizer_sha256"], prepared.tokenizer.sha256
    if there != here:
        raise DataError(
            f"`data.source` = {show(config.data.source)}: its tokenizer {here[:12]}... is not "
            f"{there[:12]}..., which {path} (`init_from`) was trained with. Use the corpus and the "
            "`data` settings of that run"
        )


def check_same_origin(config: Config, folder: RunFolder) -> None:
    """Refuse to keep a trained continued run whose origin holds other weights by now.

    Raises:
        CheckpointError: it does.
    """
    if config.init_from is None or not folder.trained.is_file():
        return
    used = folder.trained_facts()["lineage"][-1]["weights_sha256"]
    path = origin_path(config)
    _, manifest = load_export(latest_export(path / "checkpoints"))
    if manifest["sha256"] != used:
        raise CheckpointError(
            f"{folder.path} continued weights {used[:12]}... of {path}, which holds "
            f"{manifest['sha256'][:12]}... now. Delete the folder to run it again, or choose "
            "another experiment"
        )


def read_start(config: Config) -> tuple[Start | None, list[Ancestor]]:
    """What the training of `config` starts from, the same on all ranks, and its lineage.

    Every rank calls it. Without an `init_from` there is nothing to start from, and no lineage.

    Raises:
        ConfigError, CheckpointError: the origin is missing or damaged, or not what rank 0 found.
    """
    if config.init_from is None:
        return None, []
    origin = find_origin(config)
    told = [origin.manifest["sha256"]]
    if dist.is_initialized():
        dist.broadcast_object_list(told, src=0)
    if origin.manifest["sha256"] != told[0]:
        raise CheckpointError(
            f"{origin.folder}: rank 0 starts from weights {told[0][:12]}..., this rank found "
            f"{origin.manifest['sha256'][:12]}...; all machines must see the same run folder"
        )
    lineage = origin.lineage
    return Start(origin.weights, sum(one["step"] for one in lineage)), lineage


def _summary(folder: RunFolder) -> dict[str, Any]:
    try:
        found = json.loads(folder.summary.read_text())
        return {**found, "tokenizer_sha256": str(found["tokenizer_sha256"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder.summary}: cannot be read ({error}); run it again") from error
