"""Test-time extensions that put other distances, masks, factors or rows into trained encodings,
against their papers in slow loops, and in the limits where they are the trained encoding."""

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from pipeline.errors import ConfigError
from pipeline.model.attention import attention, paths
from pipeline.positions import registry
from pipeline.positions.base import Position, Site
from tests.oracles import extensions as oracle
from tests.oracles import positions as trained_oracle
from tests.oracles.attention import Score, dense, dense_scores, plain_score
from tests.oracles.attention import attention as slow_attention
from tests.oracles.encoding import Encoding
from tests.positions.cases import (
    LAYER,
    NAMES,
    SHAPE,
    attend,
    build,
    check_gradients,
    encoding,
    named,
    random_qkv,
    scores_of,
    words,
)

# beyond twice the training length of 24 tokens, and odd
LENGTH = 57
OTHER: list[tuple[str, dict[str, Any]]] = [
    ("rerope", {"window_share": 0.3}),
    ("leaky_rerope", {"window_share": 0.4, "factor": 2.5}),
    ("self_extend", {"window_share": 0.45, "group": 3}),
    ("self_extend", {"window_share": 0.2, "group": 16}),
    ("dual_chunk", {"chunk_share": 0.3, "window_share": 0.75}),
    ("dual_chunk", {"chunk_share": 0.5, "window_share": 0.5}),
    ("lm_infinite", {"window_share": 0.5, "global_tokens": 3}),
    ("lm_infinite", {"global_tokens": 0}),
]
PIECEWISE = [*((name, {}) for name in oracle.DISTANCE), *OTHER]
FACTORS: list[tuple[str, dict[str, Any]]] = [
    ("log_n", {}),
    ("log_n", {"length_share": 0.5}),
    ("temperature", {}),
    ("temperature", {"coefficient": 0.103}),
]
MASKS: list[tuple[str, dict[str, Any]]] = [
    ("window", {}),
    ("window", {"window_share": 5 / 24}),
    ("blockwise", {}),
    ("blockwise", {"block_share": 0.3}),
]


def extended(name: str, kind: str, **settings: Any) -> Position:
    return registry.extended(build(name), name, {"name": kind, **settings})


def extension_of(kind: str, **settings: Any) -> Encoding:
    """What the oracle knows of an extension."""
    chosen = {**registry.extension_settings(kind), **settings}
    return Encoding({}, chosen, SHAPE.heads, SHAPE.train_length)


def check_against_loops(position: Position, score: Score, path: str) -> None:
    """Forward, and the gradients of q, k and v, of one sequence and two heads."""
    leaves = [x[:1, :2].detach().requires_grad_() for x in random_qkv(LENGTH)]
    out = attend(position, *leaves, heads=range(2), path=path)
    pull = torch.randn_like(out)
    (out * pull).sum().backward()
    q, k, v = slow = [x.detach().double().requires_grad_() for x in leaves]
    expected = slow_attention(q, k, v, score)
    (expected * pull.double()).sum().backward()
    assert (out - expected).abs().max() < 1e-5
    check_gradients([(x.grad, y.grad) for x, y in zip(leaves, slow, strict=True)])


@pytest.mark.parametrize(("kind", "chosen"), PIECEWISE, ids=named)
def test_attention_equals_a_table_of_distances_in_loops(kind: str, chosen: dict[str, Any]) -> None:
    """Every pair of tokens at the distance of the paper, by the one path that serves branches."""
    position = extended("rope", kind, **chosen)
    assert paths(scores_of(position, *random_qkv(LENGTH)[:2]), "cuda") == ["tile"]
    score = oracle.rotary_score(kind, extension_of(kind, **chosen), 10000.0)
    check_against_loops(position, score, "tile")


@pytest.mark.parametrize(("kind", "chosen"), [*PIECEWISE, *MASKS], ids=named)
def test_many_tiles_equal_the_dense_definition(kind: str, chosen: dict[str, Any]) -> None:
    """700 tokens: tiles of one branch, of several, and tiles that are left out."""
    position, leaves = extended("rope", kind, **chosen), random_qkv(700)
    out = attend(position, *leaves)
    pull = torch.randn_like(out)
    found = torch.autograd.grad((out * pull).sum(), leaves)
    expected = dense(scores_of(position, *leaves[:2]), leaves[2])
    reference = torch.autograd.grad((expected * pull).sum(), leaves)
    assert (out - expected).abs().max() < 1e-5
    check_gradients(list(zip(found, reference, strict=True)))


@pytest.mark.parametrize("name", ["rope", "alibi", "shaw", "none"])
@pytest.mark.parametrize(("kind", "chosen"), FACTORS, ids=named)
def test_queries_are_multiplied_and_biases_are_not(
    name: str, kind: str, chosen: dict[str, Any]
) -> None:
    position = extended(name, kind, **chosen)
    own = encoding(position, name)
    trained = trained_oracle.SCORES[name](own) if name in trained_oracle.SCORES else plain_score
    score = oracle.scaled_score(kind, extension_of(kind, **chosen), trained, LENGTH)
    q, k, _ = (x[:1].detach() for x in random_qkv(LENGTH))
    found = dense_scores(scores_of(position, q, k))
    q, k = q.double(), k.double()
    for h, i in itertools.product(range(2), (0, 1, 22, 23, 24, 25, 40, 56)):
        for j in range(i + 1):
            expected = score(q[0, h, i], k[0, h, j], h, i, j)
            assert abs(found[0, h, i, j] - expected) < 1e-5


@pytest.mark.parametrize("name", ["rope", "alibi"])
@pytest.mark.parametrize(("kind", "chosen"), MASKS, ids=named)
def test_masks_leave_the_trained_scores_of_what_is_seen(
    name: str, kind: str, chosen: dict[str, Any]
) -> None:
    position = extended(name, kind, **chosen)
    trained = trained_oracle.SCORES[name](encoding(position, name))
    score = oracle.masked_score(kind, extension_of(kind, **chosen), trained)
    check_against_loops(position, score, "tile")


ROTARY = [n for n in NAMES if registry.extension_class("rerope").refusal(build(n)) is None]


@pytest.mark.parametrize("name", ROTARY)
@pytest.mark.parametrize("kind", ["rerope", "self_extend", "dual_chunk", "lm_infinite"])
def test_every_rotary_encoding_meets_at_the_new_distances(name: str, kind: str) -> None:
    """One query and one key at all positions: the score is a function f of the distance alone,
    that the trained encoding gives, and the extended one gives f(rel(i, j))."""
    own = extension_of(kind)
    q, k = (x[:1, :, :1].expand(-1, -1, LENGTH, -1).detach() for x in random_qkv(LENGTH)[:2])
    trained = build(name)
    position = registry.extended(trained, name, {"name": kind})
    by_distance = dense_scores(scores_of(trained, q, k))[0, :, -1].flip(-1)
    found = dense_scores(scores_of(position, q, k))[0]
    for i in range(LENGTH):
        for j in range(i + 1):
            if kind in oracle.SEEN and not oracle.SEEN[kind](own, i, j):
                assert bool(found[:, i, j].isneginf().all())
            else:
                distance = int(oracle.DISTANCE[kind](own, i, j))
                assert (found[:, i, j] - by_distance[:, distance]).abs().max() < 1e-5


def tokens(share: str, count: int, **more: Any) -> dict[str, Any]:
    """The share of the training length that gives this many tokens."""
    return {share: count / SHAPE.train_length, **more}


def chunks(count: int) -> dict[str, Any]:
    return tokens("chunk_share", count) | tokens("window_share", count)


# settings that just reach the first of 57 tokens from the last, and such that do not
LIMITS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("rerope", tokens("window_share", 56), tokens("window_share", 55)),
    ("leaky_rerope", tokens("window_share", 56), tokens("window_share", 55)),
    ("leaky_rerope", {"factor": 1.0}, {"factor": 1.01}),
    ("self_extend", tokens("window_share", 56), tokens("window_share", 55)),
    ("self_extend", {"group": 1}, {"group": 2}),
    ("dual_chunk", chunks(57), chunks(56)),
    (
        "lm_infinite",
        tokens("window_share", 57, global_tokens=0),
        tokens("window_share", 56, global_tokens=0),
    ),
    ("lm_infinite", tokens("window_share", 56), tokens("window_share", 55)),
    ("blockwise", tokens("block_share", 29), tokens("block_share", 28)),
    ("window", tokens("window_share", 57), tokens("window_share", 56)),
    ("log_n", tokens("length_share", 57), tokens("length_share", 50)),
    ("temperature", {"coefficient": 0.0}, {"coefficient": 0.01}),
]


@pytest.mark.parametrize(("kind", "enough", "less"), LIMITS, ids=named)
def test_attention_is_that_of_rope_in_the_limit(
    kind: str, enough: dict[str, Any], less: dict[str, Any]
) -> None:
    leaves = random_qkv(LENGTH)
    expected = attend(build("rope"), *leaves)
    assert (attend(extended("rope", kind, **enough), *leaves) - expected).abs().max() < 1e-6
    assert (attend(extended("rope", kind, **less), *leaves) - expected).abs().max() > 1e-4


@pytest.mark.parametrize("kind", ["log_n", "temperature", "window", "lm_infinite"])
@pytest.mark.parametrize("length", [5, 24])
def test_up_to_the_training_length_nothing_changes(kind: str, length: int) -> None:
    q, k, _ = random_qkv(length)
    one, other = (dense_scores(scores_of(p, q, k)) for p in (build("rope"), extended("rope", kind)))
    assert torch.equal(one, other)


def test_log_n_counts_no_more_than_a_window_shows() -> None:
    """Beyond 30 tokens the factor is that of 30, 24 being the training length."""
    q, k, _ = random_qkv(LENGTH)
    position, trained = extended("rope", "log_n"), build("rope")
    found = scores_of(position, q, k, window=30).pairs[0][0] / scores_of(trained, q, k).pairs[0][0]
    seen = (torch.arange(LENGTH) + 1.0).clamp(24, 30)
    assert (found - (seen.log() / math.log(24))[:, None]).abs().max() < 1e-5


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_rerope_at_test_time_is_the_encoding_of_that_name(share: float) -> None:
    leaves = random_qkv(LENGTH)
    trained = attend(build("rerope", window_share=share), *leaves)
    at_test = attend(extended("rope", "rerope", window_share=share), *leaves)
    assert (at_test - trained).abs().max() < 1e-6


def test_a_leak_that_is_endless_is_rerope() -> None:
    leaves = random_qkv(LENGTH)
    leaky = attend(extended("rope", "leaky_rerope", window_share=0.5, factor=1e12), *leaves)
    assert (leaky - attend(extended("rope", "rerope"), *leaves)).abs().max() < 1e-6


def test_dual_chunks_use_no_distance_that_was_not_trained() -> None:
    """At 12 tokens, chunks of 6 and distances below 10 (the paper's figure 2): exact within a chunk
    and for the 4 nearest of the chunk before."""
    own = Encoding({}, {"chunk_share": 0.25, "window_share": 10 / 24}, 4, 24)
    table = [[int(oracle.dual_chunk(own, i, j)) for j in range(i + 1)] for i in range(30)]
    assert table[5] == [5, 4, 3, 2, 1, 0]
    assert table[6] == [6, 5, 4, 3, 2, 1, 0]
    assert table[11] == [9, 8, 7, 6, 5, 4, 5, 4, 3, 2, 1, 0]
    assert table[12][:7] == [9, 8, 7, 6, 5, 4, 6]
    assert max(map(max, table)) == 9 and min(map(min, table)) == 0
    for i, row in enumerate(table):
        assert all(row[i - n] == n for n in range(min(i, 4) + 1))


def test_log_n_reads_global_positions() -> None:
    """A rank that holds the second half multiplies as the whole does."""
    position = extended("rope", "log_n")
    q, k, _ = random_qkv(LENGTH)
    ids, half = torch.arange(LENGTH)[None], slice(29, LENGTH)
    whole = position.scores(q, k, ids, Site(LAYER, range(4), LENGTH))
    own = position.scores(q[:, :, half], k[:, :, half], ids, Site(LAYER, range(4), LENGTH, half))
    assert torch.equal(own.pairs[0][0], whole.pairs[0][0][:, :, half])
    plain, _ = build("rope").rotate(q, k, ids, Site(LAYER, range(4), LENGTH))
    assert torch.equal(whole.pairs[0][0][:, :, :24], plain[:, :, :24])
    assert bool((whole.pairs[0][0][:, :, 24:] != plain[:, :, 24:]).any(-1).all())


def test_a_window_leaves_out_tiles() -> None:
    """It is the window of attention itself, and the narrower of two."""
    q, k, _ = random_qkv(LENGTH)
    position = extended("rope", "window")
    assert scores_of(position, q, k).window == 24
    assert scores_of(position, q, k, window=7).window == 7
    assert scores_of(position, q, k, window=40).window == 24
    assert scores_of(position, q[:, :, :24], k[:, :, :24]).window is None


def test_a_mask_of_attention_and_a_mask_at_test_time_hold_together() -> None:
    position = extended("rope", "blockwise")
    q, k, v = random_qkv(LENGTH)
    ids, site = torch.arange(LENGTH)[None], Site(LAYER, range(4), LENGTH)

    def odd(ids_q: Tensor, ids_k: Tensor) -> Tensor:
        return ((ids_q[:, None] - ids_k) % 2 == 0)[None]

    scores = position.scores(q, k, ids, site, mask=odd)
    assert scores.allowed is not None
    seen = scores.allowed(ids[0], ids[0])
    expected = odd(ids[0], ids[0]) & position.allowed(ids[0], ids[0], site)
    assert torch.equal(seen, expected)
    assert bool(attention(scores, v).isfinite().all())


@pytest.mark.parametrize("alpha", [0.4, 0.1, 0.9])
def test_hierarchical_rows_are_two_digits(alpha: float) -> None:
    """The first 24 are the trained ones to the last bit, and all 576 differ."""
    trained = build("learned")
    position = registry.extended(trained, "learned", {"name": "hierarchical", "alpha": alpha})
    assert position.max_length == 576
    nothing, ids = torch.zeros(1, 576, SHAPE.width), torch.arange(576)[None]
    rows = position.embed(nothing, ids, words(1, 576))[0]
    first = trained.embed(nothing[:, :24], ids[:, :24], words(1, 24))[0]
    assert torch.equal(rows[:24], first)
    table = trained.get_parameter("table").detach().double()
    for n in range(576):
        expected = SHAPE.width**0.5 * oracle.hierarchical_row(table, n, alpha)
        assert (rows[n] - expected).abs().max() < 1e-5 * expected.abs().max()
    assert len(rows.detach().unique(dim=0)) == 576
    with pytest.raises(ConfigError, match="577 tokens.*not defined beyond 576"):
        position.check_length(577)
