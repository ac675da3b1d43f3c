"""Each encoding from its paper, in loops and fp64; nothing of the project is used.

`SCORES[name](encoding)` gives S_ij for `oracles.attention`, `VALUES[name](encoding)` what is added
to the values, and `INPUTS[name](x, encoding, tokens)` the input made of scaled embeddings of tokens
[B,S]; absent means nothing. Families of encodings have files of their own, whose tables are joined
here.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from tests.oracles import absolute, content, gates, rotary
from tests.oracles.attention import Score, Value, plain_score
from tests.oracles.encoding import Encoding


def _turned(q: Tensor, k: Tensor, distance: int, base: float) -> Tensor:
    """Re sum_t (q_t k_t*) e^{i distance w_t} / sqrt(d), over complex pairs (2t, 2t+1)."""
    total = torch.zeros((), dtype=torch.float64)
    for t in range(len(q) // 2):
        angle = distance * base ** (-2.0 * t / len(q))
        real = q[2 * t] * k[2 * t] + q[2 * t + 1] * k[2 * t + 1]
        imaginary = q[2 * t + 1] * k[2 * t] - q[2 * t] * k[2 * t + 1]
        # Re((q k*) e^{i angle})
        total = total + real * math.cos(angle) - imaginary * math.sin(angle)
    return total / math.sqrt(len(q))


def rope_score(own: Encoding) -> Score:
    """Su et al. 2021, equation 34: turned by position times w_t; GPT-NeoX pairs t with t + d/2."""

    def score(q: Tensor, k: Tensor, head: int, i: int, j: int) -> Tensor:
        if own.settings["layout"] == "halves":
            order = [t // 2 + t % 2 * (len(q) // 2) for t in range(len(q))]
            q, k = q[order], k[order]
        return _turned(q, k, i - j, own.settings["base"])

    return score


def rerope_window(own: Encoding) -> int:
    """Tokens; Su 2023, a share of the training length."""
    return round(own.settings["window_share"] * own.train_length)


def rerope_score(own: Encoding) -> Score:
    """Su 2023: rope with the distance min(i - j, w)."""
    w = rerope_window(own)
    return lambda q, k, head, i, j: _turned(q, k, min(i - j, w), own.settings["base"])


def alibi_slope(heads: int, head: int) -> float:
    """Press et al. 2022: geometric slopes; the authors' recursion where H is no power of two."""

    def power_of_two(n: int) -> list[float]:
        first = 2.0 ** (-(2.0 ** -(math.log2(n) - 3.0)))
        return [first * first**i for i in range(n)]

    if math.log2(heads).is_integer():
        return power_of_two(heads)[head]
    closest = 2 ** math.floor(math.log2(heads))
    return (power_of_two(closest) + power_of_two(2 * closest)[0::2][: heads - closest])[head]


def alibi_score(own: Encoding) -> Score:
    """S_ij = q.k/sqrt(d) - m_h (i - j)."""
    return lambda q, k, head, i, j: (
        plain_score(q, k, head, i, j) - alibi_slope(own.heads, head) * (i - j)
    )


def t5_bucket(distance: int, buckets: int, max_distance: int) -> int:
    """Raffel et al. 2020, causal: exact below nb/2, then logarithmic, then one for all."""
    exact = buckets // 2
    if distance < exact:
        return distance
    grown = math.log(distance / exact) / math.log(max_distance / exact) * (buckets - exact)
    return min(buckets - 1, exact + math.floor(grown + 1e-12))


def t5_score(own: Encoding) -> Score:
    """S_ij = q.k/sqrt(d) + b_h[bucket(i - j)]."""

    def score(q: Tensor, k: Tensor, head: int, i: int, j: int) -> Tensor:
        bucket = t5_bucket(i - j, own.settings["buckets"], own.settings["max_distance"])
        return plain_score(q, k, head, i, j) + own.parameters["table"][bucket, head]

    return score


def kerple_score(own: Encoding) -> Score:
    """Chi et al. 2022: q.k/sqrt(d) - r1 log(1 + r2 n), or - r1 n^r2."""

    def score(q: Tensor, k: Tensor, head: int, i: int, j: int) -> Tensor:
        r1 = torch.log(1.0 + torch.exp(own.parameters["raw_r1"][own.layer, head]))
        raw = own.parameters["raw_r2"][own.layer, head]
        if own.settings["form"] == "log":
            kernel = torch.log(1.0 + torch.log(1.0 + torch.exp(raw)) * (i - j))
        elif i == j:
            kernel = torch.zeros((), dtype=torch.float64)
        else:
            kernel = (i - j) ** (2.0 / (1.0 + torch.exp(-raw)))
        return plain_score(q, k, head, i, j) - r1 * kernel

    return score


def sandwich_score(own: Encoding) -> Score:
    """Chi et al. 2023: q.k/sqrt(d) + p_i.p_j / ratio_h with the sinusoidal rows written out."""

    def row(position: int) -> list[float]:
        width = own.settings["dimensions"]
        angles = [position * 10000.0 ** (-2.0 * t / width) for t in range(width // 2)]
        return [f(a) for a in angles for f in (math.sin, math.cos)]

    def score(q: Tensor, k: Tensor, head: int, i: int, j: int) -> Tensor:
        product = sum(a * b for a, b in zip(row(i), row(j), strict=True))
        return plain_score(q, k, head, i, j) + product / (8.0 * (head + 1) / own.heads)

    return score


def fire_score(own: Encoding) -> Score:
    """Li et al. 2024: q.k/sqrt(d) + f_h(psi(i - j) / (psi(max(L, i)) + 1e-6))."""
    w1, b1, w2, b2, c, m = (
        own.parameters[n][own.layer] for n in ("w1", "b1", "w2", "b2", "c", "m")
    )
    threshold = abs(m) * (own.settings["threshold_share"] * own.train_length)

    def score(q: Tensor, k: Tensor, head: int, i: int, j: int) -> Tensor:
        longest = threshold if threshold.item() > i else i
        x = torch.log(abs(c) * (i - j) + 1.0) / (torch.log(abs(c) * longest + 1.0) + 1e-6)
        network = (w2[head] * torch.relu(w1 * x + b1)).sum() + b2[head]
        return plain_score(q, k, head, i, j) + network

    return score


def shaw_score(own: Encoding) -> Score:
    """Shaw et al. 2018, equation 4: q_i.(k_j + K[clip(i - j)])/sqrt(d)."""
    keys = own.parameters["keys"][own.layer]
    return lambda q, k, head, i, j: plain_score(
        q, k + keys[min(i - j, own.settings["clip"])], head, i, j
    )


def shaw_value(own: Encoding) -> Value:
    """Shaw et al. 2018, equation 3: V[clip(i - j)]."""
    values = own.parameters["values"][own.layer]
    return lambda head, i, j: values[min(i - j, own.settings["clip"])]


def transformer_xl_score(own: Encoding) -> Score:
    """Dai et al. 2019, section 3.3: (q.k + q.W R + u.k + v.W R)/sqrt(d), R = [sin | cos]."""

    def score(q: Tensor, k: Tensor, head: int, i: int, j: int) -> Tensor:
        u, v = own.parameters["content_bias"][head], own.parameters["position_bias"][head]
        projection = own.parameters["projection"][own.layer, head]
        width = projection.shape[1]
        angles = [(i - j) / 10000.0 ** (2 * t / width) for t in range(width // 2)]
        waves = [math.sin(a) for a in angles] + [math.cos(a) for a in angles]
        r = projection @ torch.tensor(waves, dtype=torch.float64)
        return (q @ k + q @ r + u @ k + v @ r) / math.sqrt(len(q))

    return score


def sinusoidal_input(x: Tensor, own: Encoding, tokens: Tensor) -> Tensor:
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


def learned_input(x: Tensor, own: Encoding, tokens: Tensor) -> Tensor:
    """x_i + sqrt(D) P[i]: with x = sqrt(D) E, both tables are scaled alike."""
    rows = [math.sqrt(x.shape[-1]) * own.parameters["table"][i] for i in range(x.shape[1])]
    return x + torch.stack(rows)


SCORES: dict[str, Callable[[Encoding], Score]] = {
    "rope": rope_score,
    "alibi": alibi_score,
    "t5": t5_score,
    "kerple": kerple_score,
    "sandwich": sandwich_score,
    "fire": fire_score,
    "shaw": shaw_score,
    "transformer_xl": transformer_xl_score,
    "rerope": rerope_score,
}
VALUES: dict[str, Callable[[Encoding], Value]] = {"shaw": shaw_value}
INPUTS: dict[str, Callable[[Tensor, Encoding, Tensor], Tensor]] = {
    "sinusoidal": sinusoidal_input,
    "learned": learned_input,
}
for family in (absolute, content, gates, rotary):
    SCORES |= family.SCORES
    VALUES |= family.VALUES
    INPUTS |= family.INPUTS
