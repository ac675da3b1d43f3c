"""Finished runs that were never trained, to be continued: folders with what training leaves."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from pipeline.checkpoint.export import save_export
from pipeline.config.compose import load
from pipeline.config.groups import configs_folder
from pipeline.config.redact import config_hash
from pipeline.config.schema import Config
from pipeline.launch.continued import settle
from pipeline.model.decoder import Decoder
from pipeline.record.folder import RunFolder, run_name
from tests.distributed.toy import scattered

BASE = configs_folder() / "base.yaml"
SMALL = (
    "model.width=16", "model.layers=2", "model.heads=2", "model.mlp_width=24", "data.vocab=260",
    "train_length=32", "eval_lengths=[16,32,64,128]", "evaluate.suffix_tokens=8",
    "trainer.processes=1", "trainer.sequence_parallel=1", "wandb.mode=off",
)  # fmt: skip


def small_config(runs: Path, *overrides: str) -> Config:
    """A valid configuration whose run folders go to `runs`; `overrides` go on top of `SMALL`."""
    names = {override.partition("=")[0] for override in overrides}
    kept = [setting for setting in SMALL if setting.partition("=")[0] not in names]
    (config,) = load(BASE, [f"runs={runs}", "experiment=first", *kept, *overrides])
    return config


def finish(config: Config, *, seed: int = 0, lineage: Sequence[Mapping[str, Any]] = ()) -> Path:
    """The folder of a finished run of `config`, with random weights drawn from `seed`."""
    folder = RunFolder.create(config, name=run_name(config, ()))
    torch.manual_seed(seed)
    weights = {n: p.detach() for n, p in scattered(Decoder(config)).named_parameters()}
    steps = config.trainer.max_steps
    save_export(
        folder.path / "checkpoints",
        weights,
        step=steps,
        tokens=steps * config.trainer.batch_sequences * config.train_length,
        config_hash=config_hash(config),
    )
    summary = {"corpus_sha256": "c0" * 32, "tokenizer_sha256": "70" * 32, "lineage": list(lineage)}
    folder.trained.write_text(json.dumps(summary))
    folder.summary.write_text(json.dumps(summary))
    folder.mark_finished()
    return folder.path


def continued(origin: Path, *overrides: str) -> Config:
    """A settled configuration that continues `origin` at twice the length; with its settings, where
    `overrides` name no others."""
    return settle([asked(origin, *overrides)])[0]


def asked(origin: Path, *overrides: str) -> Config:
    """As `continued`, but as a user asks for it, before the origin is looked at."""
    names = {override.partition("=")[0] for override in overrides}
    usual = [f"init_from={origin}", "train_length=64", "experiment=longer", "encoding_length=null"]
    kept = [setting for setting in usual if setting.partition("=")[0] not in names]
    (config,) = load(origin / "config.yaml", [*kept, *overrides])
    return config
