"""What changes attention under any encoding: against slow loops, and its invariants."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from pipeline.config.schema import ModelConfig
from pipeline.errors import ConfigError
from pipeline.model.block import Attention
from pipeline.model.decoder import Decoder
from pipeline.model.exchange import Exchange
from pipeline.model.modifiers import Modifiers, attention_mask
from pipeline.positions.base import Position, Site
from tests.distributed.toy import toy_config
from tests.oracles import modifiers as oracle
from tests.oracles import positions as encodings
from tests.oracles.attention import Score, plain_score
from tests.positions.cases import LAYER, SHAPE, build, check_gradients, encoding, named

LENGTH = 13
BLOCKWISE = {"attention_mask": "blockwise", "mask_tokens": 3}
SHIFTED = {"attention_mask": "shifted_groups", "mask_tokens": 4}
MODIFIERS: list[dict[str, Any]] = [
    {"score_scale": "log_n"},
    {"score_scale": "ssmax"},
    {"qk_norm": "key"},
    {"qk_norm": "cosine"},
    {"qk_bias": True},
    {"qk_norm": "cosine", "score_scale": "log_n"},
    {"score_scale": "log_n", "attention_window": 7},
    BLOCKWISE,
    SHIFTED,
    {"qk_norm": "key", "score_scale": "log_n", **SHIFTED},
    {"qk_norm": "cosine", "score_scale": "ssmax", "qk_bias": True},
    {"score_scale": "ssmax", "attention_window": 7, **BLOCKWISE},
]
every_modifier = pytest.mark.parametrize("chosen", MODIFIERS, ids=named)


def model_of(**chosen: Any) -> ModelConfig:
    return ModelConfig(width=32, layers=2, heads=4, mlp_width=48, **chosen)


def layer_of(**chosen: Any) -> Attention:
    """With every parameter far from where training starts; those of all layers are the same."""
    torch.manual_seed(5)
    layer = Attention(model_of(**chosen), LAYER, SHAPE.train_length)
    with torch.no_grad():
        for name, parameter in sorted(layer.named_parameters()):
            # `gain` draws before `modifiers`, and so the same whatever there is of these
            if name not in ("out", "qkv"):
                parameter.add_(torch.randn(parameter.shape), alpha=0.4)
    return layer


def run(layer: Attention, position: Position, x: Tensor) -> Tensor:
    out: Tensor = layer(x, torch.arange(x.shape[1])[None], position, Exchange(), True)
    return out


def inputs(length: int = LENGTH) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(6)
    x, pull = torch.randn(2, 2, length, 32, generator=draw)
    return x, pull


def score_of(name: str, position: Position) -> Score:
    own = encoding(position, name, LENGTH)
    return encodings.SCORES[name](own) if name in encodings.SCORES else plain_score


@every_modifier
@pytest.mark.parametrize("name", ["none", "rope", "alibi"])
def test_attention_equals_the_papers_in_loops(name: str, chosen: dict[str, Any]) -> None:
    layer, position = layer_of(**chosen), build(name)
    x, pull = inputs()
    xs, xd = x.clone().requires_grad_(), x.double().requires_grad_()
    out = run(layer, position, xs)
    leaves = {n: p.detach().double().requires_grad_() for n, p in layer.named_parameters()}
    learned: dict[str, Any] = {
        n.removeprefix("modifiers."): p if n.endswith("factor") else p.view(4, 8)
        for n, p in leaves.items()
        if n.startswith("modifiers.")
    }
    settings = {k: v for k, v in chosen.items() if k not in ("qk_bias", "attention_window")}
    own = oracle.Modified(4, 24, window=layer.window, **settings, **learned)
    expected = oracle.layer(xd, leaves, 4, own.score(score_of(name, position)))
    assert (out - expected).abs().max() <= 1e-5 * expected.abs().max()
    (out * pull).sum().backward()
    (expected * pull.double()).sum().backward()
    pairs = [(p.grad, leaves[n].grad) for n, p in layer.named_parameters()]
    check_gradients([(xs.grad, xd.grad), *pairs])
    without = run(layer_of(), position, x)
    assert (without - out).abs().max() > 1e-2, "the modifier must matter"


def modified(
    q: Tensor, k: Tensor, heads: range = range(4), tokens: slice = slice(None), **chosen: Any
) -> tuple[Tensor, Tensor]:
    """q, k as `Modifiers` leaves them, of sequences of 30 tokens, scale 1/sqrt(8)."""
    own = Modifiers(model_of(**chosen), SHAPE.train_length)
    with torch.no_grad():
        for parameter in own.parameters():
            parameter.copy_(torch.arange(1.0, parameter.numel() + 1).sin())
    found: tuple[Tensor, Tensor] = own(q, k, Site(LAYER, heads, 30, tokens), 8**-0.5)
    return found


def qk() -> tuple[Tensor, Tensor]:
    q, k = torch.randn(2, 2, 4, 30, 8, generator=torch.Generator().manual_seed(7))
    return q, k


def test_log_n_is_one_at_the_train_length_and_never_zero() -> None:
    q, k = qk()
    scaled, same = modified(q, k, score_scale="log_n")
    assert same is k
    assert torch.equal(scaled[:, :, SHAPE.train_length - 1], q[:, :, SHAPE.train_length - 1])
    factors = (scaled / q)[0, 0, :, 0].double()
    assert factors[0] == pytest.approx(math.log(2) / math.log(24))
    assert factors[29] == pytest.approx(math.log(30) / math.log(24)) and factors[29] > 1.0


def test_ssmax_starts_where_log_n_is() -> None:
    q, k = qk()
    site = Site(LAYER, range(4), 30)
    starts = [
        Modifiers(model_of(score_scale=kind), SHAPE.train_length)(q, k, site, 1.0)[0]
        for kind in ("ssmax", "log_n")
    ]
    assert (starts[0] - starts[1]).abs().max() <= 1e-6 * starts[1].abs().max()


def test_key_norm_does_not_see_the_length_of_keys() -> None:
    q, k = qk()
    longer = 0.1 + torch.rand(2, 4, 30, 1) * 100.0
    one, other = (modified(q, x, qk_norm="key") for x in (k, k * longer))
    assert (one[1] - other[1]).abs().max() < 1e-6
    assert torch.equal(one[0], other[0])
    products = (one[0] @ one[1].mT) * 8**-0.5
    assert (products - q @ (k / k.norm(dim=-1, keepdim=True)).mT).abs().max() < 1e-4


def test_cosine_is_bounded_by_its_factor() -> None:
    q, _ = qk()
    bound = 4.0 * math.log(SHAPE.train_length / 2)
    queries, keys = modified(q * 1000.0, q, qk_norm="cosine")
    products = queries @ keys.mT * 8**-0.5
    assert products.abs().max() <= bound * (1.0 + 1e-6)
    assert (products.diagonal(dim1=-2, dim2=-1) - bound).abs().max() <= 1e-6 * bound


def test_a_zero_vector_has_a_finite_gradient_under_a_norm() -> None:
    for kind in ("key", "cosine"):
        zero = torch.zeros(2, 4, 30, 8, requires_grad=True)
        queries, keys = modified(zero, zero, qk_norm=kind)
        (queries.sum() + keys.sum()).backward()
        assert zero.grad is not None and bool(zero.grad.isfinite().all())


def test_a_key_bias_is_visible_with_a_rotation_alone() -> None:
    x, pull = inputs()
    for name, visible in (("none", False), ("rope", True)):
        layer, position = layer_of(qk_bias=True), build(name)
        before = run(layer, position, x)
        (before * pull).sum().backward()
        own, other = layer.modifiers.key_bias, layer.modifiers.query_bias
        assert isinstance(own, Tensor) and own.grad is not None
        assert isinstance(other, Tensor) and other.grad is not None
        assert (own.grad.norm() > 1e-3 * other.grad.norm()) == visible
        with torch.no_grad():
            own.mul_(3.0)
            moved = (run(layer, position, x) - before).abs().max()
            assert (moved > 1e-2) == visible and (visible or moved < 1e-5)
            other.mul_(3.0)
            assert (run(layer, position, x) - before).abs().max() > 1e-2


@every_modifier
def test_head_slices_tile_the_whole(chosen: dict[str, Any]) -> None:
    q, k = qk()
    whole = modified(q, k, **chosen)
    for heads in (range(0, 1), range(2, 4)):
        own = slice(heads.start, heads.stop)
        part = modified(q[:, own], k[:, own], heads, **chosen)
        assert all(torch.equal(a[:, own], b) for a, b in zip(whole, part, strict=True))
    mask = attention_mask(model_of(**chosen), range(4), True)
    held = attention_mask(model_of(**chosen), range(2, 4), True)
    if mask is not None and held is not None:
        ids = torch.arange(30)
        assert torch.equal(mask(ids, ids).expand(4, -1, -1)[2:], held(ids, ids).expand(2, -1, -1))


@every_modifier
def test_token_stripes_tile_the_whole(chosen: dict[str, Any]) -> None:
    q, k = qk()
    whole = modified(q, k, **chosen)
    for stripe in (slice(0, None, 2), slice(1, None, 2)):
        part = modified(q[:, :, stripe], k[:, :, stripe], tokens=stripe, **chosen)
        assert all(torch.equal(a[:, :, stripe], b) for a, b in zip(whole, part, strict=True))


@every_modifier
def test_bf16_is_rounded_once(chosen: dict[str, Any]) -> None:
    q, k = (x.bfloat16() for x in qk())
    exact = modified(q.float(), k.float(), **chosen)
    for wide, narrow in zip(exact, modified(q, k, **chosen), strict=True):
        assert narrow.dtype == torch.bfloat16 and torch.equal(wide.bfloat16(), narrow)


@every_modifier
@pytest.mark.parametrize("name", ["rope", "alibi"])
def test_causality_is_exact(name: str, chosen: dict[str, Any]) -> None:
    """No token changes what is before it, in training mode, where all masks hold."""
    config = toy_config(name)
    for key, value in chosen.items():
        setattr(config.model, key, value)
    decoder = Decoder(config).train()
    tokens = torch.randint(0, 50, (1, 20), generator=torch.Generator().manual_seed(1))
    changed = tokens.clone()
    changed[0, 12] = (changed[0, 12] + 1) % 50
    ids = torch.arange(20)[None]
    with torch.no_grad():
        before, after = (decoder.hidden(x, ids, Exchange()) for x in (tokens, changed))
    assert torch.equal(before[:, :12], after[:, :12])
    assert not torch.equal(before[:, 13:], after[:, 13:])


def test_shifted_groups_never_look_ahead_nor_into_another_group() -> None:
    """Rolled around, 24 tokens in groups of 8 would show the first 4 the last 4."""
    ids = torch.arange(24)
    mask = attention_mask(model_of(attention_mask="shifted_groups", mask_tokens=8), range(4), True)
    assert mask is not None
    for head, first in ((0, 8), (1, 8), (2, 4), (3, 4)):
        allowed = mask(ids, ids)[head].tril()
        groups = torch.bucketize(ids, torch.arange(first, 24, 8), right=True)
        assert torch.equal(allowed, (groups[:, None] == groups).tril())


def test_a_group_as_long_as_the_sequence_is_full_attention_in_the_unshifted_heads() -> None:
    position, ids = build("rope"), torch.arange(LENGTH)
    layer = layer_of(attention_mask="shifted_groups", mask_tokens=LENGTH + 1, attention_path="tile")
    mask = layer.mask(range(4), True)
    assert mask is not None
    full = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    allowed = mask(ids, ids).tril()
    assert torch.equal(allowed[:2], full.expand(2, -1, -1)) and not torch.equal(allowed[2], full)
    x, _ = inputs()
    with torch.no_grad():
        layer.out.copy_(torch.eye(32))
        grouped, whole = run(layer.train(), position, x), run(layer.eval(), position, x)
    assert torch.equal(grouped[..., :16], whole[..., :16])
    assert (grouped - whole)[..., 16:].abs().max() > 1e-2


def test_only_training_groups_its_tokens() -> None:
    x, _ = inputs()
    position = build("rope")
    plain = run(layer_of(), position, x)
    grouped, blockwise = layer_of(**SHIFTED), layer_of(**BLOCKWISE)
    assert (run(grouped, position, x) - plain).abs().max() > 1e-2
    assert torch.equal(run(grouped.eval(), position, x), plain)
    assert torch.equal(run(blockwise.eval(), position, x), run(blockwise.train(), position, x))


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("none", "no_position_every"),
        ("none", "drop_position_after"),
        ("learned", "no_position_every"),
        ("sinusoidal", "drop_position_after"),
    ],
)
def test_an_encoding_that_does_not_act_in_attention_cannot_be_left_out_there(
    name: str, key: str
) -> None:
    config = toy_config(name)
    setattr(config.model, key, 2)
    with pytest.raises(ConfigError, match=f"model.{key}=2 has no effect with position={name}"):
        Decoder(config)
