"""Test-time extensions from their papers, in loops and fp64; nothing of the project is used.

`DISTANCE[name](own, i, j)` is rel(i, j), the distance at which a rotary encoding lets i and j meet;
`SEEN[name](own, i, j)` whether i sees j at all, absent where it sees all before it;
`FACTOR[name](own, i, length)` what the products of query i are multiplied by. `own.settings` are
those of the extension.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from tests.oracles.attention import Score
from tests.oracles.encoding import Encoding


def _share(own: Encoding, key: str) -> int:
    """A share of the training length, in tokens."""
    return round(own.settings[key] * own.train_length)


def rerope(own: Encoding, i: int, j: int) -> float:
    """Su 2023: no distance beyond w."""
    return min(i - j, _share(own, "window_share"))


def leaky_rerope(own: Encoding, i: int, j: int) -> float:
    """Su 2023: 0, 1, .., w - 1, w, w + 1/k, w + 2/k, .."""
    w, distance = _share(own, "window_share"), i - j
    return distance if distance < w else w + (distance - w) / own.settings["factor"]


def self_extend(own: Encoding, i: int, j: int) -> float:
    """Jin et al. 2024: exact to W neighbours, then floored positions, q moved by W - W // G."""
    w, g = _share(own, "window_share"), own.settings["group"]
    return i - j if i - j < w else (i // g) + (w - w // g) - (j // g)


def dual_chunk(own: Encoding, i: int, j: int) -> float:
    """An et al. 2024: the index of k is j mod s; that of q is looked up by chunks back."""
    s, c = _share(own, "chunk_share"), _share(own, "window_share")
    back = i // s - j // s
    if back == 0:
        place = list(range(s))[i % s]
    elif back == 1:
        local = c - s
        place = ([s + n for n in range(local)] + [c - 1] * s)[i % s]
    else:
        place = c - 1
    return place - j % s


def lm_infinite_seen(own: Encoding, i: int, j: int) -> bool:
    """Han et al. 2024: the first tokens, and those nearer than the window."""
    return j < own.settings["global_tokens"] or i - j < _share(own, "window_share")


def blockwise_seen(own: Encoding, i: int, j: int) -> bool:
    """Sun et al. 2023: the block of i starts at b, the one before at b - B."""
    size = _share(own, "block_share")
    start = i - i % size
    return j >= start - size


def window_seen(own: Encoding, i: int, j: int) -> bool:
    """The last w tokens."""
    return j > i - _share(own, "window_share")


def log_n(own: Encoding, i: int, length: int) -> float:
    """Su 2021: log of the number of keys that i sees, to the base of the training length."""
    return max(1.0, math.log(i + 1, own.settings["length_share"] * own.train_length))


def temperature(own: Encoding, i: int, length: int) -> float:
    """Gelberg et al. 2025: 1 + c ln s, s the number of times the training length is exceeded."""
    times = max(1.0, length / own.train_length)
    return 1.0 + float(own.settings["coefficient"]) * math.log(times)


DISTANCE: dict[str, Callable[[Encoding, int, int], float]] = {
    "rerope": rerope,
    "leaky_rerope": leaky_rerope,
    "self_extend": self_extend,
    "dual_chunk": dual_chunk,
    "lm_infinite": rerope,
}
SEEN: dict[str, Callable[[Encoding, int, int], bool]] = {
    "lm_infinite": lm_infinite_seen,
    "blockwise": blockwise_seen,
    "window": window_seen,
}
FACTOR: dict[str, Callable[[Encoding, int, int], float]] = {
    "log_n": log_n,
    "temperature": temperature,
}


def rotary_score(name: str, own: Encoding, base: float) -> Score:
    """q_i R(rel(i, j)) k_j / sqrt(d): of each pair (2t, 2t+1) of k_j, turned back by rel w_t."""

    def score(q: Tensor, k: Tensor, head: int, i: int, j: int) -> Tensor:
        if name in SEEN and not SEEN[name](own, i, j):
            return torch.full((), -math.inf, dtype=torch.float64)
        rel, pairs = DISTANCE[name](own, i, j), range(len(q) // 2)
        turns = torch.tensor([rel * base ** (-2.0 * t / len(q)) for t in pairs], dtype=q.dtype)
        cos, sin = turns.cos(), turns.sin()
        x, y = k[0::2], k[1::2]
        total = (q[0::2] * (cos * x + sin * y) + q[1::2] * (cos * y - sin * x)).sum()
        return total / math.sqrt(len(q))

    return score


def scaled_score(name: str, own: Encoding, trained: Score, length: int) -> Score:
    """Of an encoding whose scores are linear in q but for its biases."""

    def score(q: Tensor, k: Tensor, head: int, i: int, j: int) -> Tensor:
        return trained(FACTOR[name](own, i, length) * q, k, head, i, j)

    return score


def masked_score(name: str, own: Encoding, trained: Score) -> Score:
    """The trained score where the extension lets i see j."""

    def score(q: Tensor, k: Tensor, head: int, i: int, j: int) -> Tensor:
        if SEEN[name](own, i, j):
            return trained(q, k, head, i, j)
        return torch.full((), -math.inf, dtype=torch.float64)

    return score


def hierarchical_row(table: Tensor, position: int, alpha: float) -> Tensor:
    """Su 2020: table [N,D] -> the row of a position up to N^2, of the basis u."""
    rows = len(table)

    def basis(n: int) -> Tensor:
        return (table[n] - alpha * table[0]) / (1.0 - alpha)

    i, j = divmod(position, rows)
    return alpha * basis(i) + (1.0 - alpha) * basis(j)
