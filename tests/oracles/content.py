"""Relative terms that depend on queries or keys, from the papers, in loops and fp64; nothing of the
project is used."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from tests.oracles.attention import Score, Value
from tests.oracles.encoding import Encoding


def sinusoid(n: int, width: int) -> tuple[list[float], list[float]]:
    """Sines and cosines of n / 10000^(2t/w), t < w/2."""
    angles = [n / 10000.0 ** (2 * t / width) for t in range(width // 2)]
    return [math.sin(a) for a in angles], [math.cos(a) for a in angles]


def xlnet_score(own: Encoding) -> Score:
    """Dai et al. 2019, section 3.3, with u and v of the layer (Yang et al. 2019)."""

    def score(q: Tensor, k: Tensor, head: int, i: int, j: int) -> Tensor:
        u, v = (own.parameters[n][own.layer, head] for n in ("content_bias", "position_bias"))
        projection = own.parameters["projection"][own.layer, head]
        sines, cosines = sinusoid(i - j, projection.shape[1])
        r = projection @ torch.tensor(sines + cosines, dtype=torch.float64)
        return (q @ k + q @ r + u @ k + v @ r) / math.sqrt(len(q))

    return score


def tener_score(own: Encoding) -> Score:
    """Yan et al. 2019: q.k + q.R + u.k + v.R, R = [sin, cos, sin, cos, ...], and no sqrt(d)."""

    def score(q: Tensor, k: Tensor, head: int, i: int, j: int) -> Tensor:
        u, v = (own.parameters[n][own.layer, head] for n in ("content_bias", "position_bias"))
        waves = [x for pair in zip(*sinusoid(i - j, len(q)), strict=True) for x in pair]
        r = torch.tensor(waves, dtype=torch.float64)
        total = q @ k + q @ r + u @ k + v @ r
        return total / math.sqrt(len(q)) if own.settings["scaled"] else total

    return score


def deberta_score(own: Encoding) -> Score:
    """He et al. 2021, equation 4, over a whole table of 2k rows, k a share of the training text.

    Those that a causal model reads are the parameters: all of them as printed, the later half as in
    the code.
    """
    table, printed = own.parameters["table"], own.settings["form"] == "paper"
    k = round(own.settings["span_share"] * own.train_length)

    def delta(a: int, b: int) -> int:
        if a - b <= -k:
            return 0
        return 2 * k - 1 if a - b >= k else a - b + k

    def row(index: int) -> Tensor:
        return table[index if printed else index - k]

    def score(q: Tensor, key: Tensor, head: int, i: int, j: int) -> Tensor:
        w_k, w_q = (
            own.parameters[n][own.layer, head] for n in ("key_projection", "query_projection")
        )
        from_query = q @ (w_k @ row(delta(i, j)))
        from_key = key @ (w_q @ row(delta(j, i) if printed else delta(i, j)))
        return (q @ key + from_query + from_key) / math.sqrt(3 * len(q))

    return score


SCORES: dict[str, Callable[[Encoding], Score]] = {
    "xlnet": xlnet_score,
    "tener": tener_score,
    "deberta": deberta_score,
}
VALUES: dict[str, Callable[[Encoding], Value]] = {}
INPUTS: dict[str, Callable[[Tensor, Encoding, Tensor], Tensor]] = {}
