"""How far a model attends: the mass of its attention weights by distance, per layer and head.

With a_ij the weight of key j for query i and n = i - j their distance in tokens, of each head

    mass of a bin          mean over queries of sum of a_ij, n in the bin
    distance               mean over queries of sum_j a_ij (i - j)
    beyond train_length    mean over queries of sum of a_ij, n >= train_length

Every query counts alike, and the weights of each sum to 1. Bins are {0}, {1}, [2, 4), [4, 8), ...:
as many distances again in each as in all before it. The mean distance is that of Vig and Belinkov
2019, arXiv 1906.04284 (Dosovitskiy et al. 2021, arXiv 2010.11929, show the same of images). Within
the train length no query has a key at a distance of `train_length` or more.

Legend: L layers, h heads, I queries of one sequence, S its tokens, N bins.
"""

from typing import Any

import torch
from torch import Tensor

Row = dict[str, Any]


def bin_edges(length: int) -> list[int]:
    """N + 1 edges of bins that hold the distances 0 to `length` - 1: 0, 1, 2, 4, 8, ..."""
    edges = [0, 1]
    while edges[-1] < length:
        edges.append(2 * edges[-1])
    return edges


class AttentionMass:
    """Sums over the queries of every document at one length, layer by layer."""

    def __init__(self, layers: int, heads: int, length: int, train_length: int) -> None:
        self.train_length, self.edges = train_length, bin_edges(length)
        self.mass = torch.zeros(layers, heads, len(self.edges) - 1, dtype=torch.float64)
        self.distance, self.beyond = torch.zeros(2, layers, heads, dtype=torch.float64)
        self.seen = torch.zeros(layers, dtype=torch.int64)
        self.pairs = torch.zeros(layers, len(self.edges) - 1, dtype=torch.int64)

    def add(self, layer: int, scores: Tensor, queries: Tensor) -> None:
        """scores [h,I,S] of the queries at places [I], minus infinity where a key is not seen."""
        weights = scores.double().softmax(-1)
        places = torch.arange(weights.shape[-1], device=weights.device)
        distance = queries[:, None] - places
        edges = torch.tensor(self.edges, device=weights.device)
        # keys after the query have no weight, whichever bin they are put in
        bins = torch.bucketize(distance.clamp(min=0), edges, right=True) - 1
        found = weights.new_zeros(*weights.shape[:2], len(self.edges) - 1)
        found.scatter_add_(-1, bins.expand_as(weights), weights)
        self.mass[layer] += found.sum(1).cpu()
        self.distance[layer] += (weights * distance).sum((1, 2)).cpu()
        self.beyond[layer] += (weights * (distance >= self.train_length)).sum((1, 2)).cpu()
        self.pairs[layer] += torch.bincount(bins[distance >= 0], minlength=found.shape[-1]).cpu()
        self.seen[layer] += len(queries)

    def rows(self) -> list[Row]:
        """One per layer and head; without numbers where a score was no finite number.

        `pairs` are the queries with their keys whose distances are in a bin, seen or masked: what
        its mass would be shared by.
        """
        rows = []
        for layer, head in torch.cartesian_prod(*map(torch.arange, self.distance.shape)).tolist():
            count = float(self.seen[layer])
            mass = self.mass[layer, head] / count
            row = {"probe": "attention", "layer": layer, "head": head, "edges": self.edges}
            row |= {"pairs": self.pairs[layer].tolist(), "mass": None}
            row |= {"distance": None, "beyond": None}
            if bool(mass.isfinite().all()):
                if abs(float(mass.sum()) - 1.0) > 1e-6:
                    raise AssertionError(f"weights of layer {layer}, head {head} do not sum to 1")
                row["mass"] = mass.tolist()
                row["distance"] = float(self.distance[layer, head]) / count
                row["beyond"] = float(self.beyond[layer, head]) / count
            rows.append(row)
        return rows
