"""Constants printed in the papers or measured in the authors' code."""

import pytest
import torch
from torch import Tensor

from pipeline.errors import ConfigError
from pipeline.positions import registry
from pipeline.positions.alibi import slopes
from pipeline.positions.base import Shape, Site
from pipeline.positions.t5 import bucket_edges
from tests.oracles.positions import alibi_slope, t5_bucket

SHAPE = Shape(width=32, layers=2, heads=4, train_length=24)


def test_alibi_slopes_of_8_and_12_heads() -> None:
    assert slopes(8) == [2.0**-n for n in range(1, 9)]
    more = [0.7071, 0.3536, 0.1768, 0.0884]
    assert slopes(12)[:8] == slopes(8)
    assert slopes(12)[8:] == pytest.approx(more, abs=5e-5)


@pytest.mark.parametrize("heads", [1, 2, 3, 5, 6, 7, 8, 12, 16, 20, 48])
def test_alibi_slopes_follow_the_authors_recursion(heads: int) -> None:
    assert slopes(heads) == pytest.approx([alibi_slope(heads, h) for h in range(heads)], rel=1e-12)


def test_t5_bucket_edges() -> None:
    assert bucket_edges(32, 128) == [
        16,
        19,
        21,
        24,
        27,
        31,
        35,
        40,
        46,
        52,
        59,
        67,
        77,
        87,
        99,
        113,
    ]
    last = {(32, 256): 216, (64, 512): 470, (32, 1024): 790, (128, 2048): 1941, (16, 64): 50}
    for (buckets, max_distance), edge in last.items():
        assert bucket_edges(buckets, max_distance)[-1] == edge


@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (32, 1024), (16, 64), (2, 9)])
def test_t5_buckets_equal_the_logarithm(buckets: int, max_distance: int) -> None:
    settings = {"name": "t5", "buckets": buckets, "max_distance": max_distance}
    position = registry.build(settings, SHAPE)
    distances = torch.arange(3000)
    expected = [t5_bucket(n, buckets, max_distance) for n in range(3000)]
    assert position.bucket(distances).tolist() == expected  # type: ignore[operator]


def test_t5_bias_at_known_distances() -> None:
    position = registry.build({"name": "t5"}, SHAPE)
    q = torch.zeros(1, 2, 200, 8)
    scores = position.scores(q, q, torch.arange(200)[None], Site(0, range(1, 3), 200))
    table, own = scores.table, dict(position.named_parameters())["table"]
    # it ends with the first distance of the last bucket
    assert table is not None and table.shape == (2, 114) and scores.constant_from == 113
    for distance, bucket in ((0, 0), (15, 15), (18, 16), (19, 17), (112, 30), (113, 31)):
        assert torch.equal(table[:, distance], own[bucket, 1:3])
    last = position.bias(torch.tensor([199]), torch.tensor([0, 86, 87]), Site(0, range(1, 3), 200))
    assert last is not None
    assert torch.equal(last[:, 0], own[[31, 31, 30], 1:3].T)


def test_fire_starts_as_the_authors_code_does() -> None:
    """c = 0.1, multiplier 1, `torch.nn.Linear` spreads, L = 512 for 2048 tokens."""
    torch.manual_seed(0)
    position = registry.build({"name": "fire"}, Shape(512, 100, 8, 2048))
    own = dict(position.named_parameters())
    assert bool((own["c"] == 0.1).all()) and bool((own["m"] == 1.0).all())
    for name, spread in {"w1": 1.0, "b1": 1.0, "w2": 32**-0.5, "b2": 32**-0.5}.items():
        assert own[name].abs().max().item() == pytest.approx(spread, rel=0.01)
        assert own[name].std().item() == pytest.approx(spread / 3**0.5, rel=0.05)

    def row(i: int) -> Tensor:
        found = position.bias(torch.tensor([i]), i - torch.arange(300), Site(3, range(8), 2048))
        assert found is not None
        return found

    assert torch.equal(row(400), row(512)), "rows up to L are a function of the distance"
    assert (row(512) - row(513)).abs().max() > 1e-6, "later rows are not"
    # distance 0 is x = 0
    start = own["w2"][3] @ own["b1"][3].relu() + own["b2"][3]
    assert (row(700)[:, 0, 0] - start).abs().max() < 1e-6


def test_fire_reaches_one_at_the_far_end_of_late_rows() -> None:
    """x of the first key is 1 once i >= L, so that all far ends get the same bias."""
    position = registry.build({"name": "fire"}, SHAPE)
    first = torch.tensor([0])
    ends = [position.bias(torch.tensor([i]), first, Site(0, range(4), 9999)) for i in (24, 9998)]
    assert ends[0] is not None and ends[1] is not None
    assert (ends[0] - ends[1]).abs().max() < 1e-5


def test_fire_takes_the_sizes_of_its_rate_and_threshold() -> None:
    position = registry.build({"name": "fire"}, SHAPE)
    ids, site = torch.arange(40), Site(0, range(4), 40)
    before = position.bias(ids, ids, site)
    for own, parameter in position.named_parameters():
        if own in ("c", "m"):
            parameter.data.neg_()
    after = position.bias(ids, ids, site)
    assert before is not None and after is not None and torch.equal(before, after)


def test_shaw_starts_glorot_uniform_over_the_whole_table() -> None:
    torch.manual_seed(0)
    position = registry.build({"name": "shaw"}, Shape(512, 40, 8, 24))
    spread = (6.0 / (2 * 16 + 1 + 64)) ** 0.5
    for parameter in position.parameters():
        assert parameter.shape == (40, 17, 64)
        assert parameter.abs().max().item() == pytest.approx(spread, rel=0.01)
        assert parameter.std().item() == pytest.approx(spread / 3**0.5, rel=0.02)


@pytest.mark.parametrize(("width", "size"), [("model", 512), ("head", 64)])
def test_transformer_xl_starts_as_the_authors_code_does(width: str, size: int) -> None:
    torch.manual_seed(0)
    position = registry.build(
        {"name": "transformer_xl", "relative_width": width}, Shape(512, 3, 8, 24)
    )
    own = dict(position.named_parameters())
    assert own["projection"].shape == (3, 8, 64, size)
    assert own["content_bias"].shape == own["position_bias"].shape == (8, 64)
    for parameter in own.values():
        assert parameter.std().item() == pytest.approx(0.02, rel=0.1)


def test_transformer_xl_waves_stay_right_far_away() -> None:
    """As a table by distance, and as columns of queries and keys."""
    far = 65_001
    for width, size in (("model", 32), ("head", 8)):
        position = registry.build({"name": "transformer_xl", "relative_width": width}, SHAPE)
        own = dict(position.named_parameters())
        angles = far * 10000.0 ** (-2.0 * torch.arange(size // 2, dtype=torch.float64) / size)
        waves = torch.cat([angles.sin(), angles.cos()])
        site, q = Site(0, range(4), far + 1), torch.zeros(1, 4, 1, 8)
        if width == "model":
            found = position.relative_keys(q, site)
            assert found is not None
            row = found[1][:, far].double()
            expected = own["projection"][0].double() @ waves
            assert (row - expected).abs().max() <= 1e-6 * expected.abs().max()
        else:
            _, k = position.rotate(q, q, torch.tensor([[far]]), site)
            assert (k[0, 0, 0, 8:] - waves.view(2, 4).flip(0).flatten()).abs().max() < 1e-6


@pytest.mark.parametrize(("share", "window"), [(0.5, 12), (0.25, 6), (0.1, 2)])
def test_rerope_changes_branch_at_its_window(share: float, window: int) -> None:
    """The distance before the window is rope's, the window's own is already the constant."""
    position = registry.build({"name": "rerope", "window_share": share}, SHAPE)
    keys = 40 - torch.tensor([0, window - 1, window, window + 1, 40])
    assert position.select(torch.tensor([40]), keys).tolist() == [[0, 0, 1, 1, 1]]


def test_rope_angles_stay_right_far_away() -> None:
    """fp32 angles are off by 0.12 at position 262,144; fp64 ones are not."""
    position = registry.build({"name": "rope"}, SHAPE)
    q = torch.zeros(1, 1, 1, 8)
    q[..., 0::2] = 1.0
    far = 1_000_003
    turned, _ = position.rotate(q, q, torch.tensor([[far]]), Site(0, range(1), far + 1))
    angles = far * 10000.0 ** (-2.0 * torch.arange(4, dtype=torch.float64) / 8)
    expected = torch.stack([angles.cos(), angles.sin()], -1).flatten()
    assert (turned.flatten() - expected).abs().max() < 1e-6


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "ropee"}, "did you mean 'rope'"),
        ({"name": "rope", "base": 1.0}, "position.base=1.0"),
        ({"name": "alibi", "base": 2.0}, "position.base: not used by 'alibi'"),
        ({"name": "t5", "buckets": 7}, "position.buckets=7"),
        ({"name": "t5", "max_distance": 16}, "position.max_distance=16"),
        ({"name": "fire", "threshold_share": 0.0}, "position.threshold_share=0.0: must be above 0"),
        ({"name": "shaw", "clip": 0}, "position.clip=0: must be 1 to"),
        ({"name": "transformer_xl", "relative_width": "d"}, "must be one of model, head"),
        ({"name": "rerope", "window_share": 0.01}, "0 tokens of train_length=24; must give"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        registry.build(settings, SHAPE)
