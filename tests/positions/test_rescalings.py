"""Extensions that rescale the speeds of a trained rotation: published numbers and limits."""

import math
from typing import Any

import pytest
import torch

from pipeline.errors import ConfigError
from pipeline.positions import registry
from pipeline.positions.base import Site
from tests.oracles import rotary as oracle
from tests.positions.cases import LAYER, build, random_qkv
from tests.positions.turning import SIZES, assert_close, extended, rope, speeds, turned

RESCALINGS = [
    "interpolation",
    "ntk",
    "dynamic_ntk",
    "ntk_by_parts",
    "yarn",
    "llama3",
    "longrope",
    "adjusted_base",
]
TURNED: list[tuple[str, dict[str, Any]]] = [
    ("rope", {}),
    ("rope", {"layout": "halves"}),
    ("partial_rope", {}),
    ("partial_rope", {"form": "partial", "share": 0.5}),
    ("xpos", {}),
    ("giraffe", {}),
    ("giraffe", {"basis": "truncated", "cutoff_high": 0.3}),
    ("pope", {}),
]


@pytest.mark.parametrize("name", RESCALINGS)
@pytest.mark.parametrize(("encoding", "chosen"), TURNED)
def test_at_scale_one_nothing_changes(name: str, encoding: str, chosen: dict[str, Any]) -> None:
    """Not a bit; and something does at the default scale, beyond the training length."""
    trained = build(encoding, **chosen)
    same = registry.extension_class(name).about.same_as_trained
    for one, other in zip(turned(extended(name, trained, **same)), turned(trained), strict=True):
        assert torch.equal(one, other)
    changed = turned(extended(name, trained))
    assert max((x - y).abs().max() for x, y in zip(changed, turned(trained), strict=True)) > 1e-3


@pytest.mark.parametrize("name", RESCALINGS)
@pytest.mark.parametrize("encoding", ["none", "sinusoidal", "alibi", "t5", "rerope"])
def test_encodings_without_speeds_are_refused(name: str, encoding: str) -> None:
    with pytest.raises(ConfigError, match=f"extension={name} does not fit .*no speeds of rotation"):
        registry.extended(build(encoding), encoding, {"name": name})


def test_too_few_speeds_are_refused() -> None:
    still = build("partial_rope", form="partial", share=0.0)
    one = build("partial_rope", form="partial", share=0.25)
    for name in RESCALINGS:
        with pytest.raises(ConfigError, match="it turns 0 dimensions, and at least"):
            extended(name, still)
    for name in ("ntk", "dynamic_ntk"):
        with pytest.raises(ConfigError, match="it turns 2 dimensions, and at least 4 must turn"):
            extended(name, one)
    with pytest.raises(ConfigError, match=r"divides by ln\(train_length\)"):
        extended("longrope", rope(8, 1))


def test_interpolation_is_rope_at_divided_positions() -> None:
    q, k, _ = (x.detach() for x in random_qkv(40))
    ids, site = torch.arange(40)[None], Site(LAYER, range(4), 40)
    squeezed = build("rope").rotate(q, k, ids / 4, site)
    for one, other in zip(
        extended("interpolation", scale=4.0).rotate(q, k, ids, site), squeezed, strict=True
    ):
        assert (one - other).abs().max() < 1e-6


@pytest.mark.parametrize(("width", "trained"), SIZES)
@pytest.mark.parametrize("scale", [2.0, 8.0])
def test_ntk_is_rope_with_the_published_base(width: int, trained: int, scale: float) -> None:
    """Its fastest pair is kept and its slowest is interpolated, exactly."""
    found = speeds(extended("ntk", rope(width, trained), scale=scale))
    assert_close(found, oracle.ntk_speeds(width, 10000.0, scale))
    ratio = found / speeds(rope(width, trained))
    assert (ratio[0].item(), ratio[-1].item()) == pytest.approx((1.0, 1.0 / scale), rel=1e-14)


def test_ntk_of_pope_counts_all_its_speeds() -> None:
    ratio = speeds(extended("ntk", build("pope"), scale=8.0)) / speeds(build("pope"))
    assert_close(ratio, [8.0 ** (-c / 7) for c in range(8)])


@pytest.mark.parametrize(("alpha", "scale"), [(1.0, 8.0), (8.0, 57.0)])
def test_dynamic_ntk_at_eight_times_the_length(alpha: float, scale: float) -> None:
    found = speeds(extended("dynamic_ntk", alpha=alpha), 8 * 24)
    assert_close(found, speeds(extended("ntk", scale=scale)).tolist())


def test_dynamic_ntk_reads_the_length_of_the_whole_sequence_alone() -> None:
    """Not the ids at hand, nor what was evaluated before; nothing changes up to train_length."""
    position, trained = extended("dynamic_ntk"), build("rope")
    q, k, _ = (x.detach() for x in random_qkv(96))
    ids, whole = torch.arange(96)[None], Site(LAYER, range(4), 96)
    before = position.rotate(q, k, ids, whole)
    for length in (1, 23, 24):
        assert torch.equal(turned(position, length)[0], turned(trained, length)[0])
    assert not torch.equal(turned(position, 25)[0], turned(trained, 25)[0])
    assert torch.equal(position.rotate(q, k, ids, whole)[0], before[0])
    part = slice(0, 24)
    shard = position.rotate(q[:, :, part], k[:, :, part], ids[:, part], whole)
    assert torch.equal(shard[1], before[1][:, :, part])


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("yarn", 0.1 * math.log(4.0) + 1.0),
        ("longrope", math.sqrt(1.0 + math.log(4.0) / math.log(24.0))),
        ("ntk_by_parts", 1.0),
    ],
)
def test_scores_are_multiplied_by_the_square_of_the_temperature(name: str, size: float) -> None:
    """q and k once each, which a turn alone would leave as long as they were."""
    q, k, _ = random_qkv(96)
    for before, after in zip((q, k), turned(extended(name)), strict=True):
        ratio = after.norm(dim=-1) / before.norm(dim=-1)
        assert (ratio - size).abs().max() < 1e-5


def test_longrope_with_one_factor_for_all_is_interpolation() -> None:
    plain: dict[str, Any] = {"scale": 4.0, "factors": [4.0], "unscaled_tokens": 0}
    size = math.sqrt(1.0 + math.log(4.0) / math.log(24.0))
    squeezed = turned(extended("interpolation", scale=4.0))
    for one, other in zip(turned(extended("longrope", **plain)), squeezed, strict=True):
        assert (one - size * other).abs().max() < 1e-5
    assert torch.equal(
        turned(extended("longrope", **plain))[0],
        turned(extended("longrope", **{**plain, "factors": [4.0] * 4}))[0],
    )


def test_longrope_divides_every_pair_by_its_own_and_leaves_the_first_tokens() -> None:
    factors = [1.0, 1.5, 3.0, 5.0]
    position = extended("longrope", factors=factors, unscaled_tokens=5)
    assert_close(speeds(position), [10.0**-t / factors[t] for t in range(4)])
    found = position.angles(torch.arange(9)[None], Site(LAYER, range(4), 9))[0, 0]
    for i in range(9):
        by = [1.0] * 4 if i < 5 else factors
        assert_close(found[i], [i * 10.0**-t / by[t] for t in range(4)])


@pytest.mark.parametrize(("encoding", "chosen"), TURNED)
def test_an_adjusted_base_is_the_encoding_with_that_base(
    encoding: str, chosen: dict[str, Any]
) -> None:
    found = extended("adjusted_base", build(encoding, **chosen), base=500000.0)
    assert torch.equal(turned(found)[1], turned(build(encoding, base=500000.0, **chosen))[1])


@pytest.mark.parametrize(
    ("width", "trained", "critical"),
    [(128, 4096, 92), (128, 2048, 82), (64, 512, 32), (64, 1024, 36)],
)
def test_so_many_dimensions_turn_at_least_once_in_training(
    width: int, trained: int, critical: int
) -> None:
    """The critical dimension of Liu et al. 2023, 2 ceil(d/2 log_b(L / 2 pi))."""
    assert 2 * int((math.tau / speeds(rope(width, trained)) <= trained).sum()) == critical


def test_what_does_not_turn_is_not_made_to() -> None:
    for name in RESCALINGS:
        found = speeds(extended(name, build("partial_rope", share=0.5)), 96)
        assert bool((found[:2] > 0.0).all()) and not found[2:].any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "interpolation", "scale": 0.5}, "extension.scale=0.5: must be 1 to 1e6"),
        ({"name": "ntk", "scale": math.nan}, "extension.scale=nan: must be 1 to 1e6"),
        ({"name": "ntk_by_parts", "scale": math.inf}, "extension.scale=inf"),
        ({"name": "yarn", "scale": 0.0}, "extension.scale=0.0"),
        ({"name": "longrope", "scale": 0.0}, "extension.scale=0.0"),
        ({"name": "llama3", "factor": 0.9}, "extension.factor=0.9: must be 1 to 1e6"),
        ({"name": "dynamic_ntk", "alpha": -1.0}, "extension.alpha=-1.0: must be 0 to 1e6"),
        ({"name": "dynamic_ntk", "scale": 2.0}, "extension.scale: not used by 'dynamic_ntk'"),
        ({"name": "ntk_by_parts", "alpha": 32.0}, "alpha=32.0, beta=32.0: must be above 0"),
        ({"name": "yarn", "alpha": 0.0}, "alpha=0.0, beta=32.0: must be above 0"),
        ({"name": "yarn", "form": "print"}, "extension.form='print': must be one of code, paper"),
        ({"name": "llama3", "high": 0.5}, "low=1.0, high=0.5: must be above 0"),
        ({"name": "longrope", "factors": [1.0, 2.0]}, "extension.factors: 2 for 4 pairs; give one"),
        ({"name": "longrope", "scale": 8.0}, r"extension.factors: 1 for 4 pairs; .*or \[8.0\]"),
        ({"name": "longrope", "factors": [1.0, 1.0, 0.0, 2.0]}, "factors: 0.0 must be a number"),
        ({"name": "longrope", "unscaled_tokens": -1}, "extension.unscaled_tokens=-1"),
        ({"name": "adjusted_base", "base": 1.0}, "extension.base=1.0: must be above 1"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        registry.extended(build("rope"), "rope", settings)
