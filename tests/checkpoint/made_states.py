"""Small checkpoints, and two ways to damage a file."""

import os
from pathlib import Path

import torch

from pipeline.checkpoint.state import MOMENTS, Keeper, TrainingState

FACTS = {"config_hash": "c"}


def state(step: int, validation_loss: float | None = None) -> TrainingState:
    draw = torch.Generator().manual_seed(step)

    def named() -> dict[str, torch.Tensor]:
        return {"a": torch.randn(40, 30, generator=draw), "b": torch.randn(7, generator=draw)}

    return TrainingState(
        step,
        10 * step,
        0.5 * step,
        named(),
        {moment: named() for moment in MOMENTS},
        [1.0, 0.1],
        validation_loss,
    )


def saved(place: Path, *steps: int, keep: int = 9) -> Path:
    keeper = Keeper(place / "checkpoints", keep, FACTS)
    for step in steps:
        keeper.save(state(step))
    return place / "checkpoints"


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def flip_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 4
    file.write_bytes(content)
