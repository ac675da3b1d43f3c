"""Positions that enter at the input, or as products of position vectors, from the papers, in loops
and fp64; nothing of the project is used."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from tests.oracles.attention import Score, Value
from tests.oracles.encoding import Encoding


def complex_input(x: Tensor, own: Encoding, tokens: Tensor) -> Tensor:
    """Wang et al. 2020: r exp(i w p), its real and imaginary part through W: x [B,S,D]."""
    frequencies, projection = own.parameters["frequencies"], own.parameters["projection"]
    out = []
    for b in range(x.shape[0]):
        for p in range(x.shape[1]):
            row = tokens[b, p] if own.settings["sharing"] == "none" else 0
            real = [x[b, p, c] * torch.cos(frequencies[row, c] * p) for c in range(x.shape[2])]
            imaginary = [x[b, p, c] * torch.sin(frequencies[row, c] * p) for c in range(x.shape[2])]
            out.append(projection @ torch.stack([*real, *imaginary]))
    return torch.stack(out).view_as(x)


def floater_slope(own: Encoding, time: float, p: Tensor) -> Tensor:
    """Liu et al. 2020: h(t, p), a network of one hidden layer that reads time as well."""
    w1, w_time, b1, w2, b2 = (own.parameters[n] for n in ("w1", "w_time", "b1", "w2", "b2"))
    hidden = [torch.tanh((w1[u] * p).sum() + w_time[u] * time + b1[u]) for u in range(len(b1))]
    return torch.stack([(w2[c] * torch.stack(hidden)).sum() + b2[c] for c in range(len(b2))])


def floater_input(x: Tensor, own: Encoding, tokens: Tensor) -> Tensor:
    """x_i + p(i c), of p' = h(t, p) by one classical Runge-Kutta step for each token."""
    step, p = own.settings["interval"], own.parameters["start"]
    points = [p]
    for n in range(x.shape[1] - 1):
        time = n * step
        k1 = floater_slope(own, time, p)
        k2 = floater_slope(own, time + step / 2, p + step / 2 * k1)
        k3 = floater_slope(own, time + step / 2, p + step / 2 * k2)
        k4 = floater_slope(own, time + step, p + step * k3)
        p = p + step * (k1 / 6 + k2 / 3 + k3 / 3 + k4 / 6)
        points.append(p)
    return x + torch.stack(points)


def t5_causal_bucket(distance: int, buckets: int, max_distance: int) -> int:
    """Raffel et al. 2020: exact below half of the buckets, then logarithmic."""
    half = buckets // 2
    if distance < half:
        return distance
    share = math.log(distance / half) / math.log(max_distance / half)
    return min(buckets - 1, half + math.floor(share * (buckets - half) + 1e-12))


def tupe_score(own: Encoding) -> Score:
    """Ke et al. 2021: q.k/sqrt(2d) + reset(p_i U_Q . p_j U_K / sqrt(2d) + b)."""
    table, gain, shift = (own.parameters[n] for n in ("table", "gain", "shift"))

    def normed(i: int) -> Tensor:
        row = table[i] - table[i].mean()
        return row / (row.pow(2).mean() + 1e-5).sqrt() * gain + shift

    def score(q: Tensor, k: Tensor, head: int, i: int, j: int) -> Tensor:
        d = len(q)
        content = (q * k).sum() / math.sqrt(2 * d)
        if own.settings["untied"] and j == 0:
            return content + own.parameters["first"][head]
        here = slice(head * d, (head + 1) * d)
        u_q, u_k = (own.parameters[n][here] for n in ("query_projection", "key_projection"))
        content = content + ((u_q @ normed(i)) * (u_k @ normed(j))).sum() / math.sqrt(2 * d)
        if own.settings["relative"]:
            bucket = t5_causal_bucket(i - j, own.settings["buckets"], own.settings["max_distance"])
            content = content + own.parameters["buckets"][bucket, head]
        return content

    return score


SCORES: dict[str, Callable[[Encoding], Score]] = {"tupe": tupe_score}
VALUES: dict[str, Callable[[Encoding], Value]] = {}
INPUTS: dict[str, Callable[[Tensor, Encoding, Tensor], Tensor]] = {
    "complex": complex_input,
    "floater": floater_input,
}
