"""Other implementations of the same encodings: transformers and x-transformers.

Both compute speeds and angles in fp32, here fp64; agreement is to a few roundings of fp32, and
positions are short enough for their angles.
"""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.gpt_neox.modeling_gpt_neox import apply_rotary_pos_emb as neox_turned
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb
from x_transformers.x_transformers import (
    AlibiPositionalBias,
    PolarEmbedding,
    RelativePositionBias,
    RotaryEmbedding,
    apply_polar_pos_emb,
)
from x_transformers.x_transformers import apply_rotary_pos_emb as x_turned

from pipeline.positions import registry
from pipeline.positions.alibi import slopes
from pipeline.positions.base import Site
from pipeline.positions.t5 import T5Position
from tests.positions.cases import LAYER, SHAPE, build, random_qkv
from tests.positions.turning import extended, rope, speeds

LENGTH = 96
SITE = Site(LAYER, range(4), LENGTH)
IDS = torch.arange(LENGTH)[None]
# rounding of fp32, a few times over
CLOSE = 3e-6


def llama(
    width: int, trained: int, base: float = 10000.0, longest: int | None = None, **rescaling: Any
) -> LlamaConfig:
    """A model with one head of this width, trained on so many tokens."""
    return LlamaConfig(
        hidden_size=width,
        num_attention_heads=1,
        max_position_embeddings=longest or trained,
        rope_parameters={"rope_theta": base, **rescaling},
    )


def theirs(kind: str, config: LlamaConfig, length: int | None = None) -> tuple[list[float], float]:
    """Inverse frequencies and attention factor of transformers."""
    found, factor = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"), seq_len=length)
    return found.tolist(), factor


def products(q: Tensor, k: Tensor) -> Tensor:
    """Of every query with what it may see."""
    return (q.double() @ k.double().mT).tril()


def test_rope_in_halves_is_that_of_llama() -> None:
    """The layout of transformers; the one of the paper gives other scores from the same q and k."""
    q, k, v = (x.detach() for x in random_qkv(LENGTH))
    cos, sin = LlamaRotaryEmbedding(llama(8, 24, rope_type="default"))(v, IDS)
    pairs = apply_rotary_pos_emb(q, k, cos, sin)
    ours = build("rope", layout="halves").rotate(q, k, IDS, SITE)
    for one, other in zip(ours, pairs, strict=True):
        assert (one - other).abs().max() < 2e-5
    paper = build("rope").rotate(q, k, IDS, SITE)
    assert (products(*paper) - products(*pairs)).abs().max() > 1.0


def test_partial_rope_is_the_rotary_pct_of_neox() -> None:
    """GPT-NeoX pairs in halves, of the dimensions that turn; partial_rope side by side."""
    q, k, _ = (x.detach() for x in random_qkv(LENGTH))
    config = llama(8, 24, rope_type="linear", factor=1.0, partial_rotary_factor=0.5)
    inverse, _ = theirs("linear", config)
    angles = (IDS[..., None] * torch.tensor(inverse)).repeat(1, 1, 2)
    pairs = neox_turned(q, k, angles.cos(), angles.sin())
    position = build("partial_rope", form="partial", share=0.5)
    assert speeds(position).tolist() == pytest.approx(inverse, rel=1e-6)
    order = torch.tensor([0, 2, 1, 3, 4, 5, 6, 7])
    ours = position.rotate(q[..., order], k[..., order], IDS, SITE)
    for one, other in zip(ours, pairs, strict=True):
        assert (one - other[..., order]).abs().max() < 2e-5


@pytest.mark.parametrize(("width", "trained"), [(128, 4096), (64, 1024), (64, 512)])
@pytest.mark.parametrize(
    ("name", "chosen", "kind", "rescaling"),
    [
        ("interpolation", {"scale": 8.0}, "linear", {"factor": 8.0}),
        ("yarn", {"scale": 8.0}, "yarn", {"factor": 8.0}),
        ("yarn", {"scale": 32.0}, "yarn", {"factor": 32.0}),
        ("yarn", {"scale": 4.0, "alpha": 2.0, "beta": 16.0}, "yarn",
         {"factor": 4.0, "beta_slow": 2, "beta_fast": 16}),
        ("llama3", {}, "llama3", {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}),
        ("llama3", {"factor": 32.0, "low": 0.5, "high": 6.0}, "llama3",
         {"factor": 32.0, "low_freq_factor": 0.5, "high_freq_factor": 6.0}),
    ],
)  # fmt: skip
def test_rescalings_are_those_of_transformers(
    width: int,
    trained: int,
    name: str,
    chosen: dict[str, Any],
    kind: str,
    rescaling: dict[str, Any],
) -> None:
    """Speeds, and what q and k are multiplied by. Theirs of YaRN also takes `mscale`, a temperature
    of later models; the paper has none, and neither has ours."""
    rescaling = {"original_max_position_embeddings": trained, **rescaling}
    inverse, factor = theirs(kind, llama(width, trained, rope_type=kind, **rescaling))
    position = extended(name, rope(width, trained), **chosen)
    assert speeds(position).tolist() == pytest.approx(inverse, rel=CLOSE)
    assert position.magnitude(trained) == pytest.approx(factor, rel=1e-12)


@pytest.mark.parametrize("alpha", [1.0, 4.0])
@pytest.mark.parametrize("length", [256, 512, 513, 1024, 4096])
def test_dynamic_ntk_is_that_of_transformers_at_each_length(alpha: float, length: int) -> None:
    """Their factor is alpha."""
    config = llama(64, 512, rope_type="dynamic", factor=alpha)
    inverse, factor = theirs("dynamic", config, length)
    position = extended("dynamic_ntk", rope(64, 512), alpha=alpha)
    assert speeds(position, length).tolist() == pytest.approx(inverse, rel=CLOSE)
    assert position.magnitude(length) == factor == 1.0


def test_dynamic_ntk_forgets_longer_sequences_where_transformers_does_not() -> None:
    """A difference that is meant: after a long sequence theirs keeps its speeds for one as short as
    the training length, so that results depend on the order of evaluation."""
    module = LlamaRotaryEmbedding(llama(64, 64, rope_type="dynamic", factor=2.0))
    position = extended("dynamic_ntk", rope(64, 64), alpha=2.0)
    x, kept, ours = torch.zeros(1, 1, 64), [], []
    for length in (64, 256, 64):
        kept.append(module(x, torch.arange(length)[None])[0][:, :64])
        ours.append(speeds(position, length))
    assert (kept[0] - kept[2]).abs().max() > 1.0
    assert torch.equal(ours[0], ours[2]) and not torch.equal(ours[0], ours[1])
    assert torch.equal(ours[0], speeds(rope(64, 64)))


def test_longrope_is_that_of_transformers_beyond_the_trained_length() -> None:
    """A difference that is meant: theirs has two lists and takes the short one up to the trained
    length; here one list is tested at a time, and the first tokens can be left as they were, which
    theirs cannot."""
    long, short = [1.0 + t / 8 for t in range(32)], [1.0 + t / 99 for t in range(32)]
    config = llama(
        64,
        512,
        rope_type="longrope",
        factor=4.0,
        long_factor=long,
        short_factor=short,
        original_max_position_embeddings=512,
    )
    for length, factors in ((2048, long), (512, short)):
        inverse, factor = theirs("longrope", config, length)
        position = extended("longrope", rope(64, 512), scale=4.0, factors=factors)
        assert speeds(position, length).tolist() == pytest.approx(inverse, rel=CLOSE)
        assert position.magnitude(length) == pytest.approx(factor, rel=1e-12)


def test_ntk_is_the_base_rescaling_of_x_transformers() -> None:
    inverse = RotaryEmbedding(64, base_rescale_factor=8.0).inv_freq.tolist()
    found = speeds(extended("ntk", rope(64, 512), scale=8.0))
    assert found.tolist() == pytest.approx(inverse, rel=CLOSE)


@pytest.mark.parametrize("heads", [1, 4, 6, 8, 12, 20])
def test_slopes_of_alibi_are_those_of_x_transformers(heads: int) -> None:
    theirs = AlibiPositionalBias(heads).slopes.flatten().tolist()
    assert slopes(heads) == pytest.approx(theirs, rel=1e-6)


@pytest.mark.parametrize(("buckets", "longest"), [(32, 128), (32, 1024), (64, 512), (8, 20)])
def test_buckets_of_t5_are_those_of_x_transformers(buckets: int, longest: int) -> None:
    """But where the logarithm is a whole number: theirs, in fp32, may stay one bucket below."""
    position = registry.build({"name": "t5", "buckets": buckets, "max_distance": longest}, SHAPE)
    assert isinstance(position, T5Position)
    distances = torch.arange(3000)
    found = RelativePositionBias._relative_position_bucket(
        -distances, causal=True, num_buckets=buckets, max_distance=longest
    )
    ours = position.bucket(distances)
    other = (ours != found).nonzero().flatten().tolist()
    assert set(other) <= set(position.edges)
    assert all(ours[n] == found[n] + 1 for n in other)


def test_scores_of_xpos_are_those_of_x_transformers() -> None:
    """Theirs is centred on the positions at hand, ours on the middle of the whole sequence: the
    same for one rank, and the scores are the same for any centre."""
    q, k, _ = (x.detach() for x in random_qkv(LENGTH))
    angles, size = RotaryEmbedding(8, use_xpos=True, scale_base=64)(IDS[0])
    expected = products(x_turned(q, angles, size), x_turned(k, angles, size**-1))
    for length in (LENGTH, 700):
        site = Site(LAYER, range(4), length)
        ours = products(*build("xpos", scale_base=64.0).rotate(q, k, IDS, site))
        assert (ours - expected).abs().max() < 5e-5


def test_scores_of_pope_are_those_of_x_transformers() -> None:
    """Theirs puts all cosines before all sines, which no product sees."""
    q, k, _ = (x.detach() for x in random_qkv(LENGTH))
    position, module = build("pope"), PolarEmbedding(8, 4)
    with torch.no_grad():
        module.learned_bias.copy_(position.get_parameter("phase")[LAYER, :, None])
        angles, phase = module(IDS[0])
        expected = products(apply_polar_pos_emb(q, angles), apply_polar_pos_emb(k, angles + phase))
        assert (products(*position.rotate(q, k, IDS, SITE)) - expected).abs().max() < 1e-4
