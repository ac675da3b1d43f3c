"""Relative terms that depend on queries or keys: starts, limits, forms and settings."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from pipeline.errors import ConfigError
from pipeline.model.attention import paths
from pipeline.positions import registry
from pipeline.positions.base import Position, Shape, Site
from tests.oracles.attention import dense_scores
from tests.positions import test_battery, test_paths
from tests.positions.cases import LAYER, SHAPE, attend, build, named, random_qkv, scores_of

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("xlnet", {"relative_width": "head"}),
    ("tener", {"scaled": True}),
    ("deberta", {"form": "paper"}),
    *(
        ("deberta", {"span_share": span / 24, "form": f})
        for span in (1, 5, 23)
        for f in ("code", "paper")
    ),
]
RUNS = [
    (name, chosen, path)
    for name, chosen in VARIANTS
    for path in paths(scores_of(build(name, **chosen), *random_qkv(24)[:2]), "cpu")
]


@pytest.mark.parametrize(("name", "chosen", "path"), RUNS, ids=named)
def test_other_forms_equal_the_paper_in_loops(name: str, chosen: dict[str, Any], path: str) -> None:
    test_paths.test_attention_equals_the_paper_in_loops(name, chosen, path)


@pytest.mark.parametrize(("name", "chosen", "path"), RUNS, ids=named)
def test_other_forms_equal_the_dense_definition_in_long_texts(
    name: str, chosen: dict[str, Any], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    test_paths.test_long_attention_equals_the_dense_definition(
        name, chosen, path, 700, None, monkeypatch
    )


@pytest.mark.parametrize(("name", "chosen"), VARIANTS, ids=named)
def test_other_forms_hold_to_what_is_declared(name: str, chosen: dict[str, Any]) -> None:
    test_battery.test_causality_is_exact(name, chosen)
    test_battery.test_shift_invariance_is_as_declared(name, chosen)
    test_battery.test_every_tensor_is_on_the_device_of_the_input(name, chosen)
    test_battery.test_head_slices_tile_the_whole(name, chosen, 2)
    test_battery.test_declared_parameters_are_exact(name, chosen)
    test_paths.test_declared_attention_paths_are_those_that_serve(name, chosen)
    test_paths.test_bf16_attention_keeps_scores_in_fp32(name, chosen)


def with_values(
    name: str, values: dict[str, Tensor | float], shape: Shape = SHAPE, **settings: Any
) -> Position:
    """An encoding far from its start, these parameters set."""
    torch.manual_seed(3)
    position = registry.build({"name": name, **settings}, shape)
    with torch.no_grad():
        for own, parameter in position.named_parameters():
            parameter.normal_(0.0, 0.5)
            if own in values:
                parameter.copy_(torch.as_tensor(values[own]).expand_as(parameter))
    return position


def seen_scores(position: Position, layer: int = LAYER, length: int = 40) -> Tensor:
    """S_ij, those that are seen, [2,4,S,S]."""
    q, k, _ = random_qkv(length)
    with torch.no_grad():
        ids, site = torch.arange(length)[None], Site(layer, range(4), length)
        return dense_scores(position.scores(q, k, ids, site)).tril()


def parameters(position: Position) -> dict[str, Tensor]:
    return {name: p.detach() for name, p in position.named_parameters()}


@pytest.mark.parametrize(
    ("name", "chosen", "times"),
    [
        ("xlnet", {}, 1.0),
        ("xlnet", {"relative_width": "head"}, 1.0),
        ("deberta", {}, 3**-0.5),
        ("deberta", {"form": "paper"}, 3**-0.5),
    ],
)
def test_without_its_weights_it_is_nothing_at_its_scale(
    name: str, chosen: dict[str, Any], times: float
) -> None:
    (q, k, v), position = random_qkv(40), build(name, **chosen)
    with torch.no_grad():
        expected = attend(build("none"), times * q, k, v)
        assert (attend(position, q, k, v) - expected).abs().max() > 1e-2
        for parameter in position.parameters():
            parameter.zero_()
        assert (attend(position, q, k, v) - expected).abs().max() < 1e-6


@pytest.mark.parametrize("width", ["model", "head"])
def test_xlnet_is_transformer_xl_with_biases_of_each_layer(width: str) -> None:
    xlnet = build("xlnet", relative_width=width)
    own = parameters(xlnet)
    for layer in (0, 1):
        values: dict[str, Tensor | float] = {
            "projection": own["projection"],
            **{name: own[name][layer] for name in ("content_bias", "position_bias")},
        }
        shared = with_values("transformer_xl", values, relative_width=width)
        assert (seen_scores(xlnet, layer) - seen_scores(shared, layer)).abs().max() < 1e-5
    assert (own["content_bias"][0] - own["content_bias"][1]).abs().max() > 0.1


def test_tener_is_transformer_xl_with_an_identity_for_a_projection() -> None:
    """And no sqrt(d), which is sqrt(8) here; sines and cosines alternate in R."""
    order = torch.zeros(8, 8)
    for t in range(4):
        order[2 * t, t] = order[2 * t + 1, 4 + t] = 1.0
    tener, scaled = build("tener"), build("tener", scaled=True)
    own = parameters(tener)
    values: dict[str, Tensor | float] = {name: own[name][LAYER] for name in own}
    other = with_values("transformer_xl", {**values, "projection": order}, relative_width="head")
    assert (seen_scores(tener) - math.sqrt(8.0) * seen_scores(other)).abs().max() < 1e-4
    assert (seen_scores(scaled) - seen_scores(other)).abs().max() < 1e-5
    assert tener.scale == 1.0


def test_tener_between_whole_positions() -> None:
    """Half a token between neighbours turns half as far as one."""
    q, k, _ = random_qkv(3)
    tener, site = build("tener"), Site(LAYER, range(4), 3)
    own, n = parameters(tener), torch.tensor([[0.0, 0.5, 1.0]], dtype=torch.float64)
    with torch.no_grad():
        ((queries, keys),) = tener.scores(q, k, n, site).pairs
        found = (queries @ keys.mT)[:, :, 2, 1]
        angles = 0.5 * 10000.0 ** (-torch.arange(4) / 4)
        waves = torch.stack([angles.sin(), angles.cos()], -1).flatten()
        u, v = (own[name][LAYER] for name in ("content_bias", "position_bias"))
        expected = ((q[:, :, 2] + u) * k[:, :, 1]).sum(-1) + (q[:, :, 2] + v) @ waves
    assert (found - expected).abs().max() < 1e-5


def test_deberta_from_queries_alone_is_shaw_of_a_projected_table() -> None:
    """With one table per head; Shaw's sum of two products is divided by sqrt(d), not sqrt(3d)."""
    whole = with_values("deberta", {"query_projection": 0.0}, span_share=6 / 24)
    own, found = parameters(whole), seen_scores(whole)
    for head in range(4):
        keys = own["table"] @ own["key_projection"][LAYER, head].T
        values: dict[str, Tensor | float] = {"keys": keys, "values": 0.0}
        shaw = seen_scores(with_values("shaw", values, clip=5))
        assert (math.sqrt(3.0) * found - shaw)[:, head].abs().max() < 1e-5


def test_deberta_from_keys_mirrors_the_table_as_printed() -> None:
    """Where the printed table has, before its middle, the rows of the code's in reverse."""
    k = 6
    code = with_values("deberta", {"key_projection": 0.0}, span_share=k / 24)
    own = parameters(code)
    table = torch.zeros(2 * k, 32)
    table[1 : k + 1] = own["table"].flip(0)
    values: dict[str, Tensor | float] = {"table": table, "key_projection": 0.0}
    values["query_projection"] = own["query_projection"]
    moved = seen_scores(code) - seen_scores(
        with_values("deberta", values, span_share=k / 24, form="paper")
    )
    i = torch.arange(40)
    near = (i[:, None] - i).clamp(min=0) < k
    assert moved[..., near].abs().max() < 1e-5
    assert moved[..., ~near].abs().amin((0, 1)).min() > 1e-5


@pytest.mark.parametrize(
    ("span", "form", "rows"), [(5, "code", 5), (5, "paper", 10), (24, "code", 24)]
)
def test_deberta_has_the_rows_that_training_reads(span: int, form: str, rows: int) -> None:
    """Every one of them gets a gradient from a text of the training length."""
    position = build("deberta", span_share=span / 24, form=form)
    attend(position, *random_qkv(24)).square().sum().backward()
    gradient = dict(position.named_parameters())["table"].grad
    assert gradient is not None and gradient.shape == (rows, 32)
    assert gradient.abs().amax(1).min() > 1e-6


def test_they_start_as_the_authors_code_does() -> None:
    torch.manual_seed(0)
    big = Shape(512, 3, 8, 512)
    for name in ("xlnet", "deberta"):
        for parameter in registry.build({"name": name}, big).parameters():
            assert parameter.std().item() == pytest.approx(0.02, rel=0.1)
    for parameter in registry.build({"name": "tener"}, big).parameters():
        assert parameter.shape == (3, 8, 64)
        assert parameter.std().item() == pytest.approx((2 / 72) ** 0.5, rel=0.1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "xlnet", "relative_width": "d"}, "position.relative_width='d': must be one of"),
        ({"name": "deberta", "span_share": 0.0}, "position.span_share=0.0: 0 tokens"),
        ({"name": "deberta", "span_share": 1.5}, "position.span_share=1.5: must be at most 1"),
        ({"name": "deberta", "form": "hf"}, "position.form='hf': must be one of code, paper"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        registry.build(settings, SHAPE)


def test_an_odd_head_width_has_no_pairs() -> None:
    odd = Shape(width=12, layers=1, heads=4, train_length=24)
    with pytest.raises(ConfigError, match=r"heads = 3: tener pairs a sine with a cosine"):
        registry.build({"name": "tener"}, odd)
