"""What a slow oracle knows of an encoding."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Encoding:
    """An encoding in one layer: its parameters by name, in fp64, and its settings."""

    parameters: Mapping[str, Tensor]
    settings: Mapping[str, Any]
    heads: int
    train_length: int
    layer: int = 0
    # gate logits [H,S] of an encoding with gates
    gates: Tensor | None = None
