"""Positions of tokens at the input, or against each other: starts, limits and settings."""

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from pipeline.errors import ConfigError
from pipeline.model.attention import choose, paths
from pipeline.positions import registry
from pipeline.positions.base import Position, Shape, Site
from pipeline.positions.floater import FloaterPosition
from tests.oracles import absolute as oracle
from tests.oracles.attention import dense_scores
from tests.positions import test_battery, test_paths
from tests.positions.cases import (
    LAYER,
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

INPUTS: list[tuple[str, dict[str, Any]]] = [
    ("complex", {"sharing": "none"}),
    ("floater", {"hidden": 3, "interval": 0.5}),
]
TUPE: list[tuple[str, dict[str, Any]]] = [
    ("tupe", {"untied": False}),
    ("tupe", {"relative": True}),
    ("tupe", {"relative": True, "untied": False}),
    # a table that ends inside 24 tokens
    ("tupe", {"relative": True, "buckets": 4, "max_distance": 6}),
]
RUNS = [
    (name, chosen, path)
    for name, chosen in TUPE
    for path in paths(scores_of(build(name, **chosen), *random_qkv(24)[:2]), "cpu")
]


@pytest.mark.parametrize(("name", "chosen"), INPUTS, ids=named)
def test_other_inputs_equal_the_paper_in_loops(name: str, chosen: dict[str, Any]) -> None:
    position, length = build(name, **chosen), 24
    x = torch.randn(2, length, 32, requires_grad=True)
    out = position("embed", x, torch.arange(length)[None], words(2, length))
    own, xd = encoding(position, name, **chosen), x.detach().double().requires_grad_()
    expected = oracle.INPUTS[name](xd, own, words(2, length))
    assert (out - expected).abs().max() <= 1e-6 * expected.abs().max()
    pull = torch.randn_like(out)
    (out * pull).sum().backward()
    (expected * pull.double()).sum().backward()
    pairs = [(p.grad, own.parameters[n].grad) for n, p in position.named_parameters()]
    check_gradients([(x.grad, xd.grad), *pairs])


@pytest.mark.parametrize(("name", "chosen", "path"), RUNS, ids=named)
def test_other_forms_of_tupe_equal_the_paper_in_loops(
    name: str, chosen: dict[str, Any], path: str
) -> None:
    test_paths.test_attention_equals_the_paper_in_loops(name, chosen, path)


@pytest.mark.parametrize(("name", "chosen"), [*INPUTS, *TUPE], ids=named)
def test_other_forms_hold_to_what_is_declared(name: str, chosen: dict[str, Any]) -> None:
    test_battery.test_causality_is_exact(name, chosen)
    test_battery.test_shift_invariance_is_as_declared(name, chosen)
    test_battery.test_every_tensor_is_on_the_device_of_the_input(name, chosen)
    test_battery.test_head_slices_tile_the_whole(name, chosen, 2)
    test_paths.test_bf16_attention_keeps_scores_in_fp32(name, chosen)
    position = build(name, **chosen)
    known = {"width": 32, "layers": 2, "heads": 4, "train_length": 24, "vocab": 50}
    known |= registry.default_settings(name) | chosen
    count = sum(p.numel() for p in position.parameters())
    formula = position.facts.extra_parameters
    assert count == eval(formula, {"__builtins__": {}}, known)


def with_values(name: str, values: dict[str, Tensor | float], **settings: Any) -> Position:
    """The encoding at its start, these parameters set."""
    position = registry.build({"name": name, **settings}, SHAPE)
    with torch.no_grad():
        for own, parameter in position.named_parameters():
            if own in values:
                parameter.copy_(torch.as_tensor(values[own]).expand_as(parameter))
    return position


def phases(ids: Tensor, x: Tensor) -> Tensor:
    """f(w, p) of complex, [1,T,D] complex: its real part through W = [I, 0], its imaginary part
    through [0, I]."""
    parts = []
    for side in ([torch.eye(32), torch.zeros(32, 32)], [torch.zeros(32, 32), torch.eye(32)]):
        position = with_values("complex", {"projection": torch.cat(side, 1)})
        parts.append(position("embed", x, ids, words(1, ids.shape[1])))
    return torch.complex(parts[0], parts[1]).detach()


@pytest.mark.parametrize("start", [0.0, 5.0, 1_000_003.0, 7.25])
def test_complex_turns_by_its_frequency_from_position_to_position(start: float) -> None:
    """f(w, p + s) = e^{i o s} f(w, p), at whole positions and between them."""
    x = torch.randn(1, 1, 32)
    speeds = 10000.0 ** (-2.0 * (torch.arange(32) // 2).double() / 32)
    p = torch.tensor([[start]], dtype=torch.float64)
    p = p.long() if start == int(start) else p
    for s in (1, 30):
        turn = torch.polar(torch.ones(32).double(), s * speeds.float().double())
        expected = phases(p, x).to(torch.complex128) * turn
        assert (phases(p + s, x) - expected).abs().max() < 1e-5


def test_complex_starts_as_the_embedding_at_position_zero() -> None:
    x, ids = torch.randn(2, 24, 32), torch.arange(24)[None]
    position = registry.build({"name": "complex"}, SHAPE)
    out = position("embed", x, ids, words(2, 24))
    assert torch.equal(out[:, 0], x[:, 0])
    assert (out[:, 1:] - x[:, 1:]).abs().max() > 0.1


def test_complex_without_frequencies_is_the_embedding_everywhere() -> None:
    x, ids, weight = torch.randn(2, 24, 32), torch.arange(24)[None], torch.randn(32, 64)
    for sharing in ("word", "none"):
        position = with_values(
            "complex", {"frequencies": 0.0, "projection": weight}, sharing=sharing
        )
        out = position("embed", x, ids, words(2, 24))
        assert (out - x @ weight[:, :32].T).abs().max() < 1e-5


def test_complex_with_equal_frequencies_of_all_tokens_is_shared() -> None:
    x, ids = torch.randn(2, 24, 32), torch.arange(24)[None]
    shared, own = (
        registry.build({"name": "complex", "sharing": s}, SHAPE) for s in ("word", "none")
    )
    assert dict(own.named_parameters())["frequencies"].shape == (50, 32)
    outs = [p("embed", x, ids, words(2, 24)) for p in (shared, own)]
    assert torch.equal(*outs)


def test_floater_without_a_slope_is_a_constant_vector() -> None:
    start, x = torch.randn(32), torch.randn(2, 24, 32)
    position = with_values("floater", {"start": start, "w2": 0.0, "b2": 0.0})
    assert torch.equal(position("embed", x, torch.arange(24)[None], words(2, 24)), x + start)


def floater(interval: float) -> FloaterPosition:
    """Of a slope of order one, in fp64."""
    torch.manual_seed(4)
    small = Shape(width=6, layers=1, heads=1, train_length=24)
    position = FloaterPosition(small, hidden=4, interval=interval)
    for parameter in position.parameters():
        torch.nn.init.normal_(parameter, 0.0, 0.5)
    return position.double()


def test_floater_is_of_order_four(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step half as long leaves a sixteenth of the error, against the paper in loops with 32 steps
    for each of the longest."""
    monkeypatch.setattr(Tensor, "float", Tensor.double)
    count, longest = 8, 0.25
    dense = encoding(floater(longest / 32), "floater", interval=longest / 32)
    rest = torch.zeros(1, count * 32 + 1, 6).double()
    exact = oracle.floater_input(rest, dense, words(1, 1)).detach()
    errors = []
    for steps in (1, 2, 4):
        own = floater(longest / steps).trajectory(count * steps + 1).detach()
        errors.append(float((own[-1] - exact[0, -1]).abs().max()))
    assert errors[0] > 1e-8
    for coarse, fine in itertools.pairwise(errors):
        assert 12.0 < coarse / fine < 20.0


def test_floater_starts_small_and_with_xavier_weights() -> None:
    torch.manual_seed(0)
    own = dict(registry.build({"name": "floater"}, Shape(512, 1, 8, 24)).named_parameters())
    assert own["start"].std().item() == pytest.approx(0.02, rel=0.1)
    assert own["w1"].std().item() == pytest.approx((2 / (65 + 512)) ** 0.5, rel=0.05)
    assert own["w2"].std().item() == pytest.approx((2 / (64 + 512)) ** 0.5, rel=0.05)
    assert not own["b1"].any() and not own["b2"].any()


@pytest.mark.parametrize("relative", [False, True])
def test_tupe_without_its_weights_is_nothing_with_less_scale(relative: bool) -> None:
    """No encoding at the scale 1/sqrt(2d)."""
    zeros = ("query_projection", "key_projection", "buckets", "first")
    q, k, v = random_qkv(24)
    with torch.no_grad():
        expected = attend(build("none"), q / math.sqrt(2.0), k, v)
        for emptied in (zeros, ()):
            position = build("tupe", relative=relative)
            for own, parameter in position.named_parameters():
                if own in emptied:
                    parameter.zero_()
            same = float((attend(position, q, k, v) - expected).abs().max()) < 1e-6
            assert same == bool(emptied)


def seen_scores(position: Position, start: int = 0, consecutive: bool = True) -> Tensor:
    """S_ij of 12 tokens, those that are seen, [2,4,12,12]."""
    q, k, _ = random_qkv(12)
    ids = torch.arange(start, start + 12)[None]
    site = Site(LAYER, range(4), 12, consecutive=consecutive)
    with torch.no_grad():
        return dense_scores(position.scores(q, k, ids, site)).tril()


def moved(name: str, start: int = 0, **settings: Any) -> Tensor:
    """Where S_ij changes with one parameter of tupe, [12,12] true or false."""
    position = build("tupe", **settings)
    before = seen_scores(position, start)
    with torch.no_grad():
        dict(position.named_parameters())[name].add_(1.0)
    return (seen_scores(position, start) - before).abs().amax((0, 1)) > 1e-5


@pytest.mark.parametrize("relative", [False, True])
def test_tupe_sets_the_first_token_apart(relative: bool) -> None:
    """Its number is all that positions add to column 0, and is added nowhere else."""
    triangle = torch.ones(12, 12, dtype=torch.bool).tril()
    first, others = triangle.clone(), triangle.clone()
    first[:, 1:], others[:, 0] = False, False
    assert torch.equal(moved("first", relative=relative), first)
    if relative:
        assert torch.equal(moved("buckets", relative=relative), others)
        assert torch.equal(moved("buckets", relative=relative, untied=False), triangle)
    assert not bool((moved("query_projection", relative=relative) & first).any())
    # it is the one with id 0, wherever a sequence starts
    assert not moved("first", start=3, relative=relative).any()


def test_tupe_relative_is_the_same_by_table_and_by_pairs() -> None:
    position = build("tupe", relative=True)
    by_table, by_pairs = (seen_scores(position, 2, consecutive) for consecutive in (True, False))
    assert (by_table - by_pairs).abs().max() < 1e-5


def test_tupe_is_the_same_in_every_layer() -> None:
    position, (q, k, _) = build("tupe"), random_qkv(24)
    ids = torch.arange(24)[None]
    zero, one = (position.scores(q, k, ids, Site(n, range(4), 24)).pairs[0][0] for n in (0, 1))
    assert torch.equal(zero, one)


@pytest.mark.parametrize(("name", "chosen"), TUPE, ids=named)
def test_tupe_is_served_by_kernels_for_products(name: str, chosen: dict[str, Any]) -> None:
    """At a width that a fused kernel takes; buckets are a table, whose far part is products."""
    position = build(name, **chosen)
    scores = scores_of(position, *random_qkv(24)[:2])
    assert scores.pairs[0][0].shape[-1] == (16 if chosen.get("untied", True) is False else 24)
    relative = chosen.get("relative", False)
    expected = {"tile", "far_near", "flex"} if relative else {"tile", "sdpa", "flex"}
    assert set(paths(scores, "cuda")) == expected
    assert choose(scores, 2**20, "cpu") == ("far_near" if relative else "sdpa")
    assert replace(scores, table=None).plain


def test_tupe_starts_small_and_with_the_first_token_as_the_others() -> None:
    torch.manual_seed(0)
    big = Shape(512, 1, 8, 512)
    own = dict(registry.build({"name": "tupe", "relative": True}, big).named_parameters())
    for name in ("table", "query_projection", "key_projection", "buckets"):
        assert own[name].std().item() == pytest.approx(0.02, rel=0.1)
    assert bool((own["gain"] == 1.0).all()) and not own["shift"].any() and not own["first"].any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"name": "complex", "sharing": "all"},
            "position.sharing='all': must be one of word, none",
        ),
        ({"name": "floater", "hidden": 0}, "position.hidden=0: must be 1 to 65536"),
        ({"name": "floater", "interval": 0.0}, "position.interval=0.0: must be above 0"),
        ({"name": "floater", "interval": math.nan}, "position.interval=nan: must be above 0"),
        ({"name": "tupe", "buckets": 16}, "position.buckets=16, .* no effect without"),
        ({"name": "tupe", "max_distance": 64}, "position.max_distance=64: no effect without"),
        ({"name": "tupe", "relative": True, "buckets": 7}, "position.buckets=7, .* must be even"),
        ({"name": "tupe", "relative": True, "max_distance": 16}, "max_distance=16: .* above half"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        registry.build(settings, SHAPE)
