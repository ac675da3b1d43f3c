"""Extensions as their battery builds them, each under some of the encodings that it fits."""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from pipeline.model.decoder import Decoder
from pipeline.model.exchange import Exchange
from pipeline.positions import registry
from pipeline.positions.base import Position, Site
from pipeline.positions.scores import Scores
from tests.distributed.toy import scattered, toy_config
from tests.positions.cases import LAYER, NAMES, SHAPE, build, random_gates, words

KINDS = registry.extension_names()
# where positions enter: rows of the input, rotations, biases by table and by pairs, tables that
# queries, keys and values are read with, gates, contexts, networks over scores
REPRESENTATIVE = (
    *("learned", "rope", "xpos", "alibi", "fire"),
    *("shaw", "deberta", "fox", "cope", "dape"),
)
LONG = 3 * SHAPE.train_length + 1


@cache
def fitting(kind: str) -> tuple[str, ...]:
    """The encodings that an extension fits."""
    found = registry.extension_class(kind)
    return tuple(name for name in NAMES if found.refusal(build(name)) is None)


def chosen(kind: str) -> list[str]:
    """Some of them."""
    every = fitting(kind)
    return [name for name in REPRESENTATIVE if name in every] or list(every[:1])


PAIRS = [(kind, name) for kind in KINDS for name in chosen(kind)]
FITS = [(kind, name) for kind in KINDS for name in fitting(kind)]


def extend(position: Position, name: str, kind: str, **settings: Any) -> Position:
    return registry.extended(position, name, {"name": kind, **settings})


def reached(position: Position, length: int) -> int:
    """`length`, or as far as the encoding is defined."""
    return length if position.max_length is None else min(length, position.max_length)


def inputs(position: Position, length: int) -> Tensor:
    x = torch.randn(1, length, SHAPE.width, generator=torch.Generator().manual_seed(4))
    found: Tensor = position("embed", x, torch.arange(length)[None], words(1, length))
    return found


def moved(one: Tensor, other: Tensor) -> float:
    """The largest difference of two sets of scores; infinite if not the same are masked."""
    if not torch.equal(one.isneginf(), other.isneginf()):
        return float("inf")
    return float((one - other).detach().nan_to_num(0.0, 0.0, 0.0).abs().max())


def part_of(
    position: Position, q: Tensor, k: Tensor, tokens: slice, length: int, start: int = 0
) -> Scores:
    """Scores of the tokens at hand, q, k [B,H,A,d], of a sequence of `length`, whose gates, where
    there are any, are moved on by `start`."""
    gates = random_gates(position, range(4), length)
    pull = None if gates is None else gates.roll(start, -1).expand(len(q), -1, -1)
    site = Site(LAYER, range(4), length, tokens)
    return position.scores(q, k, torch.arange(length)[None], site, None, None, pull)


def decoder_of(name: str, kind: str) -> Decoder:
    """The encoding of a trained decoder extended, with every parameter random."""
    decoder = scattered(Decoder(toy_config(name)))
    decoder.position = extend(decoder.position, name, kind)
    return decoder


def hidden(decoder: Decoder, tokens: Tensor) -> Tensor:
    with torch.no_grad():
        return decoder.hidden(tokens, torch.arange(tokens.shape[1])[None], Exchange())


def toy_tokens(length: int) -> Tensor:
    return torch.randint(0, 50, (1, length), generator=torch.Generator().manual_seed(1))
