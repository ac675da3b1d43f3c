"""All probes of one trained decoder at one length: forward passes with hooks, nothing is trained.

Of every document the last `length` tokens before the last target are shown, as the suffix loss does
at this length. The queries looked at are spread over the tokens whose targets it scores, so that
all have nearly `length` tokens before them. One document at a time: no memory grows with batches.

Legend: B batch (1), h heads, S tokens of the sequence, D model width, I queries.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pipeline.config.schema import Config
from pipeline.errors import ConfigError
from pipeline.evaluate.documents import Documents
from pipeline.evaluate.probes.attention import AttentionMass
from pipeline.evaluate.probes.decodability import Decodability
from pipeline.evaluate.probes.resolution import AttentionResolution
from pipeline.evaluate.probes.weights import Attend, attention_wrapped, row_scores
from pipeline.evaluate.windows import suffix
from pipeline.model.decoder import Decoder
from pipeline.model.exchange import Exchange
from pipeline.positions.scores import Scores

Row = dict[str, Any]
NOT_FINITE = "its scores or states are not finite numbers at this length"


def probed_lengths(decoder: Decoder, config: Config) -> list[int]:
    """The train length, and the longest of `eval_lengths` that the encoding is defined for."""
    found = {config.train_length}
    for length in reversed(config.eval_lengths):
        try:
            decoder.check_length(length)
        except ConfigError:
            continue
        return sorted(found | {length})
    return sorted(found)


def query_places(length: int, suffix_tokens: int, queries: int) -> list[int]:
    """Places of `queries` of the last `suffix_tokens` of `length` tokens, evenly spread, the last
    one among them."""
    return [length - 1 - (number * suffix_tokens) // queries for number in range(queries)][::-1]


def probe_length(
    decoder: Decoder,
    config: Config,
    documents: Documents,
    length: int,
    queries: int,
    progress: Callable[[int], object],
) -> list[Row]:
    """Every row at one length; `progress` is told how many tokens were just shown.

    `queries`, at most `evaluate.suffix_tokens`, are those of one document.
    """
    device = next(decoder.parameters()).device
    layers, heads = config.model.layers, config.model.heads
    places = query_places(length, config.evaluate.suffix_tokens, queries)
    mass = AttentionMass(layers, heads, length, config.train_length)
    resolution = AttentionResolution(layers, heads, places[0])
    states = Decodability(layers + 1, config.model.width, length, device)
    looked = torch.tensor(places, device=device)

    def look(layer: int, attention: Attend) -> Attend:
        def attend(scores: Scores, v: Tensor) -> Tensor:
            (found,) = row_scores(scores, v, places)
            mass.add(layer, found, looked)
            resolution.add(layer, found, looked)
            return attention(scores, v)

        return attend

    training = decoder.training
    decoder.eval()
    for number, window in enumerate(suffix(documents.sizes, length, 1)):
        shown = documents.tokens[number][None, window.start : window.stop]
        with ExitStack() as hooks, torch.no_grad():
            hooks.enter_context(attention_wrapped(decoder, look))
            seen = partial(states.add, document=number)
            hooks.enter_context(states_seen(decoder, seen))
            decoder.hidden(
                torch.from_numpy(np.ascontiguousarray(shown)).to(device),
                decoder.test_ids(shown).to(device),
                Exchange(),
                decoder.position_ids.tests_consecutive,
            )
        progress(length)
    decoder.train(training)
    rows = [*mass.rows(), *resolution.rows(), *states.rows()]
    sampled = {"queries": queries, "first_query": places[0]}
    return [{**_said(row), "length": length, **sampled} for row in rows]


@contextmanager
def states_seen(decoder: Decoder, see: Callable[[int, Tensor], None]) -> Iterator[None]:
    """While it lasts, `see(l, x [S,D])` gets what block l reads of one sequence before its norm,
    and of the last l, the number of blocks, what the decoder's last norm reads."""
    handles = []

    def before(_: nn.Module, call: tuple[Any, ...], layer: int) -> None:
        see(layer, call[0][0])

    for layer, block in enumerate([*decoder.blocks, decoder.norm]):
        handles.append(block.register_forward_pre_hook(partial(before, layer=layer)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _said(row: Row) -> Row:
    """With whether the row has its numbers and, if not, why."""
    defined = None not in (row.get(key, 0) for key in ("mass", "resolution", "r2"))
    return {**row, "defined": defined, "reason": None if defined else NOT_FINITE}
