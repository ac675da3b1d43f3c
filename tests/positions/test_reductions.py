"""An encoding at a limit is another one, and what decays is what should."""

import pytest
import torch
from torch import Tensor

from pipeline.errors import ConfigError
from pipeline.positions import registry
from pipeline.positions.alibi import slopes
from pipeline.positions.base import Position, Shape, Site

SHAPE = Shape(width=32, layers=2, heads=4, train_length=24)
SITE = Site(1, range(4), 300)


def table(position: Position, site: Site = SITE) -> Tensor:
    found = position.distance_table(site, torch.device("cpu"))
    assert found is not None
    return found.detach()


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
    assert not torch.equal(table(kerple), table(kerple, Site(0, range(4), 300)))


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
    found = kerple.distance_table(SITE, torch.device("cpu"))
    assert found is not None
    found.sum().backward()
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
