"""Encodings that rotate queries and keys: their variants against loops, and their limits."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline.errors import ConfigError
from pipeline.positions import registry
from pipeline.positions.base import Position, Site
from tests.oracles import positions as oracle
from tests.oracles.attention import attention as slow_attention
from tests.oracles.attention import plain_score
from tests.positions.cases import (
    LAYER,
    SHAPE,
    attend,
    build,
    check_gradients,
    encoding,
    named,
    random_qkv,
)
from tests.positions.turning import speeds

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("rope", {"layout": "halves"}),
    ("partial_rope", {"share": 0.5}),
    ("partial_rope", {"form": "partial"}),
    ("partial_rope", {"form": "partial", "share": 0.3}),
    ("xpos", {"gamma": 0.05, "scale_base": 9.0}),
    ("giraffe", {"basis": "truncated"}),
    ("giraffe", {"exponent": 2.0}),
    ("pope", {"base": 50.0}),
]


def rotated(position: Position, ids: Tensor, length: int = 40) -> tuple[Tensor, Tensor]:
    """q, k [2,4,S,8] of these ids, [1,S], turned."""
    q, k, _ = (x.detach() for x in random_qkv(ids.shape[1]))
    return position.rotate(q, k, ids, Site(LAYER, range(4), length))


@pytest.mark.parametrize(("name", "chosen"), VARIANTS, ids=named)
def test_variants_equal_the_paper_in_loops(name: str, chosen: dict[str, Any]) -> None:
    position = build(name, **chosen)
    leaves = [x[:1] for x in random_qkv(16)]
    for leaf in leaves:
        leaf.retain_grad()
    out = attend(position, *leaves)
    pull = torch.randn_like(out)
    (out * pull).sum().backward()
    own = encoding(position, name, **chosen)
    q, k, v = slow = [x.detach().double().requires_grad_() for x in leaves]
    expected = slow_attention(q, k, v, oracle.SCORES[name](own))
    (expected * pull.double()).sum().backward()
    assert (out - expected).abs().max() < 1e-5
    assert (expected - slow_attention(q, k, v, plain_score)).abs().max() > 1e-2
    pairs = [(x.grad, y.grad) for x, y in zip(leaves, slow, strict=True)]
    pairs += [(p.grad, own.parameters[n].grad) for n, p in position.named_parameters()]
    check_gradients(pairs)


def test_layouts_are_equal_after_one_permutation() -> None:
    """Pair t is dimensions t and t + 4 in one, 2t and 2t + 1 in the other."""
    ids = torch.arange(40)[None]
    order = torch.tensor([0, 4, 1, 5, 2, 6, 3, 7])
    q, k, _ = (x.detach() for x in random_qkv(40))
    site = Site(LAYER, range(4), 40)
    halves = build("rope", layout="halves").rotate(q, k, ids, site)
    pairs = build("rope").rotate(q[..., order], k[..., order], ids, site)
    for one, other in zip(halves, pairs, strict=True):
        assert (one[..., order] - other).abs().max() < 1e-6
    unpermuted = build("rope").rotate(q, k, ids, site)
    wrong = unpermuted[0] @ unpermuted[1].mT - halves[0] @ halves[1].mT
    assert wrong.abs().max() > 1.0


@pytest.mark.parametrize(
    ("name", "chosen", "other"),
    [
        ("rope", {"layout": "interleaved"}, "rope"),
        ("partial_rope", {"share": 1.0}, "rope"),
        ("partial_rope", {"share": 1.0, "form": "partial"}, "rope"),
        ("partial_rope", {"share": 0.0}, "none"),
        ("partial_rope", {"share": 0.0, "form": "partial"}, "none"),
        ("xpos", {"gamma": 1e9}, "rope"),
        ("xpos", {"scale_base": 1e9}, "rope"),
        ("giraffe", {"exponent": 0.0}, "rope"),
        ("giraffe", {"basis": "truncated", "cutoff_low": 0.0, "cutoff_high": 0.0}, "rope"),
        ("giraffe", {"basis": "truncated", "cutoff_low": 99.0, "cutoff_high": 99.0}, "none"),
    ],
    ids=named,
)
def test_limits_are_other_encodings(name: str, chosen: dict[str, Any], other: str) -> None:
    q, k, v = random_qkv(40)
    expected = attend(build(other), q, k, v)
    assert (attend(build(name, **chosen), q, k, v) - expected).abs().max() < 1e-6
    if name != "rope":
        assert (attend(build(name), q, k, v) - expected).abs().max() > 1e-3


def test_proportional_keeps_the_fastest_of_the_whole_spectrum() -> None:
    whole = speeds(build("rope"))
    for share, kept in ((0.75, 3), (0.74, 2), (0.5, 2), (0.25, 1), (0.0, 0)):
        found = speeds(build("partial_rope", share=share))
        assert torch.equal(found[:kept], whole[:kept])
        assert len(found) == 4 and not found[kept:].any()


def test_partial_has_a_whole_spectrum_of_its_own() -> None:
    found = speeds(build("partial_rope", form="partial", share=0.5))
    assert found.tolist() == pytest.approx([1.0, 0.01], rel=1e-12)
    q, k, _ = random_qkv(40)
    turned = build("partial_rope", form="partial", share=0.5).rotate(
        q, k, torch.arange(40)[None], Site(LAYER, range(4), 40)
    )
    for before, after in zip((q, k), turned, strict=True):
        assert torch.equal(before[..., 4:], after[..., 4:])
        assert not torch.equal(before[..., :4], after[..., :4])


def test_a_share_is_counted_in_whole_pairs() -> None:
    """0.57 of 100 pairs, which is 56.99.. in floating point, is 57."""
    wide = replace(SHAPE, width=200, heads=1)
    for form, count in (("proportional", 100), ("partial", 57)):
        found = speeds(registry.build({"name": "partial_rope", "share": 0.57, "form": form}, wide))
        assert len(found) == count and int((found > 0).sum()) == 57


def test_xpos_has_the_same_scores_around_any_centre() -> None:
    ids = torch.arange(40)[None]
    products = []
    for length in (40, 41, 3000):
        q, k = rotated(build("xpos"), ids, length)
        products.append((q.double() @ k.double().mT).tril())
    for other in products[1:]:
        assert (other - products[0]).abs().max() < 1e-5


def test_xpos_fades_fast_pairs_most() -> None:
    """A unit in one pair at distance 512 is z_t = (2t/d + 0.4)/1.4 long."""
    x = torch.zeros(1, 4, 1, 8)
    for t in range(4):
        unit = x.clone()
        unit[..., 2 * t] = 1.0
        site, position = Site(LAYER, range(4), 600), build("xpos")
        q, _ = position.rotate(unit, unit, torch.tensor([[512]]), site)
        _, k = position.rotate(unit, unit, torch.tensor([[0]]), site)
        size = float((q.norm(dim=-1) * k.norm(dim=-1)).max())
        assert size == pytest.approx((t / 4 + 0.4) / 1.4, rel=1e-5)


def test_xpos_is_finite_up_to_its_length_and_refused_beyond() -> None:
    """The worst pair is a key as far after its query as a sequence is long."""
    position = build("xpos")
    longest = position.max_length
    assert longest is not None and 27_000 < longest < 36_257  # where fp32 overflows
    site, big = Site(LAYER, range(4), longest), torch.full((1, 4, 1, 8), 1e4)
    q, _ = position.rotate(big, big, torch.tensor([[0]]), site)
    _, k = position.rotate(big, big, torch.tensor([[longest - 1]]), site)
    assert bool((q @ k.mT).isfinite().all())
    q, _ = position.rotate(big, big, torch.tensor([[longest - 1]]), site)
    assert q.abs().min() > 1e-30  # and nothing is denormal
    position.check_length(longest)
    with pytest.raises(ConfigError, match=f"not defined beyond {longest} tokens"):
        position.check_length(longest + 1)


def test_giraffe_stops_what_does_not_turn_in_training() -> None:
    """At 24 tokens pairs turn 3.8, 0.38, 0.038 and 0.0038 times."""
    found = speeds(build("giraffe", basis="truncated")) * 24 / math.tau
    assert found.tolist() == pytest.approx([24 / math.tau, 0.0625, 0.0, 0.0], rel=1e-12)
    kept = speeds(build("giraffe", basis="truncated", cutoff_high=0.3)) * 24 / math.tau
    assert kept.tolist() == pytest.approx([24 / math.tau, 2.4 / math.tau, 0.0, 0.0], rel=1e-12)


def test_giraffe_slows_slow_pairs_by_a_power() -> None:
    ratio = speeds(build("giraffe", exponent=2.0)) / speeds(build("rope"))
    assert ratio.tolist() == pytest.approx([1.0, 0.75**2, 0.5**2, 0.25**2], rel=1e-12)


def test_pope_at_one_place_is_a_product_of_magnitudes() -> None:
    """Twice as wide as q and k; without phases nothing but softplus is left at distance 0."""
    position = registry.build({"name": "pope"}, SHAPE)
    q, k = rotated(position, torch.full((1, 40), 17))
    assert q.shape == k.shape == (2, 4, 40, 16)
    plain_q, plain_k, _ = random_qkv(40)
    expected = F.softplus(plain_q) @ F.softplus(plain_k).mT
    assert (q @ k.mT - expected).abs().max() < 1e-4
    assert position.scale == 8**-0.5


def test_pope_turns_each_magnitude_at_a_speed_of_its_own() -> None:
    assert speeds(build("pope")).tolist() == pytest.approx([10 ** (-c / 2) for c in range(8)])


@pytest.mark.parametrize(("value", "nearest"), [(0.5, 0.0), (-7.0, -math.tau), (-3.0, -3.0)])
def test_phases_of_pope_stay_in_one_turn(value: float, nearest: float) -> None:
    outside, inside = (registry.build({"name": "pope"}, SHAPE) for _ in range(2))
    with torch.no_grad():
        outside.get_parameter("phase").fill_(value)
        inside.get_parameter("phase").fill_(nearest)
    ids = torch.arange(40)[None]
    assert torch.equal(rotated(outside, ids)[1], rotated(inside, ids)[1])
    assert torch.equal(rotated(outside, ids)[0], rotated(build("pope"), ids)[0])


@pytest.mark.parametrize("name", ["rope", "partial_rope", "giraffe", "xpos", "pope"])
def test_positions_between_two_whole_ones_are_defined(name: str) -> None:
    """A step of a millionth is seen, and a shift of all by a quarter is not."""
    position = build(name)
    ids = torch.arange(40)[None]
    shifted, whole = (
        (q @ k.mT).tril() for q, k in (rotated(position, i) for i in (ids + 0.25, ids))
    )
    assert (shifted - whole).abs().max() < 1e-4
    near, at = (rotated(position, ids + shift)[0] for shift in (1e-6, 0))
    assert 0.0 < (near - at).abs().max() < 1e-4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "rope", "layout": "half"}, "position.layout='half': must be one of interleaved"),
        ({"name": "rope", "base": math.nan}, "position.base=nan: must be above 1"),
        ({"name": "xpos", "base": 0.5}, "position.base=0.5: must be above 1"),
        ({"name": "partial_rope", "share": 1.5}, "position.share=1.5: must be 0 .* to 1"),
        ({"name": "partial_rope", "share": math.nan}, "position.share=nan"),
        ({"name": "partial_rope", "form": "half"}, "one of proportional, partial"),
        ({"name": "partial_rope", "layout": "halves"}, "position.layout: not used by"),
        ({"name": "xpos", "gamma": 0.0}, "position.gamma=0.0: must be above 0"),
        ({"name": "xpos", "gamma": math.inf}, "position.gamma=inf"),
        ({"name": "xpos", "scale_base": -1.0}, "position.scale_base=-1.0: must be above 0"),
        ({"name": "giraffe", "basis": "log"}, "position.basis='log': must be one of power"),
        ({"name": "giraffe", "exponent": -1.0}, "position.exponent=-1.0: must be at least 0"),
        ({"name": "giraffe", "cutoff_low": 2.0}, "cutoff_low=2.0, cutoff_high=1.0"),
        ({"name": "giraffe", "cutoff_high": 2.0}, "have no effect with basis=power"),
        ({"name": "giraffe", "basis": "truncated", "exponent": 1.0}, "exponent=1.0: has no effect"),
        ({"name": "giraffe", "basis": "truncated", "between": math.nan}, "position.between=nan"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        registry.build(settings, SHAPE)


@pytest.mark.parametrize("name", ["rope", "partial_rope", "giraffe", "xpos"])
def test_an_odd_head_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"model.width / model.heads = 5: .* must be even"):
        registry.build({"name": name}, replace(SHAPE, width=20))


@pytest.mark.parametrize("name", ["rope", "partial_rope", "xpos", "giraffe", "pope"])
def test_a_stripe_of_tokens_is_rotated_as_in_the_whole(name: str) -> None:
    """Whichever tokens a rank holds; xPos has one centre for all."""
    position = build(name)
    q, k, _ = random_qkv(23)
    ids, site = torch.arange(23)[None], Site(LAYER, range(4), 23)
    whole = position("rotate", q, k, ids, site)
    for stripe in (slice(1, None, 2), slice(0, 5), slice(17, 23)):
        own = replace(site, tokens=stripe)
        part = position("rotate", q[:, :, stripe], k[:, :, stripe], ids[:, stripe], own)
        for of_part, of_whole in zip(part, whole, strict=True):
            assert (of_part - of_whole[:, :, stripe]).abs().max() < 1e-6


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "partial_rope", "share": 0.1}, "share=0.1: turns no pair of the 8 dimensions"),
        ({"name": "xpos", "scale_base": 0.1}, "scale_base=0.1, .* sequences of 5 tokens only"),
        ({"name": "rope", "base": 1e16}, "base=1e[+]16: must be above 1, at most 1e15"),
        ({"name": "t5", "max_distance": 2**21}, "max_distance=2097152: .* at most 1048576"),
    ],
)
def test_settings_that_leave_nothing_or_overflow_are_refused(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        registry.build(settings, SHAPE)
