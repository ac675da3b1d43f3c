"""What of position can be read from a model's states by a linear map, layer by layer.

Haviv, Ram, Press, Izsak, Levy 2022, arXiv 2203.16634, read positions from the states of models with
no position encoding, and Kazemnejad et al. 2023, arXiv 2305.19466, show how one layer can make them
of the causal mask. They train a network for it; this is ridge regression in closed form, which
finds less: a low R^2 says that position is not there linearly, not that it is not there.

State l is what block l reads, the stream divided by its root mean square, and the last one is what
the output reads; l = 0 is the input. Targets are p / (S - 1) and ln(1 + p) / ln S of the token at
place p of S. The map is fitted on some documents, its penalty is the one of `PENALTIES` that does
best on others, and R^2 = 1 - (squared error) / (squared error of the fitted documents' mean) is
taken on others again. It can be negative. The control is the same in everything, with the positions
of each document shuffled: what it reaches is no knowledge of position. Nor is all that state 0
reaches under an encoding that leaves the input alone: so much the text itself tells of its place.

Legend: S tokens of a sequence, D width, Z = 1 + D + targets.
"""

import math
from typing import Any

import torch
from torch import Tensor

from pipeline.model.projection import rms_norm
from pipeline.positions.position_ids import generator

Row = dict[str, Any]
# R^2 and the penalty it was reached with
Reached = tuple[float | None, float | None]

# the part that a document is in is this at its number, over and over
PARTS = ("fit", "test", "choose", "fit")
LEAST_DOCUMENTS = 3
TARGETS = ("position", "log position")
# of the squared slopes, where features have variance 1 and the error is its mean over tokens
PENALTIES = tuple(10.0**power for power in range(-5, 3))
# a spread below this is that of a feature which does not vary: states have size 1
NOTHING = 1e-6


def targets(length: int, document: int) -> Tensor:
    """[S,4] fp64: position, its logarithm, and both at shuffled places, each from 0 to 1.

    The shuffle is another for every document, and the same for every run.
    """
    p = torch.arange(length, dtype=torch.float64)
    both = torch.stack([p / (length - 1), p.log1p() / math.log(length)], -1)
    order = torch.from_numpy(generator(document, length).permutation(length))
    return torch.cat([both, both[order]], -1)


class Decodability:
    """Moments of states and targets at one length, by state and part of the documents.

    A regression needs no more of the tokens than the sums of their products, so memory does not
    grow with documents or length.
    """

    def __init__(self, states: int, width: int, length: int, device: torch.device) -> None:
        size = 1 + width + 2 * len(TARGETS)
        self.width, self.length = width, length
        self.moments = {
            part: torch.zeros(states, size, size, dtype=torch.float64, device=device)
            for part in sorted(set(PARTS))
        }

    def add(self, state: int, x: Tensor, document: int) -> None:
        """x [S,D] of one document, by its number."""
        features = rms_norm(x, torch.ones_like(x[0])).double()
        aims = targets(self.length, document).to(x.device)
        z = torch.cat([torch.ones_like(aims[:, :1]), features, aims], -1)
        self.moments[PARTS[document % len(PARTS)]][state] += z.T @ z

    def rows(self) -> list[Row]:
        """One per state and target; without numbers where a state was no finite number."""
        rows = []
        for state in range(len(self.moments["fit"])):
            fit, choose, test = (self.moments[p][state] for p in ("fit", "choose", "test"))
            finite = all(bool(part.isfinite().all()) for part in (fit, choose, test))
            nothing: list[Reached] = [(None, None)] * (2 * len(TARGETS))
            found = _best(fit, choose, test, self.width) if finite else nothing
            for number, target in enumerate(TARGETS):
                (r2, penalty), (control, other) = found[number :: len(TARGETS)]
                rows.append({
                    "probe": "decodability", "layer": state, "head": None, "target": target,
                    "r2": r2, "penalty": penalty, "control_r2": control, "control_penalty": other,
                })  # fmt: skip
        return rows


def _best(fit: Tensor, choose: Tensor, test: Tensor, width: int) -> list[Reached]:
    """Moments [Z,Z] of the three parts -> for each column of `targets`, R^2 and the penalty."""
    maps = [residual_maps(fit, width, penalty) for penalty in PENALTIES]
    chosen = torch.stack([explained(m, choose, fit, width) for m in maps]).argmax(0)
    reached = torch.stack([explained(m, test, fit, width) for m in maps])
    picked = chosen.tolist()
    return [(float(reached[best, t]), PENALTIES[best]) for t, best in enumerate(picked)]


def residual_maps(moments: Tensor, width: int, penalty: float) -> Tensor:
    """Moments [Z,Z] -> [Z,4]: what z is multiplied by to give each target less its prediction.

    The prediction is a + b . x, with b the minimum of the mean squared error + penalty * |b|^2 over
    features of mean 0 and variance 1.
    """
    count, mean = moments[0, 0], moments[0, 1:] / moments[0, 0]
    covariance = moments[1:, 1:] / count - torch.outer(mean, mean)
    spread = covariance.diagonal()[:width].clamp(min=0).sqrt()
    unit = torch.where(spread > NOTHING, 1 / spread, 0.0)
    features = covariance[:width, :width] * unit[:, None] * unit
    features.diagonal().add_(penalty)
    slopes = torch.linalg.solve(features, covariance[:width, width:] * unit[:, None])
    slopes = slopes * unit[:, None]
    start = mean[width:] - mean[:width] @ slopes
    return torch.cat([-start[None], -slopes, torch.eye(len(start)).to(slopes)])


def explained(maps: Tensor, moments: Tensor, fit: Tensor, width: int) -> Tensor:
    """R^2 [4] of residual maps [Z,4] on the documents behind `moments`."""
    mean = fit[0, 1 + width :] / fit[0, 0]
    constant = torch.zeros_like(maps)
    constant[0], constant[1 + width :] = -mean, maps[1 + width :]
    error, worst = (torch.einsum("zt,zy,yt->t", m, moments, m) for m in (maps, constant))
    return 1.0 - error / worst
