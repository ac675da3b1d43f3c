"""Constants printed in the papers or measured in the authors' code."""

import pytest
import torch

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
    table = position.distance_table(Site(0, range(1, 3), 200), torch.device("cpu"))
    assert table is not None and table.shape == (2, 200)
    own = dict(position.named_parameters())["table"]
    for distance, bucket in ((0, 0), (15, 15), (18, 16), (19, 17), (112, 30), (113, 31), (199, 31)):
        assert torch.equal(table[:, distance], own[bucket, 1:3])


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
    ],
)
def test_bad_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        registry.build(settings, SHAPE)
