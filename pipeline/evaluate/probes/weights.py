"""The attention of a few queries, row by row, from the scores that a model itself computes with.

Attention is computed in tiles and holds no row of weights. What it computes is data, though
(`pipeline.positions.scores.Scores`), from which the rows of single queries are made again here by
the tiles of the same paths: every term, mask, gate and transform is in them. Never an S x S matrix.

Legend: B batch, h heads, G = B h slices, S sequence, d width of v, I queries looked at.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from pipeline.model.contextual import ContextualPass
from pipeline.model.decoder import Decoder
from pipeline.model.distance import Tile
from pipeline.model.tile_scores import LOG2E, TileScores
from pipeline.positions.scores import Scores

Attend = Callable[[Scores, Tensor], Tensor]


@contextmanager
def attention_wrapped(decoder: Decoder, wrap: Callable[[int, Attend], Attend]) -> Iterator[None]:
    """While it lasts, attention of every layer is `wrap(layer, attention)`.

    Both take the scores and v [B,h,S,d], and give [B,h,S,d].
    """

    def before(_: nn.Module, call: tuple[Any, ...]) -> tuple[Any, ...] | None:
        hook, *given = call
        if hook != "attend":
            return None
        attend, q, k, v, ids, site, *more = given
        return hook, wrap(site.layer, attend), q, k, v, ids, site, *more

    used = dict.fromkeys(map(decoder.position_of, range(len(decoder.blocks))))
    handles = [position.register_forward_pre_hook(before) for position in used]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def row_scores(scores: Scores, v: Tensor, queries: Sequence[int]) -> Tensor:
    """What softmax is taken of for some queries, given by their places among the S tokens.

    Args:
        scores: of a whole sequence on one rank.
        v: [B,h,S,d]; gives sizes and device only.
        queries: I places, each 0 to S - 1.

    Returns:
        [B,h,I,S] fp32, natural logarithms; minus infinity where a query does not see a key.
    """
    batch, heads, length, _ = v.shape
    row = _contextual(scores, v) if scores.context is not None else _tiled(scores, v)
    found = v.new_full((batch * heads, len(queries), length), -math.inf, dtype=torch.float32)
    for place, query in enumerate(queries):
        found[:, place, : query + 1] = row(query)
    return found.div_(LOG2E).unflatten(0, (batch, heads))


def _tiled(scores: Scores, v: Tensor) -> Callable[[int], Tensor]:
    """query -> its scores with all keys up to it, [G,i+1], in base 2."""
    length = v.shape[2]
    tiles = TileScores(scores, v, 1, length)

    def row(query: int) -> Tensor:
        tile = Tile(length, query, query + 1, 0, query + 1)
        return tiles(tile, tiles.allowed(tile)).squeeze(1)

    return row


def _contextual(scores: Scores, v: Tensor) -> Callable[[int], Tensor]:
    """As `_tiled`, of scores that count positions along a row."""
    every = ContextualPass(scores, v)
    return lambda query: every.whole_rows(slice(query, query + 1)).squeeze(1)
