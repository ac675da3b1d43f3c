"""What a suite is made of: steps, each of them one row and the arrays that stand behind it."""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pipeline.config.label import own_settings
from pipeline.config.schema import Config
from pipeline.evaluate.score import Scorer

Row = dict[str, Any]
Values = dict[str, npt.NDArray[Any]]
Nats = npt.NDArray[np.float64]


class Step(Protocol):
    """One cell of an evaluation: a protocol or a task, at one length."""

    @property
    def key(self) -> str:
        """Its name, which differs from those of all other steps and is fit for a file."""

    @property
    def length(self) -> int:
        """Tokens of context, the label of the cell."""

    @property
    def tokens(self) -> int:
        """Tokens it shows the model in all."""

    def unmeasured(self, config: Config, precision: str) -> Row:
        """The row without its numbers: all that makes it comparable."""

    def measure(self, config: Config, scorer: Scorer) -> tuple[Row, Values]:
        """The row and its arrays, the same on all ranks; without arrays if it is not defined."""


def common_fields(config: Config) -> Row:
    """What every row says about the run that it was measured on."""
    return {
        "position": config.position["name"],
        "extension": config.extension["name"],
        "extension_settings": own_settings(config.extension),
        "seed": config.seed,
        "train_length": config.train_length,
    }
