"""The position contract: what an encoding may do, and the facts it declares.

Legend: B batch, T tokens held by this rank, S whole sequence, D model width, h heads held by this
rank, d head width, I query block, J key block. Score S_ij: query i, key j, distance i - j >= 0.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from pipeline.errors import ConfigError
from pipeline.positions.scores import Scores


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
    """Where a hook is called: all of it is global, whatever this rank holds.

    `layer` counts blocks from 0; `heads` are the global indices of the heads at hand (all H before
    the sequence exchange, h of them after it); `length` is the whole sequence in tokens, of which
    the queries and keys at hand are `tokens`.
    """

    layer: int
    heads: range
    length: int
    tokens: slice = field(default_factory=lambda: slice(None))


@dataclass(frozen=True)
class Facts:
    """What an encoding declares; `python -m pipeline positions` prints it and tests hold it to it.

    `extra_parameters` is a formula over the fields of `Shape` and the encoding's settings.
    `attention_paths` names the paths of `pipeline.model.attention` that serve it with its default
    settings, on some device and in some precision; the first is taken for short sequences on CPU.
    """

    source: str
    formula: str
    shift_invariant: bool
    attention_paths: tuple[str, ...]
    extra_parameters: str = "0"
    length_dependent: bool = False
    head_shardable: bool = True


class Position(nn.Module):
    """Base of all encodings. Every hook defaults to "nothing".

    A subclass sets `facts`, and takes `shape` and its own settings (the keys of its yaml) by name.
    Parameters are full-size and replicated; hooks slice heads by `site.heads`. `scores` derives
    from the hooks what attention reads. Angles, distances
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

    def branches(
        self, q: Tensor, k: Tensor, ids: Tensor, site: Site
    ) -> tuple[tuple[Tensor, Tensor], ...]:
        """Several rotations of q, k [B,h,S,d], of which `select` chooses; default: `rotate`."""
        return (self.rotate(q, k, ids, site),)

    def select(self, ids_q: Tensor, ids_k: Tensor) -> Tensor:
        """ids_q [I], ids_k [J] -> [I,J] index of the branch that scores each pair."""
        raise NotImplementedError("an encoding with several branches says which one holds where")

    def bias(self, ids_q: Tensor, ids_k: Tensor, site: Site) -> Tensor | None:
        """ids_q [I], ids_k [J] global positions -> [h,I,J] fp32, added after the 1/sqrt(d).

        Any finite number where j > i.
        """
        return None

    @property
    def constant_from(self) -> int | None:
        """The distance, in tokens, from which everything by distance no longer changes: `bias`,
        and the tables of `relative_keys` and `relative_values`, whose last entry N - 1 it is.
        None: there is none, and N = S."""
        return None

    def relative_keys(self, q: Tensor, site: Site) -> tuple[Tensor, Tensor] | None:
        """q [B,h,S,d], not rotated -> r [B,h,S,E] and K [h,N,E], which add r_i . K[min(i-j, N-1)]
        to q_i . k_j, before the 1/sqrt(d)."""
        return None

    def relative_values(self, site: Site) -> Tensor | None:
        """V [h,N,d]: V[min(i-j, N-1)] is added to the value that query i reads from key j."""
        return None

    def folds(self, precision: torch.dtype, length: int) -> bool:
        """Whether `fold` is exact enough in this precision at this length, in tokens."""
        return False

    def fold(self, q: Tensor, k: Tensor, ids: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        """q, k [B,h,S,d] -> wider q, k [B,h,S,E] whose products alone give the same attention."""
        raise NotImplementedError("an encoding that folds says how")

    def scores(
        self, q: Tensor, k: Tensor, ids: Tensor, site: Site, window: int | None = None
    ) -> Scores:
        """What attention computes in one layer: q, k [B,h,A,d] of `site.tokens`, ids [B,S] or
        [1,S] of the whole sequence."""
        own_ids = ids[:, site.tokens]
        pairs = self.branches(q, k, own_ids, site)
        queries, keys = self.relative_keys(q, site) or (None, None)
        own = type(self)
        pairwise = own.bias is not Position.bias and not own.facts.shift_invariant
        window = None if window is None or window >= site.length else window
        folds = window is None and self.folds(q.dtype, site.length)
        return Scores(
            pairs=pairs,
            scale=q.shape[-1] ** -0.5,
            ids_q=own_ids[0],
            ids_k=ids[0],
            constant_from=self.constant_from,
            table=None if pairwise else self._distance_table(site, q.device),
            queries=queries,
            keys=keys,
            values=self.relative_values(site),
            bias=partial(self.bias, site=site) if pairwise else None,  # type: ignore[arg-type]
            parameters=tuple(self.parameters()) if pairwise else (),
            select=self.select if len(pairs) > 1 else None,
            window=window,
            folded=partial(self.fold, q, k, own_ids, site) if folds else None,
        )

    def _distance_table(self, site: Site, device: torch.device) -> Tensor | None:
        """A shift-invariant bias by distance [h,N]: the row of `bias` of query N - 1."""
        entries = site.length if self.constant_from is None else self.constant_from + 1
        last = torch.full((1,), entries - 1, device=device)
        bias = self.bias(last, torch.arange(entries - 1, -1, -1, device=device), site)
        return None if bias is None else bias[:, 0, :]

    def attend(
        self,
        attention: Callable[[Scores, Tensor], Tensor],
        q: Tensor,
        k: Tensor,
        v: Tensor,
        ids: Tensor,
        site: Site,
        window: int | None = None,
    ) -> Tensor:
        """`attention(scores, v)` with parameters at hand throughout: q, k, v [B,h,S,d]."""
        scores = self.scores(q, k, ids, site, window)
        if all(turned is not k for _, turned in scores.pairs):
            # a view of a projection would keep q and k alive beside what became of them
            v = v.contiguous()
        return attention(scores, v)

    def forward(self, hook: str, *args: Any) -> Any:
        """Call a hook by name. Through `__call__` because ZeRO-3 gathers parameters only there."""
        return getattr(self, hook)(*args)
