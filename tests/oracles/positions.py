"""Each encoding from its paper, in loops and fp64; nothing of the project is used.

Per encoding, `scores(heads, parameters, settings)` gives S_ij for `oracles.attention`, and
`inputs(x, parameters, settings)` what is added to the scaled embeddings; absent means nothing.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from tests.oracles.attention import Score, plain_score

Parameters = Mapping[str, Tensor]


def rope_score(heads: int, parameters: Parameters, settings: dict[str, Any]) -> Score:
    """Su et al. 2021, equation 34: complex pairs (2t, 2t+1), turned by position times w_t."""

    def score(q: Tensor, k: Tensor, head: int, i: int, j: int) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for t in range(len(q) // 2):
            angle = (i - j) * settings["base"] ** (-2.0 * t / len(q))
            real = q[2 * t] * k[2 * t] + q[2 * t + 1] * k[2 * t + 1]
            imaginary = q[2 * t + 1] * k[2 * t] - q[2 * t] * k[2 * t + 1]
            # Re((q k*) e^{i angle})
            total = total + real * math.cos(angle) - imaginary * math.sin(angle)
        return total / math.sqrt(len(q))

    return score


def alibi_slope(heads: int, head: int) -> float:
    """Press et al. 2022: geometric slopes; the authors' recursion where H is no power of two."""

    def power_of_two(n: int) -> list[float]:
        first = 2.0 ** (-(2.0 ** -(math.log2(n) - 3.0)))
        return [first * first**i for i in range(n)]

    if math.log2(heads).is_integer():
        return power_of_two(heads)[head]
    closest = 2 ** math.floor(math.log2(heads))
    return (power_of_two(closest) + power_of_two(2 * closest)[0::2][: heads - closest])[head]


def alibi_score(heads: int, parameters: Parameters, settings: dict[str, Any]) -> Score:
    """S_ij = q.k/sqrt(d) - m_h (i - j)."""
    return lambda q, k, head, i, j: (
        plain_score(q, k, head, i, j) - alibi_slope(heads, head) * (i - j)
    )


def t5_bucket(distance: int, buckets: int, max_distance: int) -> int:
    """Raffel et al. 2020, causal: exact below nb/2, then logarithmic, then one for all."""
    exact = buckets // 2
    if distance < exact:
        return distance
    grown = math.log(distance / exact) / math.log(max_distance / exact) * (buckets - exact)
    return min(buckets - 1, exact + math.floor(grown + 1e-12))


def t5_score(heads: int, parameters: Parameters, settings: dict[str, Any]) -> Score:
    """S_ij = q.k/sqrt(d) + b_h[bucket(i - j)]."""

    def score(q: Tensor, k: Tensor, head: int, i: int, j: int) -> Tensor:
        bucket = t5_bucket(i - j, settings["buckets"], settings["max_distance"])
        return plain_score(q, k, head, i, j) + parameters["table"][bucket, head]

    return score


def kerple_score(heads: int, parameters: Parameters, settings: dict[str, Any]) -> Score:
    """Chi et al. 2022: q.k/sqrt(d) - r1 log(1 + r2 n), or - r1 n^r2; layer 0."""

    def score(q: Tensor, k: Tensor, head: int, i: int, j: int) -> Tensor:
        r1 = torch.log(1.0 + torch.exp(parameters["raw_r1"][0, head]))
        raw = parameters["raw_r2"][0, head]
        if settings["form"] == "log":
            kernel = torch.log(1.0 + torch.log(1.0 + torch.exp(raw)) * (i - j))
        elif i == j:
            kernel = torch.zeros((), dtype=torch.float64)
        else:
            kernel = (i - j) ** (2.0 / (1.0 + torch.exp(-raw)))
        return plain_score(q, k, head, i, j) - r1 * kernel

    return score


def sandwich_score(heads: int, parameters: Parameters, settings: dict[str, Any]) -> Score:
    """Chi et al. 2023: q.k/sqrt(d) + p_i.p_j / ratio_h with the sinusoidal rows written out."""

    def row(position: int) -> list[float]:
        width = settings["dimensions"]
        angles = [position * 10000.0 ** (-2.0 * t / width) for t in range(width // 2)]
        return [f(a) for a in angles for f in (math.sin, math.cos)]

    def score(q: Tensor, k: Tensor, head: int, i: int, j: int) -> Tensor:
        product = sum(a * b for a, b in zip(row(i), row(j), strict=True))
        return plain_score(q, k, head, i, j) + product / (8.0 * (head + 1) / heads)

    return score


def sinusoidal_input(x: Tensor, parameters: Parameters, settings: dict[str, Any]) -> Tensor:
    """Vaswani et al. 2017, section 3.5, element by element: x [B,S,D]."""
    width = x.shape[-1]
    rows = []
    for i in range(x.shape[1]):
        row = []
        for c in range(width):
            angle = i / 10000.0 ** (2 * (c // 2) / width)
            row.append(math.sin(angle) if c % 2 == 0 else math.cos(angle))
        rows.append(row)
    return x + torch.tensor(rows, dtype=torch.float64)


def learned_input(x: Tensor, parameters: Parameters, settings: dict[str, Any]) -> Tensor:
    """x_i + sqrt(D) P[i]: with x = sqrt(D) E, both tables are scaled alike."""
    rows = [math.sqrt(x.shape[-1]) * parameters["table"][i] for i in range(x.shape[1])]
    return x + torch.stack(rows)


SCORES: dict[str, Callable[[int, Parameters, dict[str, Any]], Score]] = {
    "rope": rope_score,
    "alibi": alibi_score,
    "t5": t5_score,
    "kerple": kerple_score,
    "sandwich": sandwich_score,
}
INPUTS: dict[str, Callable[[Tensor, Parameters, dict[str, Any]], Tensor]] = {
    "sinusoidal": sinusoidal_input,
    "learned": learned_input,
}
