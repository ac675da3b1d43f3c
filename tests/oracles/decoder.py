"""The whole decoder in fp64 from its weights, dense and plain; nothing of the project is used.

x = sqrt(D) E[token] (+ position); per block x += attention(norm x), x += SwiGLU(norm x); nats =
-log softmax(W norm x)[next]. Attention per encoding is `oracles.attention` with its score, written
as a matrix: content scores, rope's turn by complex numbers, biases from the scalar oracles.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tests.oracles import positions as oracle

Weights = Mapping[str, Tensor]


def _norm(x: Tensor, gain: Tensor) -> Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * gain


def _turned(x: Tensor, base: float) -> Tensor:
    """x [H,S,d]: pair (2t, 2t+1) as a complex number, times e^{i position base^(-2t/d)}."""
    heads, length, width = x.shape
    pairs = torch.view_as_complex(x.reshape(heads, length, width // 2, 2))
    speeds = torch.tensor([base ** (-2.0 * t / width) for t in range(width // 2)]).double()
    angles = torch.arange(length).double()[:, None] * speeds
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


def _bias(name: str, heads: int, length: int, own: Weights, settings: dict[str, Any]) -> Tensor:
    """[H,S,S], zero where the encoding adds nothing to scores."""
    bias = torch.zeros(heads, length, length, dtype=torch.float64)
    for h in range(heads):
        for n in range(length):
            value: float | Tensor = 0.0
            if name == "alibi":
                value = -oracle.alibi_slope(heads, h) * n
            elif name == "t5":
                bucket = oracle.t5_bucket(n, settings["buckets"], settings["max_distance"])
                value = own["table"][bucket, h]
            for i in range(n, length):
                bias[h, i, i - n] = value
    return bias


class OracleDecoder:
    """Built from a state dict by parameter name; `nats` scores one sequence."""

    def __init__(
        self, weights: Weights, name: str, settings: dict[str, Any], heads: int, layers: int
    ) -> None:
        self.w = {n: w.detach().double() for n, w in weights.items()}
        self.name, self.settings, self.heads, self.layers = name, settings, heads, layers
        prefix = "position."
        self.own = {n[len(prefix) :]: w for n, w in self.w.items() if n.startswith(prefix)}
        self.biases: dict[int, Tensor] = {}

    def nats(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """tokens, labels [S] -> nats [S] fp64."""
        table = self.w["embedding.weight"]
        x = math.sqrt(table.shape[1]) * table[tokens]
        if self.name in oracle.INPUTS:
            x = oracle.INPUTS[self.name](x[None], self.own, self.settings)[0]
        for layer in range(self.layers):
            x = self._block(x, f"blocks.{layer}.")
        logits = _norm(x, self.w["norm.gain"]) @ self.w.get("head.weight", table).T
        return torch.logsumexp(logits, -1) - logits[torch.arange(len(labels)), labels]

    def _block(self, x: Tensor, at: str) -> Tensor:
        length, width = x.shape
        d = width // self.heads
        projected = (
            _norm(x, self.w[at + "attention_norm.gain"]) @ self.w[at + "attention.qkv.weight"].T
        )
        # head after head, and q, k, v within each
        q, k, v = projected.view(length, self.heads, 3, d).permute(2, 1, 0, 3)
        if self.name == "rope":
            q, k = (_turned(z, self.settings["base"]) for z in (q, k))
        if length not in self.biases:
            self.biases[length] = _bias(self.name, self.heads, length, self.own, self.settings)
        scores = q @ k.transpose(-1, -2) / math.sqrt(d) + self.biases[length]
        ahead = torch.ones(length, length, dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(ahead, -math.inf).softmax(-1) @ v
        x = x + mixed.transpose(0, 1).reshape(length, width) @ self.w[at + "attention.out.weight"].T
        gate, up = (
            _norm(x, self.w[at + "mlp_norm.gain"]) @ self.w[at + "mlp.gate_up.weight"].T
        ).chunk(2, -1)
        return x + (gate * torch.sigmoid(gate) * up) @ self.w[at + "mlp.out.weight"].T
