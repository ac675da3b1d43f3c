"""A run folder to mirror, and a server to mirror it to."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.config.compose import load
from pipeline.record.folder import RunFolder
from tests.record.fake_wandb import FakeWandb

SMOKE = Path(__file__).parents[2] / "configs" / "smoke.yaml"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty run folder whose configuration has W&B's default mode and time-outs."""
    overrides = [
        f"runs={tmp_path / 'runs'}",
        "sweep={}",
        "experiment=compare",
        "position=rope",
        "train_length=64",
        "wandb.mode=auto",
    ]
    (config,) = load(SMOKE, overrides)
    return RunFolder.create(config, name="rope-L64-s0").path


@pytest.fixture
def server() -> Iterator[FakeWandb]:
    """A running stand-in server."""
    with FakeWandb() as running:
        yield running
