"""The position contract: what an encoding may do, and the facts it declares.

Legend: B batch, T tokens held by this rank, S whole sequence, D model width, h heads held by this
rank, d head width, I query block, J key block. Score S_ij: query i, key j, distance i - j >= 0.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from pipeline.errors import ConfigError


@dataclass(frozen=True)
class Shape:
    """The sizes an encoding may depend on; every one is a count, `train_length` in tokens."""

    width: int
    layers: int
    heads: int
    train_length: int

    @property
    def head_width(self) -> int:
        """Width of one head, d = D / H."""
        return self.width // self.heads


@dataclass(frozen=True)
class Site:
    """Where a hook is called: all three are global, whatever this rank holds.

    `layer` counts blocks from 0; `heads` are the global indices of the heads at hand (all H before
    the sequence exchange, h of them after it); `length` is the whole sequence in tokens.
    """

    layer: int
    heads: range
    length: int


@dataclass(frozen=True)
class Facts:
    """What an encoding declares; `python -m pipeline positions` prints it and tests hold it to it.

    `extra_parameters` is a formula over the fields of `Shape` and the encoding's settings.
    `attention_path` names the path of `pipeline.model.attention` that serves it.
    """

    source: str
    formula: str
    shift_invariant: bool
    attention_path: str
    extra_parameters: str = "0"
    length_dependent: bool = False
    head_shardable: bool = True


class Position(nn.Module):
    """Base of all encodings. Every hook defaults to "nothing".

    A subclass sets `facts`, and takes `shape` and its own settings (the keys of its yaml) by name.
    Parameters are full-size and replicated; hooks slice heads by `site.heads`. Angles, distances
    and biases are computed on the fly in fp32 or fp64 from integer ids, never stored as buffers:
    engines cast buffers and float batch entries.
    """

    facts: ClassVar[Facts]

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape

    @property
    def max_length(self) -> int | None:
        """Longest sequence, in tokens, for which the encoding is defined; None = unbounded."""
        return None

    def check_length(self, length: int) -> None:
        """Refuse a sequence longer than the encoding is defined for.

        Raises:
            ConfigError: `length` is beyond `max_length`.
        """
        if self.max_length is not None and length > self.max_length:
            raise ConfigError(
                f"a sequence of {length} tokens: this position encoding is not defined beyond "
                f"{self.max_length} tokens; use sequences up to {self.max_length}, or another "
                "encoding"
            )

    def embed(self, x: Tensor, ids: Tensor) -> Tensor:
        """x [B,T,D] token embeddings, ids [B,T] or [1,T] global positions -> x [B,T,D]."""
        return x

    def rotate(self, q: Tensor, k: Tensor, ids: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        """q, k [B,h,S,d], ids [B,S] or [1,S] global positions -> q, k."""
        return q, k

    def bias(self, ids_q: Tensor, ids_k: Tensor, site: Site) -> Tensor | None:
        """ids_q [I], ids_k [J] global positions -> [h,I,J] fp32, added after the 1/sqrt(d)."""
        return None

    def distance_table(self, site: Site, device: torch.device) -> Tensor | None:
        """The bias as a function of distance alone: [h,S] fp32 on `device`, entry (head, i - j).

        It is one row of `bias`, the last query's, and holds for shift-invariant encodings only.

        Raises:
            ConfigError: the encoding has a bias that depends on more than i - j.
        """
        if type(self).bias is Position.bias:
            return None
        if not self.facts.shift_invariant:
            raise ConfigError(
                f"position {type(self).__module__.rpartition('.')[2]!r}: its bias is not a "
                "function of distance alone, and no attention path serves such a bias; declare "
                "shift_invariant only if bias(i, j) depends on i - j"
            )
        last = torch.full((1,), site.length - 1, device=device)
        keys = torch.arange(site.length - 1, -1, -1, device=device)
        bias = self.bias(last, keys, site)
        assert bias is not None
        return bias[:, 0, :]

    def forward(self, hook: str, *args: Any) -> Any:
        """Call a hook by name. Through `__call__` because ZeRO-3 gathers parameters only there."""
        return getattr(self, hook)(*args)
