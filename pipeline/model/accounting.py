"""What a decoder consists of, and what its keys and values would take, as exact counts."""

import torch

from pipeline.config.schema import Config
from pipeline.model.decoder import Decoder
from pipeline.model.plan import PRECISIONS
from pipeline.positions.base import Site

PARTS = ("embedding", "attention", "feed-forward", "norms", "head", "position")


def parameters_by_part(decoder: Decoder) -> dict[str, int]:
    """Parameters of each of PARTS, each tensor once; a head that shares the embedding has none.

    The gains of norms stand apart wherever they are used; learned biases and scales of `model` are
    part of attention; `position` is the encoding and its ids.
    """
    found = dict.fromkeys(PARTS, 0)
    for name, parameter in decoder.named_parameters():
        found[_part(name)] += parameter.numel()
    return found


def _part(name: str) -> str:
    if name.startswith(("position.", "position_ids.", "bare.")):
        return "position"
    if name == "norm.gain" or name.endswith((".attention.gain", ".mlp.gain")):
        return "norms"
    for part, sign in (("attention", ".attention."), ("feed-forward", ".mlp.")):
        if sign in name:
            return part
    return name.partition(".")[0]


def cached_widths(decoder: Decoder, config: Config) -> list[tuple[int, int]]:
    """Of each layer, numbers per token and head that attention reads of a token seen before:
    those of its keys, of all branches of the encoding, and those of its gates.

    The value has `head_width` more. Keys are counted as they are multiplied, after the encoding has
    turned, widened or doubled them.
    """
    model, kind = config.model, PRECISIONS[config.trainer.precision]
    length = min(2, config.train_length)
    site = Site(0, range(model.heads), length)
    widths = []
    with decoder.embedding.weight.device:
        q = torch.empty((1, model.heads, length, model.head_width), dtype=kind)
        ids = torch.arange(length)[None]
        for layer in range(model.layers):
            position = decoder.position_of(layer)
            gates = torch.empty(q.shape[:3]) if position.has("gate_logits") else None
            scores = position.scores(q, q, ids, site, gates=gates)
            keys = sum(k.shape[-1] for _, k in scores.pairs)
            widths.append((keys, 0 if gates is None else 1))
    return widths


def cache_bytes(decoder: Decoder, config: Config, length: int, size: int) -> tuple[int, int]:
    """Bytes of the keys and values of one sequence of `length` tokens, numbers of `size` bytes, and
    what the encoding adds to them: wider keys, and a gate in fp32 for each token and head.

    A window keeps no more than its tokens.
    """
    model = config.model
    kept = min(length, model.attention_window or length)
    plain = 2 * model.layers * model.width * kept * size
    added = sum(
        model.heads * kept * ((keys - model.head_width) * size + 4 * gates)
        for keys, gates in cached_widths(decoder, config)
    )
    return plain, added
