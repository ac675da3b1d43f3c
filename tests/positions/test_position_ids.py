"""Schemes of position ids: what they draw, which encodings they fit, and attention under them."""

import itertools
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from pipeline.errors import ConfigError
from pipeline.model.attention import attention
from pipeline.positions import registry
from pipeline.positions.base import Site
from pipeline.positions.position_ids import (
    PositionIds,
    check_fit,
    generator,
    pack_ids,
    unpack_ids,
)
from tests.distributed.ranks import ROOT
from tests.oracles import positions as oracle
from tests.oracles.attention import attention as slow_attention
from tests.oracles.attention import plain_score
from tests.positions.cases import (
    LAYER,
    NAMES,
    SHAPE,
    build,
    check_gradients,
    encoding,
    random_qkv,
    words,
)

SCHEMES = registry.ids_names()
# settings that fit 24 tokens
SMALL: dict[str, dict[str, Any]] = {
    "shifted": {"largest_shift": 7},
    "randomized": {"positions": 60},
    "pose": {"target_length": 60},
    "segments": {"places": 4},
}
LENGTH = SHAPE.train_length


def scheme_of(name: str) -> PositionIds:
    torch.manual_seed(1)
    scheme = registry.ids_class(name)(SHAPE, **SMALL.get(name, {}))
    # every seventh token ends a segment
    scheme.read_vocabulary([b"a." if i % 7 == 0 else b"a" for i in range(50)])
    return scheme


def drawn(name: str, place: int, length: int = LENGTH) -> np.ndarray:
    tokens = words(1, length)[0].numpy()
    return scheme_of(name).drawn(length, tokens, generator(3, 0, place))


def fits(name: str, encoding: str) -> bool:
    return scheme_of(name).refusal(registry.build({"name": encoding}, SHAPE)) is None


@pytest.mark.parametrize("name", SCHEMES)
def test_yaml_lists_every_setting_with_its_default(name: str) -> None:
    written = yaml.safe_load((ROOT / "configs" / "position_ids" / f"{name}.yaml").read_text()) or {}
    defaults = registry.ids_settings(name).items()
    assert written == {k: list(v) if isinstance(v, tuple) else v for k, v in defaults}


@pytest.mark.parametrize("name", SCHEMES)
def test_declared_parameters_are_exact(name: str) -> None:
    scheme = registry.ids_class(name)(SHAPE)
    known = {"width": 32, "layers": 2, "heads": 4, "train_length": 24}
    known |= {k: v for k, v in registry.ids_settings(name).items() if isinstance(v, int)}
    count = sum(p.numel() for p in scheme.parameters())
    assert count == eval(scheme.facts.extra_parameters, {"__builtins__": {}}, known)


@pytest.mark.parametrize("name", SCHEMES)
def test_draws_depend_on_seed_step_and_place_alone(name: str) -> None:
    scheme, tokens = scheme_of(name), words(1, LENGTH)[0].numpy()

    def draw(*key: int) -> np.ndarray:
        return scheme.drawn(LENGTH, tokens, generator(*key))

    assert np.array_equal(draw(3, 5, 7), draw(3, 5, 7))
    others = [draw(4, 5, 7), draw(3, 6, 7), draw(3, 5, 8)]
    random = name not in ("consecutive", "segments")
    assert all(np.array_equal(draw(3, 5, 7), other) != random for other in others)


@pytest.mark.parametrize("name", SCHEMES)
def test_draws_are_in_order_and_within_their_bound(name: str) -> None:
    scheme = scheme_of(name)
    rows = [drawn(name, place) for place in range(200)]
    for ids in rows:
        assert ids.shape == (LENGTH,) and ids.max() <= scheme.largest
        assert (np.diff(ids) >= 0).all()
        assert (np.diff(ids) == 1).all() or not scheme.facts.consecutive
        assert (ids.dtype == np.float64) == scheme.facts.real
    if name in ("shifted", "randomized", "pose"):
        assert max(ids.max() for ids in rows) == scheme.largest, "the bound is reached"


def test_shifts_are_all_drawn_equally_often() -> None:
    starts = np.bincount([drawn("shifted", place)[0] for place in range(2000)], minlength=8)
    assert len(starts) == 8 and (abs(starts - 250) < 5 * 250**0.5).all()


def test_augmented_positions_spread_as_the_settings_say() -> None:
    """First id = (D + e) exp(l): the stretch moves the last one by up to 3 %."""
    rows = np.stack([drawn("augmented", place) for place in range(3000)])
    assert -5.5 * 1.03 <= rows[:, 0].min() < -5.0 and 5.0 < rows[:, 0].max() <= 5.5 * 1.03
    span = rows[:, -1] - rows[:, 0]
    assert 24.0 / 1.03 - 1.0 - 1.0 <= span.min() < 22.6 and 23.4 < span.max() <= 24.0 * 1.03
    gaps = np.diff(rows, axis=1)
    assert gaps.min() < 0.1 and gaps.max() > 1.9, "neighbours are jittered apart"


def test_randomized_positions_are_distinct_and_tested_by_a_fixed_draw() -> None:
    scheme = scheme_of("randomized")
    counts = np.bincount(
        np.concatenate([drawn("randomized", place) for place in range(1000)]), minlength=60
    )
    assert len(counts) == 60 and (abs(counts - 400) < 5 * 400**0.5).all()
    once, again = scheme.tested(40, None, 3), scheme.tested(40, None, 3)
    assert np.array_equal(once, again) and len(set(once)) == 40
    assert not np.array_equal(once, scheme.tested(40, None, 4))
    assert not np.array_equal(once, np.arange(40))
    assert scheme.max_length == 60


def test_pose_has_two_runs_and_every_skip() -> None:
    cuts, skips = set(), set()
    for place in range(4000):
        ids = drawn("pose", place)
        jumps = np.flatnonzero(np.diff(ids) != 1)
        assert ids[0] == 0 and len(jumps) <= 1
        if len(jumps):
            cuts.add(int(jumps[0]) + 1)
            skips.add(int(ids[-1]) - (LENGTH - 1))
    assert cuts == set(range(1, 13)), "1 to floor((24 + 1)/2) tokens before the cut"
    assert skips == set(range(1, 60 - 24 + 1))


@pytest.mark.parametrize("name", SCHEMES)
def test_tests_are_numbered_as_declared(name: str) -> None:
    scheme, tokens = scheme_of(name), words(1, 40)[0].numpy()
    ids = scheme.tested(40, tokens, 0)
    assert np.array_equal(ids, np.arange(40)) == scheme.tests_consecutive


def test_segments_count_what_ends_before_a_token() -> None:
    scheme = scheme_of("segments")
    #                  .        .  .
    tokens = np.array([1, 2, 7, 3, 14, 21, 4, 5])
    ids = scheme.drawn(8, tokens, generator(0))
    assert ids.tolist() == [0, 0, 0, 1, 1, 2, 3, 3]
    x = torch.zeros(1, 8, 32)
    whole = scheme("embed", x, torch.from_numpy(ids)[None], slice(0, 8))
    table = dict(scheme.named_parameters())["table"]
    rows = 32**0.5 * table[[0, 1, 2, 0, 1, 0, 0, 1]]
    assert torch.equal(whole[0], rows)
    parts = [
        scheme("embed", x[:, s], torch.from_numpy(ids)[None], s) for s in (slice(0, 3), slice(3, 8))
    ]
    assert torch.equal(torch.cat(parts, 1), whole)
    striped = scheme("embed", x[:, 1::2], torch.from_numpy(ids)[None], slice(1, 8, 2))
    assert torch.equal(striped, whole[:, 1::2])


def test_segments_without_separators_and_of_them_alone() -> None:
    """n = 0 and m = t; n = t and m = 0. Places beyond the last share it."""
    scheme, x = scheme_of("segments"), torch.zeros(1, 6, 32)
    none = scheme.drawn(6, np.array([1, 2, 3, 4, 5, 6]), generator(0))
    every = scheme.drawn(6, np.array([7, 14, 7, 21, 7, 0]), generator(0))
    assert none.tolist() == [0] * 6 and every.tolist() == list(range(6))
    for ids, rows in ((none, [0, 1, 2, 3, 3, 3]), (every, [0] * 6)):
        out = scheme("embed", x, torch.from_numpy(ids)[None], slice(0, 6))
        table = dict(scheme.named_parameters())["table"]
        assert torch.equal(out[0], 32**0.5 * table[rows])


def test_a_vocabulary_without_separators_is_refused() -> None:
    with pytest.raises(ConfigError, match="no token of the vocabulary ends so"):
        scheme_of("segments").read_vocabulary([b"a", b"b"])


@pytest.mark.parametrize(
    ("scheme", "position", "reason"),
    [
        ("shifted", "rope", "distances alone"),
        ("shifted", "learned", "ids below 24, and these reach 30"),
        ("pose", "shaw", "whole distances"),
        ("pose", "none", "no position ids"),
        ("randomized", "learned", "ids below 24, and these reach 59"),
        ("augmented", "t5", "whole positions"),
    ],
)
def test_ids_that_do_not_fit_are_refused(scheme: str, position: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=f"position_ids={scheme} does not fit .*{reason}"):
        check_fit(scheme_of(scheme), scheme, registry.build({"name": position}, SHAPE), position)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("shifted", {"largest_shift": 0}),
        ("augmented", {"local_shift": 0.6}),
        ("augmented", {"largest_scale": 0.9}),
        ("augmented", {"global_shift": float("nan")}),
        ("augmented", {"global_shift": 0.0, "local_shift": 0.0, "largest_scale": 1.0}),
        ("randomized", {"positions": 24}),
        ("pose", {"target_length": 24}),
        ("segments", {"separators": []}),
        ("segments", {"separators": [""]}),
        ("segments", {"places": 0}),
    ],
)
def test_bad_settings_are_refused(name: str, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="position_ids"):
        registry.ids_class(name)(SHAPE, **settings)


def test_real_ids_travel_as_integers() -> None:
    rows = [drawn("augmented", place) for place in range(2)]
    packed = pack_ids(rows)
    assert packed.dtype == torch.int64
    assert torch.equal(unpack_ids(packed, True), torch.from_numpy(np.stack(rows)))
    assert pack_ids([np.arange(5)] * 3).shape == (1, 5)
    assert pack_ids([np.arange(5), np.arange(5) + 1]).shape == (2, 5)


FITTING = [
    (scheme, position)
    for scheme, position in itertools.product(SCHEMES, NAMES)
    if scheme != "consecutive" and fits(scheme, position)
]


@pytest.mark.parametrize(("scheme", "position"), FITTING)
def test_attention_and_input_under_drawn_ids_equal_the_paper(scheme: str, position: str) -> None:
    """The oracle is asked at the ids instead of the places; every row has ids of its own."""
    own_scheme, built = scheme_of(scheme), build(position)
    length = 13
    rows = [drawn(scheme, place, length) for place in range(2)]
    ids = torch.from_numpy(np.stack(rows))
    x = torch.randn(2, length, 32)
    seen = built("embed", x, ids, words(2, length))
    own = encoding(built, position)
    score = oracle.SCORES[position](own) if position in oracle.SCORES else plain_score
    leaves = random_qkv(length)
    for leaf in leaves:
        leaf.retain_grad()
    q, k, v = slow = [leaf.detach().double().requires_grad_() for leaf in leaves]
    site = Site(LAYER, range(4), length, consecutive=own_scheme.facts.consecutive)
    attend = partial(attention, path="auto")
    out = built("attend", attend, *leaves, ids, site)
    pull = torch.randn_like(out)
    (out * pull).sum().backward()
    rows_of = [(slice(b, b + 1), ids[b].tolist()) for b in range(2)]
    expected = torch.cat([slow_attention(q[s], k[s], v[s], score, ids=at) for s, at in rows_of])
    (expected * pull.double()).sum().backward()
    assert (out - expected).abs().max() < 1e-5
    pairs = [(a.grad, b.grad) for a, b in zip(leaves, slow, strict=True)]
    if position in oracle.SCORES:
        both = ((p, own.parameters[n]) for n, p in built.named_parameters())
        pairs += [(p.grad, s.grad) for p, s in both if s.grad is not None]
    check_gradients(pairs)
    if position == "sinusoidal":
        angles = ids[..., None].double() / 10000.0 ** (torch.arange(0, 32, 2).double() / 32)
        assert (seen[..., 0::2] - x[..., 0::2] - angles.sin()).abs().max() < 1e-6
