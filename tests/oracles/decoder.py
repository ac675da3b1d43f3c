"""The whole decoder in fp64 from its weights, dense and plain; nothing of the project is used.

x = sqrt(D) E[token] (+ position); per block x += attention(norm x), x += SwiGLU(norm x); nats =
-log softmax(W norm x)[next]. Attention per encoding is `oracles.attention` with its score; of those
that are tested at length, written as a matrix: products of q and k with the turns and tables of the
encoding, and biases from the scalar oracles.
"""

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tests.oracles import positions as oracle
from tests.oracles.attention import attention
from tests.oracles.encoding import Encoding

Weights = Mapping[str, Tensor]
# what is not here, and has a score, is done in loops
AS_PRODUCTS = ("rope", "rerope", "shaw", "transformer_xl")
CONTENT_FREE = ("alibi", "t5", "kerple", "sandwich", "fire")


def _norm(x: Tensor, gain: Tensor) -> Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * gain


def _turned(q: Tensor, k: Tensor, base: float, window: float) -> Tensor:
    """q, k [H,S,d] -> [H,S,S]: pairs (2t, 2t+1) as complex numbers, Re sum_t q_t k_t* times
    e^{i min(i - j, window) base^(-2t/d)}."""
    heads, length, width = q.shape
    a, b = (torch.view_as_complex(x.reshape(heads, length, width // 2, 2)) for x in (q, k))
    speeds = torch.pow(base, -2.0 * torch.arange(width // 2).double() / width)
    i = torch.arange(length).double()
    angles = (i[:, None] - i).clamp(max=window)[..., None] * speeds
    waves = torch.polar(torch.ones_like(angles), angles)
    return torch.einsum("hit,hjt,ijt->hij", a, b.conj(), waves).real


def _products(name: str, own: Encoding, q: Tensor, k: Tensor) -> Tensor:
    """What the scores have of q and k, before the 1/sqrt(d): q, k [H,S,d] -> [H,S,S]."""
    i = torch.arange(q.shape[1])
    distance = (i[:, None] - i).clamp(min=0)
    if name in ("rope", "rerope"):
        window = oracle.rerope_window(own) if name == "rerope" else math.inf
        return _turned(q, k, own.settings["base"], window)
    if name == "shaw":
        rows = own.parameters["keys"][own.layer][distance.clamp(max=own.settings["clip"])]
        return q @ k.transpose(-1, -2) + torch.einsum("hie,ije->hij", q, rows)
    if name == "transformer_xl":
        u, v = (own.parameters[n][:, None] for n in ("content_bias", "position_bias"))
        projection = own.parameters["projection"][own.layer]
        width = projection.shape[-1]
        speeds = torch.pow(10000.0, -2.0 * torch.arange(width // 2).double() / width)
        angles = distance[..., None].double() * speeds
        waves = torch.cat([angles.sin(), angles.cos()], -1)
        rows = torch.einsum("hew,ijw->hije", projection, waves)
        return (q + u) @ k.transpose(-1, -2) + torch.einsum("hie,hije->hij", q + v, rows)
    return q @ k.transpose(-1, -2)


def _bias(name: str, own: Encoding, length: int) -> Tensor:
    """[H,S,S], what the scores have that is neither of q nor of k, from the scalar oracle."""
    bias = torch.zeros(own.heads, length, length, dtype=torch.float64)
    if name in CONTENT_FREE:
        nothing = torch.zeros(1, dtype=torch.float64)
        score = oracle.SCORES[name](own)
        for h, i in itertools.product(range(own.heads), range(length)):
            for j in range(i + 1):
                bias[h, i, j] = score(nothing, nothing, h, i, j)
    return bias


class OracleDecoder:
    """Built from a state dict by parameter name; `nats` scores one sequence."""

    def __init__(
        self,
        weights: Weights,
        name: str,
        settings: dict[str, Any],
        heads: int,
        layers: int,
        train_length: int,
    ) -> None:
        self.w = {n: w.detach().double() for n, w in weights.items()}
        self.name, self.heads, self.layers = name, heads, layers
        prefix = "position."
        own = {n[len(prefix) :]: w for n, w in self.w.items() if n.startswith(prefix)}
        self.encodings = [
            Encoding(own, settings, heads, train_length, layer) for layer in range(layers)
        ]
        self.biases: dict[int, Tensor] = {}

    def nats(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """tokens, labels [S] -> nats [S] fp64."""
        table = self.w["embedding.weight"]
        x = math.sqrt(table.shape[1]) * table[tokens]
        if self.name in oracle.INPUTS:
            x = oracle.INPUTS[self.name](x[None], self.encodings[0], tokens[None])[0]
        for layer in range(self.layers):
            x = self._block(x, layer)
        logits = _norm(x, self.w["norm.gain"]) @ self.w.get("head.weight", table).T
        return torch.logsumexp(logits, -1) - logits[torch.arange(len(labels)), labels]

    def _gates(self, normed: Tensor, layer: int) -> Tensor | None:
        """normed [S,D] -> w_h . x + b_h [H,S], of the encodings that have gates."""
        own = self.encodings[layer].parameters
        if self.name not in ("fox", "cable"):
            return None
        return own["w"][layer] @ normed.T + own["b"][layer][:, None]

    def _attention(self, q: Tensor, k: Tensor, v: Tensor, layer: int, normed: Tensor) -> Tensor:
        """q, k, v [H,S,d], normed [S,D] -> [H,S,d]."""
        length, own = q.shape[1], self.encodings[layer]
        if self.name in oracle.SCORES and self.name not in (*AS_PRODUCTS, *CONTENT_FREE):
            score = oracle.SCORES[self.name](replace(own, gates=self._gates(normed, layer)))
            return attention(q[None], k[None], v[None], score)[0]
        if layer not in self.biases or self.biases[layer].shape[1] < length:
            self.biases[layer] = _bias(self.name, own, length)
        scores = _products(self.name, own, q, k) / math.sqrt(q.shape[-1])
        scores = scores + self.biases[layer][:, :length, :length]
        ahead = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(ahead, -math.inf).softmax(-1)
        if self.name in oracle.VALUES:
            value = oracle.VALUES[self.name](own)
            i = range(length)
            rows = torch.stack([torch.stack([value(0, a, min(a, b)) for b in i]) for a in i])
            return weights @ v + torch.einsum("hij,ije->hie", weights, rows)
        return weights @ v

    def _block(self, x: Tensor, layer: int) -> Tensor:
        (length, width), at = x.shape, f"blocks.{layer}."
        d = width // self.heads
        normed = _norm(x, self.w[at + "attention.gain"])
        projected = normed @ self.w[at + "attention.qkv"].T
        # head after head, and q, k, v within each
        q, k, v = projected.view(length, self.heads, 3, d).permute(2, 1, 0, 3)
        mixed = self._attention(q, k, v, layer, normed)
        x = x + mixed.transpose(0, 1).reshape(length, width) @ self.w[at + "attention.out"].T
        gate, up = (_norm(x, self.w[at + "mlp.gain"]) @ self.w[at + "mlp.gate_up"].T).chunk(2, -1)
        return x + (gate * torch.sigmoid(gate) * up) @ self.w[at + "mlp.out"].T
