"""What attention has to compute, as data; how it is computed is the business of `pipeline.model`.

S_ij  = (q_i . k_j + r_i . K[i - j] + k_j . Q[i - j]) scale + b[i - j] + f(i, j) + c_i - c_j
        for 0 <= i - j < window and (i, j) allowed
out_i = sum_j softmax_j(t(S)_ij) (v_j + V[i - j])

With a context E, S_ij also has (1 - w) q_i . E[n] + w q_i . E[n + 1], where n + w, 0 <= w < 1, is
min(sum_{l=j..i} sigmoid(S_il), N - 1) over the keys l that i sees. Several pairs (q, k) are
branches: `select` says which of them scores (i, j). Tables by distance are read at
min(i - j, N - 1): one shorter than the sequence is constant from distance N - 1 on. They are by the
distance of tokens, which is that of their ids only where ids are consecutive.
Legend: B batch, h heads held by this rank, S tokens at hand, E width of q and k, d width of v, N
entries of a table, I query block, J key block.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor

Pairwise = Callable[[Tensor, Tensor], Tensor]
Transform = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Scores:
    """The scores of one layer; every field but `pairs` and `scale` may be absent.

    Attributes:
        pairs: (q, k) of each branch, [B,h,S,E].
        scale: factor of the products.
        ids_q, ids_k: global positions of the queries [S], and of all keys that they meet, on this
            rank or another; `bias` and `select` are asked about them.
        constant_from: N - 1 where the tables end in a constant; None where they end with S.
        table: b, [h,N] fp32.
        queries, keys: r [B,h,S,E] and K [h,N,E].
        key_table: Q [h,N,E], read by the keys of the one pair.
        values: V [h,N,d].
        decay_q, decay_k: c of the queries [B,h,S] and of all keys that they meet, fp64. Only
            `decay_k` has a gradient: that of c_i is the sum of a row's, which is zero.
        bias: f, (ids [I], ids [J]) -> [h,I,J] fp32; any finite number where j > i. It may read
            `parameters`, and is differentiated with respect to them.
        select: (ids [I], ids [J]) -> [I,J], index of the branch, on the device of the ids.
        allowed: (ids [I], ids [J]) -> [h,I,J] or [1,I,J], true where a query sees a key; every
            query sees itself.
        transform: t, (S [B,h,I,J] fp32, ids [I], ids [J]) -> [B,h,I,J], of all heads at once. It
            may read `parameters`, and is differentiated with respect to S and to them.
        context: makes E [h,N,d], or [1,N,d] for all heads, of `parameters`; q is that of the pair.
        window: a query sees this many tokens, itself included; None = all.
        folded: makes wider q, k whose products alone give these scores, up to a number per row.
    """

    pairs: tuple[tuple[Tensor, Tensor], ...]
    scale: float
    ids_q: Tensor
    ids_k: Tensor
    constant_from: int | None = None
    table: Tensor | None = None
    queries: Tensor | None = None
    keys: Tensor | None = None
    key_table: Tensor | None = None
    values: Tensor | None = None
    decay_q: Tensor | None = None
    decay_k: Tensor | None = None
    bias: Pairwise | None = None
    parameters: tuple[Tensor, ...] = ()
    select: Pairwise | None = None
    allowed: Pairwise | None = None
    transform: Transform | None = None
    context: Callable[[], Tensor] | None = None
    window: int | None = None
    folded: Callable[[], tuple[Tensor, Tensor]] | None = None

    @property
    def by_distance(self) -> tuple[Tensor, ...]:
        """The tables by distance that are present."""
        tables = (self.table, self.keys, self.key_table, self.values)
        return tuple(table for table in tables if table is not None)

    @property
    def tabular(self) -> bool:
        """Whether S_ij = q_i . k_j scale + b[i - j], or without b, in a window or not."""
        relative = (self.keys, self.key_table, self.values, self.decay_k)
        other = (self.bias, self.select, self.allowed, self.transform, self.context)
        return all(part is None for part in (*relative, *other))

    @property
    def plain(self) -> bool:
        """Whether S_ij = q_i . k_j scale, and nothing else."""
        return self.tabular and self.table is None and self.window is None

    @property
    def vectors(self) -> tuple[Tensor | None, ...]:
        """The tensors beside pairs and parameters that a gradient may be asked for."""
        return self.table, self.queries, self.keys, self.key_table, self.values, self.decay_k

    def tensors(self) -> tuple[Tensor | None, ...]:
        """What a gradient may be asked for, in the order that `with_tensors` takes it: q and k of
        every pair, `vectors`, `parameters`."""
        flat = (tensor for pair in self.pairs for tensor in pair)
        return (*flat, *self.vectors, *self.parameters)

    def with_tensors(self, tensors: tuple[Tensor | None, ...]) -> "Scores":
        """These scores with other tensors, in the order of `tensors()`."""
        flat, rest = tensors[: 2 * len(self.pairs)], tensors[2 * len(self.pairs) :]
        pairs = tuple(zip(flat[::2], flat[1::2], strict=True))
        table, queries, keys, key_table, values, decay_k, *parameters = rest
        return replace(
            self,
            pairs=pairs,  # type: ignore[arg-type]
            table=table,
            queries=queries,
            keys=keys,
            key_table=key_table,
            values=values,
            decay_k=decay_k,
            parameters=tuple(parameters),  # type: ignore[arg-type]
        )
