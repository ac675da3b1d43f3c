"""Attention under every encoding, by every path that it declares."""

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from pipeline.errors import ConfigError
from pipeline.model.attention import attention, choose, paths, sdpa
from pipeline.model.flex import flex
from pipeline.positions import registry
from pipeline.positions.base import Shape, Site
from tests.oracles import positions as oracle
from tests.oracles.attention import attention as slow_attention
from tests.oracles.attention import dense, plain_score
from tests.positions.cases import (
    CASES,
    SHAPE,
    attend,
    build,
    check_gradients,
    encoding,
    named,
    random_gates,
    random_qkv,
    scores_of,
)

PRECISIONS, DEVICES = (torch.float32, torch.bfloat16), ("cpu", "cuda")
EVERY = ("sdpa", "fold", "far_near", "tile", "flex")
# tables that end inside, at and just before the end of 24 tokens: far_near from 1 far key to none
ENDINGS: list[tuple[str, dict[str, Any]]] = [
    ("t5", {"buckets": 8, "max_distance": 12}),
    ("t5", {"buckets": 2, "max_distance": 2}),
    *(("shaw", {"clip": clip}) for clip in (1, 22, 23, 24, 40)),
]
RUNS = [
    (name, chosen, path)
    for name, chosen in [*CASES, *ENDINGS]
    for path in paths(scores_of(build(name, **chosen), *random_qkv(24)[:2]), "cpu")
]


@pytest.mark.parametrize(("name", "chosen", "path"), RUNS, ids=named)
def test_attention_equals_the_paper_in_loops(name: str, chosen: dict[str, Any], path: str) -> None:
    """Forward, and the gradients of q, k, v and of every position parameter."""
    position, length = build(name, **chosen), 24
    leaves = random_qkv(length)
    for leaf in leaves:
        leaf.retain_grad()
    pull = torch.randn(2, 4, length, SHAPE.head_width)
    gates = random_gates(position, range(4), length)
    out = attend(position, *leaves, path=path, gates=gates)
    (out * pull).sum().backward()
    own = encoding(position, name, **chosen)
    q, k, v = slow = [x.detach().double().requires_grad_() for x in leaves]
    score = oracle.SCORES[name](own) if name in oracle.SCORES else plain_score
    value = oracle.VALUES[name](own) if name in oracle.VALUES else None
    expected = slow_attention(q, k, v, score, value)
    (expected * pull.double()).sum().backward()
    assert (out - expected).abs().max() < 1e-5
    pairs = [(x.grad, y.grad) for x, y in zip(leaves, slow, strict=True)]
    if name in oracle.SCORES:
        named_pairs = ((p, own.parameters[n]) for n, p in position.named_parameters())
        pairs += [(p.grad, slow.grad) for p, slow in named_pairs if slow.grad is not None]
    if gates is not None and own.gates is not None:
        pairs.append((gates.grad, own.gates.grad))
    check_gradients(pairs)


LONG = [
    (name, chosen, path, length, window)
    for (name, chosen), length in itertools.product(CASES, (1, 2, 257, 700))
    for window in (None, 100)
    if length <= (build(name, **chosen).max_length or length)
    for path in paths(scores_of(build(name, **chosen), *random_qkv(length)[:2], window), "cpu")
    if window is None or length == 700
]


@pytest.mark.parametrize(("name", "chosen", "path", "length", "window"), LONG, ids=named)
def test_long_attention_equals_the_dense_definition(
    name: str,
    chosen: dict[str, Any],
    path: str,
    length: int,
    window: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Around the edges of tiles, with a window where a path serves one."""
    position, leaves = build(name, **chosen), random_qkv(length)
    exact = build(name, **chosen).double()
    q, k, v = slow = [x.double() for x in random_qkv(length)]
    for leaf in (*leaves, *slow):
        leaf.retain_grad()
    pull = torch.randn(2, 4, length, SHAPE.head_width)
    out = attend(position, *leaves, path=path, window=window)
    (out * pull).sum().backward()
    # the same hooks in fp64: what they cast to fp32 stays as it is
    monkeypatch.setattr(Tensor, "float", Tensor.double)
    expected = dense(replace(scores_of(exact, q, k), window=window), v)
    (expected * pull.double()).sum().backward()
    assert (out - expected).abs().max() < 1e-5
    both = zip((*leaves, *position.parameters()), (*slow, *exact.parameters()), strict=True)
    check_gradients([(a.grad, b.grad) for a, b in both if b.grad is not None])


@pytest.mark.parametrize(("name", "chosen"), CASES, ids=named)
def test_declared_attention_paths_are_those_that_serve(name: str, chosen: dict[str, Any]) -> None:
    position = build(name, **chosen)
    declared = position.facts.attention_paths
    if chosen.get("relative_width") == "head":
        declared = ("sdpa", "tile", "flex")
    q, k, _ = random_qkv(24)
    found = set()
    for precision, device in itertools.product(PRECISIONS, DEVICES):
        scores = scores_of(position, q.to(precision), k.to(precision))
        serving = paths(scores, device)
        found |= set(serving)
        for length in (24, 2**20):
            assert choose(scores, length, device) in serving
        entries = 24 if scores.constant_from is None else scores.constant_from + 1
        assert all(table.shape[:2] == (4, entries) for table in scores.by_distance)
    assert found == set(declared) and len(declared) == len(found)
    assert choose(scores_of(position, q, k), 24, "cpu") == declared[0]


@pytest.mark.parametrize(("name", "chosen"), CASES, ids=named)
def test_the_path_taken_is_the_fastest_that_knows_the_scores(
    name: str, chosen: dict[str, Any]
) -> None:
    """Never sdpa or a fold where they would lose a term; flex only if asked."""
    position = build(name, **chosen)
    q, k, _ = random_qkv(24)
    declared = position.facts.attention_paths
    by_products = declared[0] == "sdpa" or chosen.get("relative_width") == "head"
    for precision, device, length in itertools.product(PRECISIONS, DEVICES, (24, 2**20)):
        scores = scores_of(position, q.to(precision), k.to(precision))
        cuda = device == "cuda"
        # the one path of a context, or what every other encoding may take
        rest = declared[0] if "tile" not in declared else "tile"
        expected = "sdpa" if by_products else rest
        if "far_near" in declared and (cuda or length == 2**20):
            expected = "far_near"
        if "fold" in declared and cuda and precision == torch.bfloat16:
            expected = "fold"
        assert choose(scores, length, device) == expected
        windowed = scores_of(position, q.to(precision), k.to(precision), window=5)
        assert choose(windowed, length, device) == rest
        assert scores_of(position, q, k, window=24).window is None


@pytest.mark.parametrize(("name", "chosen"), CASES, ids=named)
def test_a_path_that_does_not_serve_is_refused(name: str, chosen: dict[str, Any]) -> None:
    position = build(name, **chosen)
    q, k, v = random_qkv(24)
    for window in (None, 5):
        serving = paths(scores_of(position, q, k, window), "cpu")
        assert "flex" not in serving and "fold" not in serving
        for path in set(EVERY) - set(serving):
            with pytest.raises(
                ConfigError, match=rf"{path}.*does not serve.*use auto, {serving[0]}"
            ):
                attend(position, q, k, v, path=path, window=window)


@pytest.mark.parametrize(("name", "chosen"), CASES, ids=named)
@pytest.mark.parametrize("window", [None, 7])
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_equals_the_dense_definition(
    name: str, chosen: dict[str, Any], window: int | None
) -> None:
    """Forward and uncompiled: all that torch can do on CPU."""
    from torch.nn.attention.flex_attention import flex_attention

    position = build(name, **chosen)
    q, k, v = (x.detach() for x in random_qkv(min(40, position.max_length or 40)))
    with torch.no_grad():
        scores = scores_of(position, q, k, window)
        assert scores.tabular == ("flex" in paths(scores, "cuda"))
        if scores.tabular:
            expected = dense(replace(scores_of(position, q, k), window=window), v)
            assert (flex(scores, v, flex_attention) - expected).abs().max() < 1e-5


@pytest.mark.parametrize(("name", "chosen"), CASES, ids=named)
def test_bf16_attention_keeps_scores_in_fp32(name: str, chosen: dict[str, Any]) -> None:
    """From bf16 inputs and parameters: the result and all gradients are bf16, and as close as its
    rounding to attention computed wholly in fp32 from the same numbers."""
    cast = build(name, **chosen).bfloat16()
    position = build(name, **chosen)
    position.load_state_dict(cast.state_dict())
    outs = []
    for own in (cast, position):
        precision = torch.bfloat16 if own is cast else torch.float32
        q, k, v = leaves = [x.detach().bfloat16().to(precision) for x in random_qkv(24)]
        for leaf in leaves:
            leaf.requires_grad_()
        out = attend(own, q, k, v)
        out.sum().backward()
        assert out.dtype == precision
        # the weights of gates have theirs from the decoder's stream
        in_scores = name in oracle.SCORES and not own.has("gate_logits")
        own_parameters = own.parameters() if in_scores else ()
        for leaf in (*leaves, *own_parameters):
            assert leaf.grad is not None and leaf.grad.dtype == precision
        outs.append(out.float())
    assert (outs[0] - outs[1]).abs().max() <= 2**-6 * outs[1].abs().max()


def _bf16_errors(length: int) -> tuple[float, float, float]:
    """Largest errors in bf16: of torch's kernel on the bare q, k, v, which is the yardstick; under
    ALiBi of the fold; and of the obvious fold, one column of m_h j."""
    torch.manual_seed(0)
    position = registry.build({"name": "alibi"}, Shape(256, 1, 8, 512))
    q, k, v = (torch.randn(1, 2, length, 32).bfloat16() for _ in range(3))
    q32, k32, v32 = q.float(), k.float(), v.float()
    ids, site = torch.arange(length)[None], Site(0, range(2), length)
    exact = attention(position.scores(q32, k32, ids, site), v32, "tile")
    scores = position.scores(q, k, ids, site)
    slope = torch.tensor([0.5, 0.25])[None, :, None, None] / scores.scale
    column = (slope * torch.arange(length)[:, None]).to(k.dtype)
    one = torch.cat([q, torch.ones_like(column)], -1), torch.cat([k, column], -1)

    def error(out: Tensor, reference: Tensor) -> float:
        return float((out.float() - reference).abs().max())

    return (
        error(sdpa(q, k, v, scores.scale), sdpa(q32, k32, v32, scores.scale)),
        error(attention(scores, v, "fold"), exact),
        error(sdpa(*one, v, scores.scale), exact),
    )


def test_the_fold_of_alibi_is_as_exact_as_bf16_is() -> None:
    """At 4096 tokens; one column of m_h j, the obvious fold, is wrong by whole values there."""
    plain, folded, naive = _bf16_errors(4096)
    assert folded <= 2.0 * plain
    assert naive > 0.5


def test_the_columns_of_the_fold_hold_every_slope_to_16_bits() -> None:
    """What they add to q . k is m_h times the distance from the middle of the text."""
    position = build("alibi")
    q, k, _ = (x.detach().bfloat16() for x in random_qkv(4096))
    scores = scores_of(position, q, k)
    assert scores.folded is not None and scores.table is not None
    wide_q, wide_k = (x.double() for x in scores.folded())
    added = (wide_q[:, :, :1, 8:] @ wide_k[..., 8:].mT)[:, :, 0] * scores.scale
    slopes = -scores.table[:, 1:2].double()
    assert (added - slopes * (torch.arange(4096) - 2048)).abs().max() <= 2**-16 * 2048 * 0.25
