"""The position-id contract: which position each token of a sequence is said to have.

Encodings are functions of position ids. These are 0, 1, 2, ... unless a scheme draws others in
training, so that positions of long sequences are seen in short ones, or counts something else than
tokens. Ids are made for whole sequences, before a sequence is shared among ranks, from a generator
that (seed, step, place in the global batch) determine alone: every rank has the same ones. Whatever
is measured in training lengths, as by encodings and extensions, stays so, also where larger ids
were seen in training.

Legend: B batch, T tokens held by this rank, S whole sequence, D model width.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from pipeline.errors import ConfigError
from pipeline.positions.base import Position, Shape

Ids = npt.NDArray[Any]  # int64, or fp64 where positions are not integers
Tokens = npt.NDArray[np.int64]


@dataclass(frozen=True)
class IdsFacts:
    """What a scheme declares; `python -m pipeline positions` prints it and tests hold it to it.

    `consecutive`: ids rise by one from token to token, wherever they start. `real`: they are not
    integers. `tested`: how sequences are numbered after training. `extra_parameters` as in
    `pipeline.positions.base.Facts`.
    """

    source: str
    formula: str
    tested: str
    consecutive: bool = False
    real: bool = False
    extra_parameters: str = "0"


class PositionIds(nn.Module):
    """Base of all schemes: consecutive ids from 0.

    A subclass sets `facts` and takes `shape` and its own settings (the keys of its yaml) by name.
    `reads_tokens`: the ids depend on the text. `tests_consecutive`: those of tests rise by one.
    """

    facts: ClassVar[IdsFacts]
    reads_tokens: ClassVar[bool] = False
    tests_consecutive: ClassVar[bool] = True

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape

    def drawn(self, length: int, tokens: Tokens | None, draw: np.random.Generator) -> Ids:
        """The ids of one training sequence of `length` tokens, [S]; `tokens` [S] only if they are
        read."""
        return np.arange(length)

    def tested(self, length: int, tokens: Tokens | None, seed: int) -> Ids:
        """The ids of a sequence that is tested, [S]; every sequence of a length has the same unless
        tokens are read."""
        return np.arange(length)

    @property
    def largest(self) -> int:
        """No id of a training sequence is larger."""
        return self.shape.train_length - 1

    @property
    def max_length(self) -> int | None:
        """Longest sequence, in tokens, that can be numbered; None = unbounded."""
        return None

    def read_vocabulary(self, pieces: Sequence[bytes]) -> None:
        """Learn what text each token stands for."""

    def embed(self, x: Tensor, ids: Tensor, here: slice) -> Tensor:
        """x [B,T,D] inputs, ids [B,S] or [1,S] of the whole sequence, `here` its tokens held by
        this rank -> x [B,T,D]."""
        return x

    def forward(self, hook: str, *args: Any) -> Any:
        """Call a hook by name. Through `__call__` because ZeRO-3 gathers parameters only there."""
        return getattr(self, hook)(*args)

    def refusal(self, position: Position) -> str | None:
        """Why an encoding cannot be trained with these ids, as the end of a sentence; or None."""
        if type(self).facts.consecutive:
            if position.facts.shift_invariant:
                return "its scores depend on distances alone, so a shift of all ids has no effect"
        elif position.by_distance:
            return "it reads vectors by the distance of tokens, and knows only whole distances"
        if not any(map(position.has, ("embed", "rotate", "branches", "bias", "transform"))):
            return "it reads no position ids, so they have no effect"
        if self.facts.real and not position.facts.real_positions:
            return "it is defined for whole positions, and these are not"
        if position.max_length is not None and self.largest >= position.max_length:
            return (
                f"it is defined for ids below {position.max_length}, and these reach {self.largest}"
            )
        return None


def check_fit(scheme: PositionIds, name: str, position: Position, encoding: str) -> None:
    """Refuse ids that an encoding cannot be trained with.

    Raises:
        ConfigError: it cannot, with the reason.
    """
    refusal = scheme.refusal(position)
    if refusal is not None:
        raise ConfigError(
            f"position_ids={name} does not fit position={encoding}: {refusal}; use "
            "position_ids=consecutive, or another encoding"
        )


def generator(*numbers: int) -> np.random.Generator:
    """A generator that these numbers, each >= 0, determine, on every machine alike."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(numbers)))


def pack_ids(rows: Sequence[Ids]) -> Tensor:
    """Ids of the sequences of a batch -> [B,S] int64, or [1,S] where all are alike.

    Real ones travel as the bits of fp64: engines cast every float of a batch.
    """
    alike = all(np.array_equal(row, rows[0]) for row in rows)
    stacked = np.stack(rows[:1] if alike else rows)
    return torch.from_numpy(stacked.view(np.int64))


def unpack_ids(packed: Tensor, real: bool) -> Tensor:
    """What `pack_ids` made -> ids [B,S] or [1,S], int64, or fp64 if they are `real`."""
    return packed.view(torch.float64) if real else packed
