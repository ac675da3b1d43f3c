"""The position contract: what an encoding may do.

Legend: B batch, T tokens held by this rank, S whole sequence, D model width, h heads held by this
rank, d head width, I query block, J key block. Score S_ij: query i, key j, distance i - j >= 0.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from pipeline.errors import ConfigError
from pipeline.positions.facts import Facts, Shape, Site
from pipeline.positions.scores import Pairwise, Scores

__all__ = ["Facts", "Position", "Shape", "Site"]


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

    @property
    def scale(self) -> float:
        """The factor of all products of queries and keys; default: 1/sqrt(d)."""
        return float(self.shape.head_width**-0.5)

    def embed(self, x: Tensor, ids: Tensor, tokens: Tensor) -> Tensor:
        """x [B,T,D] token embeddings, ids [B,T] or [1,T] global positions, tokens [B,T] their
        numbers in the vocabulary -> x [B,T,D]."""
        return x

    def gate_logits(self, project: Callable[[Tensor], Tensor], layer: int) -> Tensor | None:
        """`project(W [O,D])` -> W x [B,T,O] of the block's normalised stream x [B,T,D]; returns one
        number for each token and head, [B,T,H], which `decay` turns into c."""
        return None

    def decay(self, logits: Tensor, site: Site) -> Tensor:
        """`gate_logits` of the whole sequence, [B,h,S] -> c [B,h,S] fp64: c_i - c_j is added to the
        scores."""
        raise NotImplementedError("an encoding with gates says what they add up to")

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

    def relative_queries(self, site: Site) -> Tensor | None:
        """Q [h,N,E]: k_j . Q[min(i-j, N-1)] is added to q_i . k_j, before the scale; k as `rotate`
        leaves it, [B,h,S,E]."""
        return None

    def allowed(self, ids_q: Tensor, ids_k: Tensor, site: Site) -> Tensor:
        """ids_q [I], ids_k [J] -> [h,I,J] or [1,I,J], true where a query sees a key; every query
        sees itself, and none what is after it, whatever this says."""
        raise NotImplementedError("an encoding with a mask says what it allows")

    def transform(self, scores: Tensor, ids_q: Tensor, ids_k: Tensor, site: Site) -> Tensor:
        """scores [B,h,I,J] fp32, without bias, ids [I], [J] -> what softmax is taken of,
        [B,h,I,J]; any finite number where j > i."""
        raise NotImplementedError("an encoding that transforms scores says how")

    def relative_values(self, site: Site) -> Tensor | None:
        """V [h,N,d]: V[min(i-j, N-1)] is added to the value that query i reads from key j."""
        return None

    def folds(self, precision: torch.dtype, length: int) -> bool:
        """Whether `fold` is exact enough in this precision at this length, in tokens."""
        return False

    def fold(self, q: Tensor, k: Tensor, ids: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        """q, k [B,h,S,d] -> wider q, k [B,h,S,E] whose products alone give the same attention."""
        raise NotImplementedError("an encoding that folds says how")

    def adjust(self, scores: Scores, ids: Tensor, site: Site) -> Scores:
        """What attention computes, given what the other hooks come to; ids [B,A] or [1,A] of the
        tokens at hand. For what is said of the scores as a whole."""
        return scores

    @classmethod
    def has(cls, hook: str) -> bool:
        """Whether the encoding has a hook of its own."""
        return getattr(cls, hook) is not getattr(Position, hook)

    @property
    def by_distance(self) -> bool:
        """Whether vectors are read by the distance of tokens, which is that of consecutive ids."""
        return any(map(self.has, ("relative_keys", "relative_queries", "relative_values")))

    def scores(
        self,
        q: Tensor,
        k: Tensor,
        ids: Tensor,
        site: Site,
        window: int | None = None,
        mask: Pairwise | None = None,
        gates: Tensor | None = None,
    ) -> Scores:
        """What attention computes in one layer: q, k [B,h,A,d] of `site.tokens`, ids [B,S] or
        [1,S] of the whole sequence, gates [B,h,S] the `gate_logits` of all tokens; `mask` allows
        pairs as `allowed` does."""
        own_ids = ids[:, site.tokens]
        pairs = self.branches(q, k, own_ids, site)
        queries, keys = self.relative_keys(q, site) or (None, None)
        as_table = self.facts.shift_invariant and site.consecutive
        pairwise = self.has("bias") and not as_table
        transforms = self.has("transform")
        window = None if window is None or window >= site.length else window
        decay = None if gates is None else self.decay(gates, site)
        bare = window is None and mask is None and not self.has("allowed")
        folds = bare and site.consecutive and self.folds(q.dtype, site.length)
        found = Scores(
            pairs=pairs,
            scale=self.scale,
            ids_q=own_ids[0],
            ids_k=ids[0],
            constant_from=self.constant_from if site.consecutive else None,
            table=None if pairwise else self._distance_table(site, q.device),
            queries=queries,
            keys=keys,
            key_table=self.relative_queries(site),
            values=self.relative_values(site),
            decay_q=None if decay is None else decay[..., site.tokens].detach(),
            decay_k=decay,
            bias=partial(self.bias, site=site) if pairwise else None,  # type: ignore[arg-type]
            parameters=tuple(self.parameters()) if pairwise or transforms else (),
            select=self.select if len(pairs) > 1 else None,
            allowed=self._allowed(site, mask),
            transform=partial(self.transform, site=site) if transforms else None,
            window=window,
            folded=partial(self.fold, q, k, own_ids, site) if folds else None,
        )
        return self.adjust(found, own_ids, site)

    def _allowed(self, site: Site, mask: Pairwise | None) -> Pairwise | None:
        """What both the encoding and `mask` allow."""
        if not self.has("allowed"):
            return mask
        own = partial(self.allowed, site=site)
        return own if mask is None else lambda ids_q, ids_k: own(ids_q, ids_k) & mask(ids_q, ids_k)

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
        mask: Pairwise | None = None,
        gates: Tensor | None = None,
    ) -> Tensor:
        """`attention(scores, v)` with parameters at hand throughout: q, k, v [B,h,S,d]; the rest as
        in `scores`."""
        if len(ids) > 1 and self._asks(site, mask):
            # attention knows the ids of one sequence only
            pulls = [None] * len(q) if gates is None else gates.split(1)
            rows = zip(q.split(1), k.split(1), v.split(1), ids.split(1), pulls, strict=True)
            own = [
                self.attend(attention, q1, k1, v1, ids1, site, window, mask, pull)
                for q1, k1, v1, ids1, pull in rows
            ]
            return torch.cat(own)
        scores = self.scores(q, k, ids, site, window, mask, gates)
        if all(turned is not k for _, turned in scores.pairs):
            # a view of a projection would keep q and k alive beside what became of them
            v = v.contiguous()
        return attention(scores, v)

    def _asks(self, site: Site, mask: Pairwise | None) -> bool:
        """Whether attention asks about pairs of ids."""
        tables = self.facts.shift_invariant and site.consecutive
        hooks = ("select", "allowed", "transform") if tables else (
            "bias", "select", "allowed", "transform",
        )  # fmt: skip
        return mask is not None or any(map(self.has, hooks))

    def forward(self, hook: str, *args: Any) -> Any:
        """Call a hook by name. Through `__call__` because ZeRO-3 gathers parameters only there."""
        return getattr(self, hook)(*args)
