"""Gates, contexts and mixtures of heads, from the papers, in loops and fp64; nothing of the
project is used."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tests.oracles.attention import RowScore, Score, Value, plain_score
from tests.oracles.encoding import Encoding


def fox_score(own: Encoding) -> Score:
    """Lin et al. 2025: q.k/sqrt(d) + log f of every token after j, up to i; f = sigmoid(logit)."""
    assert own.gates is not None
    gates = own.gates

    def score(q: Tensor, k: Tensor, head: int, i: int, j: int) -> Tensor:
        total = plain_score(q, k, head, i, j)
        for t in range(j + 1, i + 1):
            total = total + torch.log(1.0 / (1.0 + torch.exp(-gates[head, t])))
        return total

    return score


def cable_score(own: Encoding) -> Score:
    """Veisi et al. 2025: q.k/sqrt(d) - log(1 + e^logit) of every token after j, up to i."""
    assert own.gates is not None
    gates = own.gates

    def score(q: Tensor, k: Tensor, head: int, i: int, j: int) -> Tensor:
        total = plain_score(q, k, head, i, j)
        for t in range(j + 1, i + 1):
            total = total - torch.log(1.0 + torch.exp(gates[head, t]))
        return total

    return score


def cope_score(own: Encoding) -> Score:
    """Golovneva et al. 2024, the listing: count gates back from the query, read e between."""
    table = own.parameters["table"][own.layer]
    last = own.settings["positions"] - 1

    def row(q: Tensor, k: Tensor, head: int, i: int, ids: Sequence[Any]) -> Tensor:
        query, counted, found = q[head, i], torch.zeros((), dtype=torch.float64), []
        for j in range(i, -1, -1):
            score = plain_score(query, k[head, j], head, i, j)
            counted = counted + 1.0 / (1.0 + torch.exp(-score))
            position = counted if counted.item() < last else torch.full_like(counted, last)
            below = math.floor(position.item())
            above = math.ceil(position.item())
            share = position - below
            read = (1.0 - share) * (query @ table[below]) + share * (query @ table[above])
            found.append(score + read)
        return torch.stack(found[::-1])

    return RowScore(row)


def _dape_bias(own: Encoding, head: int, distance: float) -> Tensor:
    """KERPLE's -r1 log(1 + r2 n), or ALiBi's -n 2^(-8 (h + 1) / H) of a power of two of heads."""
    if own.settings["base"] == "alibi":
        slope = 2.0 ** (-8.0 * (head + 1) / own.heads)
        return torch.tensor(-slope * distance, dtype=torch.float64)
    r1, r2 = (
        torch.log(1.0 + torch.exp(own.parameters[name][own.layer, head]))
        for name in ("raw_r1", "raw_r2")
    )
    return -r1 * torch.log(1.0 + r2 * distance)


def dape_score(own: Encoding) -> Score:
    """Zheng et al. 2024: A + B + MLP([A_1 ... A_H; B_1 ... B_H]), pair by pair."""
    w1, b1, w2, b2 = (own.parameters[name][own.layer] for name in ("w1", "b1", "w2", "b2"))

    def row(q: Tensor, k: Tensor, head: int, i: int, ids: Sequence[Any]) -> Tensor:
        found, heads = [], range(own.heads)
        for j in range(i + 1):
            scores = [plain_score(q[h, i], k[h, j], h, i, j) for h in heads]
            biases = [_dape_bias(own, h, ids[i] - ids[j]) for h in heads]
            total = scores[head] + biases[head] + b2[head]
            for unit in range(len(b1)):
                x = b1[unit] + (w1[unit] * torch.stack(scores + biases)).sum()
                total = total + w2[head, unit] * (x if x.item() > 0 else 0.01 * x)
            found.append(total)
        return torch.stack(found)

    return RowScore(row)


SCORES: dict[str, Callable[[Encoding], Score]] = {
    "fox": fox_score,
    "cable": cable_score,
    "cope": cope_score,
    "dape": dape_score,
}
VALUES: dict[str, Callable[[Encoding], Value]] = {}
INPUTS: dict[str, Callable[[Tensor, Encoding, Tensor], Tensor]] = {}
