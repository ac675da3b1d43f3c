"""Every encoding, and every scheme of position ids, comes back from a saved configuration and from
a checkpoint."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.checkpoint.export import load_export, save_export
from pipeline.config.compose import load
from pipeline.config.redact import save
from pipeline.model.decoder import Decoder, load_weights
from pipeline.model.exchange import Exchange
from tests.distributed.ranks import ROOT
from tests.distributed.toy import scattered, toy_config
from tests.positions.cases import CASES, named
from tests.positions.test_position_ids import FITTING

BASE = ROOT / "configs" / "base.yaml"


@pytest.mark.parametrize(("name", "chosen"), CASES, ids=named)
def test_a_checkpoint_gives_the_same_numbers_back(
    name: str, chosen: dict[str, Any], tmp_path: Path
) -> None:
    config = toy_config(name)
    config.position |= chosen
    trained, fresh = scattered(Decoder(config)), Decoder(config)
    weights = {n: p.detach().clone() for n, p in trained.named_parameters()}
    path = save_export(tmp_path, weights, step=1, tokens=1, config_hash="")
    load_weights(fresh, load_export(path)[0])
    tokens = torch.randint(0, 50, (1, 21), generator=torch.Generator().manual_seed(1))
    ids = torch.arange(21)[None]
    with torch.no_grad():
        one, other = (own.hidden(tokens, ids, Exchange()) for own in (trained, fresh))
    assert torch.equal(one, other)


@pytest.mark.parametrize(("name", "chosen"), CASES, ids=named)
def test_a_configuration_comes_back_as_it_was(
    name: str, chosen: dict[str, Any], tmp_path: Path
) -> None:
    settings = [f"position.{key}={value}" for key, value in chosen.items()]
    config = load(BASE, [f"position={name}", *settings])[0]
    assert chosen.items() <= config.position.items()
    save(config, tmp_path / "config.yaml")
    assert asdict(load(tmp_path / "config.yaml", [])[0]) == asdict(config)


@pytest.mark.parametrize("scheme", sorted({scheme for scheme, _ in FITTING}))
def test_position_ids_come_back_as_they_were(scheme: str, tmp_path: Path) -> None:
    config = load(BASE, [f"position_ids={scheme}"])[0]
    assert config.position_ids["name"] == scheme
    save(config, tmp_path / "config.yaml")
    assert asdict(load(tmp_path / "config.yaml", [])[0]) == asdict(config)
