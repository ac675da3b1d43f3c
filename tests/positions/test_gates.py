"""Forget gates, contexts and mixtures of heads: their limits and starts, and the way of gradients
through a whole decoder to the weights of gates."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from pipeline.errors import ConfigError
from pipeline.launch.checks import check_model
from pipeline.model.decoder import Decoder
from pipeline.positions import registry
from pipeline.positions.alibi import slopes
from pipeline.positions.base import Shape, Site
from tests.distributed.toy import scattered, toy_config
from tests.oracles.decoder import OracleDecoder
from tests.positions import test_paths
from tests.positions.cases import SHAPE, attend, build, check_gradients, named, random_qkv

GATED = ("fox", "cable")
SITE = Site(0, range(4), 40)


def gates_of(name: str, shares: list[float], length: int) -> Tensor:
    """Logits [1,4,S] under which every token lets through a constant share of the past."""
    kept = torch.tensor(shares, dtype=torch.float64)
    logits = torch.logit(kept) * (1.0 if name == "fox" else -1.0)
    return logits.float()[None, :, None].expand(1, -1, length)


@pytest.mark.parametrize("name", GATED)
def test_constant_gates_are_alibi(name: str) -> None:
    """A share f of what is one token further away is a slope of -ln f."""
    q, k, v = random_qkv(300)
    shares = [math.exp(-slope) for slope in slopes(4)]
    out = attend(build(name), q, k, v, gates=gates_of(name, shares, 300))
    assert (out - attend(build("alibi"), q, k, v)).abs().max() < 1e-5


@pytest.mark.parametrize("name", GATED)
def test_gates_that_forget_nothing_are_no_encoding(name: str) -> None:
    q, k, v = random_qkv(300)
    gates = torch.full((1, 4, 300), 40.0 if name == "fox" else -40.0)
    out = attend(build(name), q, k, v, gates=gates)
    assert (out - attend(build("none"), q, k, v)).abs().max() < 1e-6


@pytest.mark.parametrize("name", GATED)
def test_a_closed_gate_hides_what_is_before_it(name: str) -> None:
    """Log f_20 is -60, and every later query reads from token 20 on, as if the text began there."""
    q, k, v = random_qkv(40)
    gates = torch.full((1, 4, 40), 40.0)
    gates[..., 20] = -60.0
    out = attend(build(name), q, k, v, gates=gates if name == "fox" else -gates)
    q, k, v = (x[:, :, 20:] for x in (q, k, v))
    assert (out[:, :, 20:] - attend(build("none"), q, k, v)).abs().max() < 1e-6


@pytest.mark.parametrize("name", GATED)
def test_attention_reads_differences_of_large_sums(name: str) -> None:
    """A first gate of log f = -1e7 is in every sum, and in no difference of two."""
    q, k, v = random_qkv(300)
    gates = torch.randn(1, 4, 300, generator=torch.Generator().manual_seed(5))
    plain = attend(build(name), q, k, v, gates=gates)
    gates[..., 0] = -1e7 if name == "fox" else 1e7
    assert (attend(build(name), q, k, v, gates=gates) - plain).abs().max() < 1e-6


@pytest.mark.parametrize("name", GATED)
def test_decays_of_65536_tokens_are_exact(name: str) -> None:
    """Differences equal the sum written out, near and far, where fp32 sums are off by 1e-3."""
    length, sign = 65_536, 1.0 if name == "fox" else -1.0
    logits = torch.randn(1, 4, length, generator=torch.Generator().manual_seed(0))
    c = build(name).decay(logits, Site(0, range(4), length))
    assert c.dtype == torch.float64
    logs = [-math.log1p(math.exp(-sign * x)) for x in logits[0, 2].tolist()]
    coarse = torch.tensor(logs).cumsum(0)
    for i, j in ((1, 0), (65_535, 65_534), (65_535, 65_000), (40_000, 1), (65_535, 0)):
        exact = math.fsum(logs[j + 1 : i + 1])
        assert abs(float(c[0, 2, i] - c[0, 2, j]) - exact) < 1e-6
    assert abs(float(coarse[65_535] - coarse[65_534]) - logs[65_535]) > 1e-4


def test_cable_is_fox_with_weights_of_the_other_sign() -> None:
    x, logits = torch.randn(2, 9, 32), torch.randn(2, 4, 9)
    fox, cable = build("fox"), build("cable")
    with torch.no_grad():
        for own, other in zip(fox.parameters(), cable.parameters(), strict=True):
            other.copy_(-own)
    found = [p.gate_logits(lambda w: x @ w.T, 1) for p in (fox, cable)]
    assert found[0] is not None and found[1] is not None
    assert torch.equal(found[0], -found[1]) and found[0].shape == (2, 9, 4)
    assert torch.equal(fox.decay(logits, SITE), cable.decay(-logits, SITE))
    exact = -torch.log1p(logits.double().exp()).cumsum(-1)
    assert (cable.decay(logits, SITE) - exact).abs().max() < 1e-12


@pytest.mark.parametrize("name", GATED)
def test_gates_start_half_open(name: str) -> None:
    """w ~ N(0, 0.02), b = 0."""
    torch.manual_seed(0)
    own = dict(registry.build({"name": name}, Shape(512, 6, 8, 24)).named_parameters())
    assert not own["b"].any() and own["b"].shape == (6, 8)
    assert own["w"].shape == (6, 8, 512) and own["w"].std().item() == pytest.approx(0.02, rel=0.02)


class GatedOracle(OracleDecoder):
    """The decoder's oracle with gates of its own normalised stream; `fox` or `cable`."""

    def _block(self, x: Tensor, layer: int) -> Tensor:
        gain = self.w[f"blocks.{layer}.attention.gain"]
        normed = x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * gain
        logits = normed @ self.w["position.w"][layer].T + self.w["position.b"][layer]
        sign = 1.0 if self.name == "fox" else -1.0
        self.logs = -torch.log(1.0 + torch.exp(-sign * logits)).T
        return super()._block(x, layer)

    def _attention(self, q: Tensor, k: Tensor, v: Tensor, layer: int, normed: Tensor) -> Tensor:
        """q, k, v [H,S,d] -> [H,S,d]."""
        length = q.shape[1]
        between = torch.stack(
            [
                torch.stack([self.logs[:, j + 1 : i + 1].sum(-1) for j in range(length)], -1)
                for i in range(length)
            ],
            1,
        )
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + between
        ahead = torch.ones(length, length, dtype=torch.bool).triu(1)
        return scores.masked_fill(ahead, -math.inf).softmax(-1) @ v


@pytest.mark.parametrize("name", GATED)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_gradients_reach_the_weights_of_gates(name: str, checkpointing: bool) -> None:
    """Loss and all gradients of a decoder of two layers, w and b included, against fp64."""
    config = toy_config(name)
    model = replace(config.model, activation_checkpointing=checkpointing)
    decoder = scattered(Decoder(replace(config, model=model)))
    draw = torch.Generator().manual_seed(4)
    tokens, labels = torch.randint(0, config.data.vocab, (2, 3, 15), generator=draw)
    nats = decoder(tokens, labels, torch.arange(15)[None])
    nats.sum().backward()
    weights = dict(decoder.named_parameters())
    exact = GatedOracle(weights, name, {}, model.heads, model.layers, config.train_length)
    for weight in exact.w.values():
        weight.requires_grad_()
    expected = torch.stack([exact.nats(*row) for row in zip(tokens, labels, strict=True)])
    expected.sum().backward()
    assert (nats - expected).abs().max() < 1e-5
    assert {"position.w", "position.b"} <= exact.w.keys()
    check_gradients([(weights[n].grad, w.grad) for n, w in exact.w.items()])
    assert all(bool(weights[n].grad.all()) for n in ("position.w", "position.b"))  # type: ignore


VARIANTS: list[tuple[str, dict[str, Any], str]] = [
    # positions full after one key, and after some of 24
    ("cope", {"positions": 2}, "contextual"),
    ("cope", {"positions": 6}, "contextual"),
    ("dape", {"base": "alibi"}, "tile"),
]


@pytest.mark.parametrize(("name", "chosen", "path"), VARIANTS, ids=named)
def test_settings_equal_the_paper_in_loops(name: str, chosen: dict[str, Any], path: str) -> None:
    test_paths.test_attention_equals_the_paper_in_loops(name, chosen, path)


def test_cope_starts_as_no_encoding() -> None:
    q, k, v = random_qkv(300)
    position = registry.build({"name": "cope"}, SHAPE)
    table = next(position.parameters())
    assert table.shape == (2, 64, 8) and not table.any()
    assert (attend(position, q, k, v) - attend(build("none"), q, k, v)).abs().max() < 1e-6


def test_cope_has_its_own_vectors_in_every_layer() -> None:
    q, k, v = random_qkv(30)
    position = build("cope")
    before = attend(position, q, k, v)
    table = next(position.parameters())
    with torch.no_grad():
        table[0].zero_()
        assert torch.equal(attend(position, q, k, v), before)
        table[1].zero_()
    assert (attend(position, q, k, v) - before).abs().max() > 1e-2


@pytest.mark.parametrize("base", ["kerple", "alibi"])
def test_dape_without_its_network_is_its_base(base: str) -> None:
    q, k, v = random_qkv(300)
    dape, plain = build("dape", base=base), build(base)
    own = dict(dape.named_parameters())
    with torch.no_grad():
        own["w2"].zero_()
        own["b2"].zero_()
        for name, parameter in plain.named_parameters():
            parameter.copy_(own[name])
    assert (attend(dape, q, k, v) - attend(plain, q, k, v)).abs().max() < 1e-5


def test_dape_reads_all_heads() -> None:
    q, k, v = random_qkv(30)
    position = build("dape")
    before = attend(position, q, k, v)
    other = q.detach().clone()
    other[:, 0] += 1.0
    moved = (attend(position, other, k, v) - before).abs().amax((0, 2, 3))
    assert bool((moved > 1e-4).all())


def test_dape_starts_as_linear_layers_do() -> None:
    torch.manual_seed(0)
    own = dict(registry.build({"name": "dape"}, Shape(512, 200, 8, 24)).named_parameters())
    for name, width in {"w1": 16, "b1": 16, "w2": 32, "b2": 32}.items():
        assert own[name].abs().max().item() == pytest.approx(width**-0.5, rel=0.01)
        assert own[name].std().item() == pytest.approx((3 * width) ** -0.5, rel=0.05)
    # KERPLE's own start: r1 up to 2, r2 up to 1
    assert torch.nn.functional.softplus(own["raw_r1"]).max().item() == pytest.approx(2.0, rel=0.02)
    assert torch.nn.functional.softplus(own["raw_r2"]).max().item() == pytest.approx(1.0, rel=0.02)


def test_a_ring_cannot_be_asked_to_count() -> None:
    config = toy_config("cope", sequence_parallel=2, ring=2)
    with pytest.raises(ConfigError, match="needs all tokens of a sequence on one rank"):
        check_model(config)
    asked = replace(config, model=replace(config.model, attention_path="contextual"))
    with pytest.raises(ConfigError, match="'contextual' does not serve .* in a ring; use auto$"):
        check_model(asked)
    check_model(replace(asked, trainer=replace(asked.trainer, ring=1)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "cope", "positions": 1}, "position.positions=1: must be 2 to"),
        ({"name": "dape", "base": "rope"}, "position.base='rope': must be one of kerple, alibi"),
        ({"name": "fox", "base": 2.0}, "position.base: not used by 'fox'"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        registry.build(settings, SHAPE)
