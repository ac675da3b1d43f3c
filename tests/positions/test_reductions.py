"""An encoding at a limit is another one, and what decays is what should."""

import pytest
import torch
from torch import Tensor

from pipeline.errors import ConfigError
from pipeline.model.attention import attention
from pipeline.positions import registry
from pipeline.positions.alibi import slopes
from pipeline.positions.base import Position, Shape, Site
from pipeline.positions.scores import Scores
from tests.positions.cases import LAYER, SHAPE, attend, build, random_qkv


def table(position: Position, layer: int = 1) -> Tensor:
    """The bias by distance, [4,300]."""
    q = torch.zeros(1, 4, 300, 8)
    found = position.scores(q, q, torch.arange(300)[None], Site(layer, range(4), 300)).table
    assert found is not None
    return found


def difference(
    name: str, chosen: dict[str, object], other: str, zero: tuple[str, ...] = ()
) -> float:
    """Largest difference of attention over 40 tokens between an encoding, with the parameters of
    these names zero, and another."""
    position = build(name, **chosen)
    q, k, v = random_qkv(40)
    with torch.no_grad():
        for own, parameter in position.named_parameters():
            if own in zero:
                parameter.zero_()
        return float((attend(position, q, k, v) - attend(build(other), q, k, v)).abs().max())


def with_parameters(settings: dict[str, object], r1: list[float], r2: float) -> Position:
    """KERPLE with these values of r1 per head and of r2 in every layer."""
    position = registry.build(settings, SHAPE)
    values = torch.tensor(r1, dtype=torch.float64)
    with torch.no_grad():
        for name, parameter in position.named_parameters():
            if name == "raw_r1":
                parameter.copy_(torch.log(torch.expm1(values)).expand(2, 4))
            elif settings.get("form") == "power":
                parameter.fill_(float(torch.logit(torch.tensor(r2 / 2.0))))
            else:
                parameter.fill_(float(torch.log(torch.expm1(torch.tensor(r2)))))
    return position


def test_kerple_power_one_is_alibi() -> None:
    kerple = with_parameters({"name": "kerple", "form": "power"}, slopes(4), 1.0)
    alibi = registry.build({"name": "alibi"}, SHAPE)
    assert (table(kerple) - table(alibi)).abs().max() <= 1e-6 * 300


def test_kerple_with_little_weight_is_nothing() -> None:
    for form in ("log", "power"):
        kerple = with_parameters({"name": "kerple", "form": form}, [1e-7] * 4, 0.5)
        assert table(kerple).abs().max() < 1e-5


def test_kerple_has_its_own_numbers_in_every_layer() -> None:
    kerple = registry.build({"name": "kerple"}, SHAPE)
    assert not torch.equal(table(kerple), table(kerple, 0))


def test_kerple_starts_where_the_authors_start() -> None:
    torch.manual_seed(0)
    big = Shape(width=2000, layers=50, heads=100, train_length=24)
    for form, high in (("log", (2.0, 1.0)), ("power", (1.0, 2.0))):
        own = dict(registry.build({"name": "kerple", "form": form}, big).named_parameters())
        r1 = torch.nn.functional.softplus(own["raw_r1"])
        raw = own["raw_r2"]
        r2 = torch.nn.functional.softplus(raw) if form == "log" else 2.0 * torch.sigmoid(raw)
        for value, top in zip((r1, r2), high, strict=True):
            assert 0.005 < value.min().item() < 0.02 * top + 0.01
            assert 0.98 * top < value.max().item() <= top
            assert value.mean().item() == pytest.approx(top / 2, rel=0.05)


def test_kerple_power_has_finite_gradients_at_distance_zero() -> None:
    kerple = registry.build({"name": "kerple", "form": "power"}, SHAPE)
    table(kerple).sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in kerple.parameters() if p.grad is not None)


@pytest.mark.parametrize(
    "settings", [{"name": "alibi"}, {"name": "kerple"}, {"name": "kerple", "form": "power"}]
)
def test_these_decay_all_the_way(settings: dict[str, object]) -> None:
    found = table(registry.build(settings, SHAPE))
    assert not found[:, 0].any()
    assert bool((found[:, 1:] < found[:, :-1]).all())


def test_sandwich_does_not_decay_all_the_way() -> None:
    """First rise at distance 12 with 128 dimensions; 64 / ratio at distance 0."""
    found = table(registry.build({"name": "sandwich"}, SHAPE))
    rises = (found[:, 1:] > found[:, :-1]).nonzero()
    assert int(rises[:, 1].min()) + 1 == 12
    expected = 64.0 / (8.0 * torch.arange(1, 5) / 4)
    assert (found[:, 0] - expected).abs().max() < 1e-5


def test_t5_with_an_empty_table_is_nothing() -> None:
    position = registry.build({"name": "t5"}, SHAPE)
    with torch.no_grad():
        next(position.parameters()).zero_()
    assert not table(position).any()


TRANSFORMER_XL = ("content_bias", "position_bias", "projection")


@pytest.mark.parametrize(
    ("name", "chosen", "zero"),
    [
        ("shaw", {}, ("keys", "values")),
        ("transformer_xl", {}, TRANSFORMER_XL),
        ("transformer_xl", {"relative_width": "head"}, TRANSFORMER_XL),
        ("fire", {}, ("w2", "b2")),
        ("fire", {}, ("w2",)),
    ],
)
def test_without_its_weights_it_is_nothing(
    name: str, chosen: dict[str, object], zero: tuple[str, ...]
) -> None:
    """The last: a number per head, added to whole rows, is nothing as well."""
    assert difference(name, chosen, "none", zero) < 1e-6
    assert difference(name, chosen, "none") > 1e-2


def test_rerope_with_a_window_as_long_as_the_text_is_rope() -> None:
    """Of 40 tokens the largest distance is 39, which a window of 39 leaves as it is."""
    for window, same in ((40, True), (39, True), (38, False)):
        moved = difference("rerope", {"window_share": window / SHAPE.train_length}, "rope")
        assert (moved < 1e-6) == same


def test_shaw_with_a_clip_as_long_as_the_text_is_an_unclipped_table() -> None:
    """Rows beyond the text change nothing; a clip inside it reads the clip's row instead."""
    torch.manual_seed(2)
    whole = build("shaw", clip=60)
    q, k, v = random_qkv(40)
    outs = {}
    with torch.no_grad():
        for clip in (60, 39, 38):
            shaw = build("shaw", clip=clip)
            for name, parameter in shaw.named_parameters():
                parameter.copy_(dict(whole.named_parameters())[name][:, : clip + 1])
            outs[clip] = attend(shaw, q, k, v)
    assert (outs[60] - outs[39]).abs().max() < 1e-6
    moved = (outs[60] - outs[38]).abs().amax((0, 1, 3))
    assert float(moved[:39].max()) < 1e-6 < float(moved[39])


def test_transformer_xl_by_columns_equals_a_content_table() -> None:
    """Of relative width d, the columns of q and k and a table W_R R[i - j] say the same."""
    position = build("transformer_xl", relative_width="head")
    own = dict(position.named_parameters())
    q, k, v = random_qkv(40)
    angles = torch.arange(40)[:, None] * 10000.0 ** (-torch.arange(4) / 4)
    waves = torch.cat([angles.sin(), angles.cos()], -1)
    ids = torch.arange(40)
    scores = Scores(
        pairs=((q + own["content_bias"][:, None], k),),
        scale=8**-0.5,
        ids_q=ids,
        ids_k=ids,
        queries=q + own["position_bias"][:, None],
        keys=waves @ own["projection"][LAYER].mT,
    )
    with torch.no_grad():
        assert (attend(position, q, k, v) - attention(scores, v, "tile")).abs().max() < 1e-5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "kerple", "form": "cubic"}, "position.form='cubic': must be one of log, power"),
        ({"name": "sandwich", "dimensions": 7}, "position.dimensions=7"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        registry.build(settings, SHAPE)
