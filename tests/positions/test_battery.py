"""What every registered encoding must satisfy; a new encoding is tested here with no edit."""

import itertools
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor

from pipeline.errors import ConfigError
from pipeline.model.attention import attention
from pipeline.model.decoder import Decoder
from pipeline.model.exchange import Exchange
from pipeline.positions import registry
from pipeline.positions.base import Position, Shape, Site
from tests.distributed.ranks import ROOT
from tests.distributed.toy import toy_config
from tests.oracles import positions as oracle
from tests.oracles.attention import attention as slow_attention
from tests.oracles.attention import plain_score

SHAPE = Shape(width=32, layers=2, heads=4, train_length=24)
NAMES = registry.names()


def build(name: str, **settings: Any) -> Position:
    torch.manual_seed(3)
    position = registry.build({"name": name, **settings}, SHAPE)
    for parameter in position.parameters():
        torch.nn.init.normal_(parameter, 0.0, 1.0)
    return position


def attend(position: Position, q: Tensor, k: Tensor, v: Tensor, heads: range) -> Tensor:
    length = q.shape[2]
    site = Site(0, heads, length)
    ids = torch.arange(length).expand(len(q), -1)
    q, k = position("rotate", q, k, ids, site)
    return attention(q, k, v, position("distance_table", site, q.device))


def random_qkv(length: int, heads: int = 4) -> list[Tensor]:
    torch.manual_seed(11)
    return [torch.randn(2, heads, length, SHAPE.head_width, requires_grad=True) for _ in range(3)]


@pytest.mark.parametrize(
    ("name", "chosen"), [*((name, {}) for name in NAMES), ("kerple", {"form": "power"})]
)
def test_attention_equals_the_paper_in_loops(name: str, chosen: dict[str, Any]) -> None:
    """Forward, and the gradients of q, k, v and of every position parameter."""
    position, length = build(name, **chosen), 24
    q, k, v = random_qkv(length)
    pull = torch.randn(2, 4, length, SHAPE.head_width)
    out = attend(position, q, k, v, range(4))
    (out * pull).sum().backward()
    slow = {n: p.detach().double().requires_grad_() for n, p in position.named_parameters()}
    qd, kd, vd = (x.detach().double().requires_grad_() for x in (q, k, v))
    settings = {**registry.default_settings(name), **chosen}
    score = oracle.SCORES[name](4, slow, settings) if name in oracle.SCORES else plain_score
    expected = slow_attention(qd, kd, vd, score)
    (expected * pull.double()).sum().backward()
    assert (out - expected).abs().max() < 1e-5
    pairs = [(q, qd), (k, kd), (v, vd)]
    if name in oracle.SCORES:
        pairs += [(p, slow[n]) for n, p in position.named_parameters()]
    for fast, reference in pairs:
        assert fast.grad is not None and reference.grad is not None
        assert (fast.grad - reference.grad).abs().max() <= 1e-5 * reference.grad.abs().max()


@pytest.mark.parametrize("name", NAMES)
def test_input_equals_the_paper_in_loops(name: str) -> None:
    position, length = build(name), 24
    x = torch.randn(2, length, 32, requires_grad=True)
    out = position("embed", x, torch.arange(length).expand(2, -1))
    pull = torch.randn_like(out)
    slow = {n: p.detach().double().requires_grad_() for n, p in position.named_parameters()}
    xd = x.detach().double()
    settings = registry.default_settings(name)
    expected = oracle.INPUTS[name](xd, slow, settings) if name in oracle.INPUTS else xd
    assert (out - expected).abs().max() <= 1e-6 * expected.abs().max()
    if name in oracle.INPUTS and slow:
        (out * pull).sum().backward()
        (expected * pull.double()).sum().backward()
        for n, p in position.named_parameters():
            reference = slow[n].grad
            assert p.grad is not None and reference is not None
            assert (p.grad - reference).abs().max() <= 1e-5 * reference.abs().max()


@pytest.mark.parametrize("name", NAMES)
def test_every_encoding_has_an_oracle_or_does_nothing(name: str) -> None:
    if name not in oracle.SCORES and name not in oracle.INPUTS:
        position = build(name)
        own = type(position)
        assert own.rotate is Position.rotate and own.bias is Position.bias
        assert own.embed is Position.embed and not list(position.parameters())


@pytest.mark.parametrize(("name", "parts"), list(itertools.product(NAMES, (2, 4))))
def test_head_slices_tile_the_whole(name: str, parts: int) -> None:
    """Attention with global head indices, slice by slice, is attention with all heads."""
    position = build(name)
    q, k, v = random_qkv(23)
    whole = attend(position, q, k, v, range(4))
    held = 4 // parts
    slices = []
    for heads in (range(p * held, (p + 1) * held) for p in range(parts)):
        own = slice(heads.start, heads.stop)
        slices.append(attend(position, q[:, own], k[:, own], v[:, own], heads))
    assert (torch.cat(slices, dim=1) - whole).abs().max() < 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_token_shards_tile_the_whole_input(name: str) -> None:
    position = build(name)
    x, ids = torch.randn(2, 23, 32), torch.arange(23).expand(2, -1)
    whole = position("embed", x, ids)
    shards = [position("embed", x[:, s], ids[:, s]) for s in (slice(0, 12), slice(12, 23))]
    assert torch.equal(torch.cat(shards, dim=1), whole)


@pytest.mark.parametrize("name", NAMES)
def test_causality_is_exact(name: str) -> None:
    """Changing token t changes no hidden state before t, and does change a later one."""
    config = toy_config(name)
    decoder = Decoder(config)
    tokens = torch.randint(0, 50, (1, 20), generator=torch.Generator().manual_seed(1))
    changed = tokens.clone()
    changed[0, 12] = (changed[0, 12] + 1) % 50
    ids = torch.arange(20)[None]
    with torch.no_grad():
        before, after = (decoder.hidden(x, ids, Exchange()) for x in (tokens, changed))
    assert torch.equal(before[:, :12], after[:, :12])
    assert not torch.equal(before[:, 13:], after[:, 13:])


@pytest.mark.parametrize("name", NAMES)
def test_shift_invariance_is_as_declared(name: str) -> None:
    """Scores depend on i - j alone if and only if the encoding says so."""
    position, length = build(name), 12
    torch.manual_seed(0)
    x = torch.randn(1, length, 32, dtype=torch.float64)

    def scores(start: int) -> Tensor:
        ids = torch.arange(start, start + length)[None]
        h = position("embed", x, ids)
        q = k = h.view(1, length, 4, 8).transpose(1, 2)
        site = Site(0, range(4), length)
        q, k = position("rotate", q, k, ids, site)
        s = q @ k.transpose(-1, -2)
        bias = position("bias", ids[0], ids[0], site)
        return s if bias is None else s + bias

    moved = (scores(0) - scores(9)).tril().abs().max()
    assert (moved < 1e-4) == position.facts.shift_invariant, f"moved by {moved}"


@pytest.mark.parametrize("name", NAMES)
def test_declared_parameters_are_exact(name: str) -> None:
    position = registry.build({"name": name}, SHAPE)
    known = {"width": 32, "layers": 2, "heads": 4, "train_length": 24}
    known |= registry.default_settings(name)
    formula = position.facts.extra_parameters
    count = sum(p.numel() for p in position.parameters())
    assert count == eval(formula, {"__builtins__": {}}, known)


@pytest.mark.parametrize("name", NAMES)
def test_declared_attention_path_is_the_one_taken(name: str) -> None:
    own = type(build(name))
    assert own.facts.attention_path == ("sdpa" if own.bias is Position.bias else "tile")


@pytest.mark.parametrize("name", NAMES)
def test_length_dependence_is_as_declared(name: str) -> None:
    """Whether more tokens behind them change what the first ones are."""
    decoder = Decoder(toy_config(name))
    tokens = torch.randint(0, 50, (1, 20), generator=torch.Generator().manual_seed(2))
    ids = torch.arange(20)[None]
    with torch.no_grad():
        short = decoder.hidden(tokens[:, :12], ids[:, :12], Exchange())
        long = decoder.hidden(tokens, ids, Exchange())[:, :12]
    same = bool((short - long).abs().max() < 1e-5)
    assert same != decoder.position.facts.length_dependent


@pytest.mark.parametrize("name", NAMES)
def test_every_tensor_is_on_the_device_of_the_input(name: str) -> None:
    """On the meta device a tensor left on the CPU is an error, as it would be on a GPU."""
    with torch.device("meta"):
        decoder = Decoder(toy_config(name))
    tokens = torch.zeros(2, 12, dtype=torch.int64, device="meta")
    ids = torch.empty(1, 12, dtype=torch.int64, device="meta")
    decoder(tokens, tokens, ids).sum().backward()
    assert all(p.grad is not None for p in decoder.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_yaml_lists_every_setting_with_its_default(name: str) -> None:
    written = yaml.safe_load((ROOT / "configs" / "position" / f"{name}.yaml").read_text()) or {}
    assert written == registry.default_settings(name)


@pytest.mark.parametrize("name", NAMES)
def test_sixteen_times_the_train_length_is_finite_or_refused(name: str) -> None:
    config = toy_config(name)
    decoder, length = Decoder(config), 16 * config.train_length
    tokens = torch.randint(0, 50, (1, length))
    ids = torch.arange(length)[None]
    limit = decoder.position.max_length
    with torch.no_grad():
        if limit is not None and limit < length:
            with pytest.raises(ConfigError, match=f"not defined beyond {limit} tokens"):
                decoder.hidden(tokens, ids, Exchange())
        else:
            assert bool(decoder.hidden(tokens, ids, Exchange()).isfinite().all())


@pytest.mark.parametrize("name", NAMES)
def test_nothing_depends_on_what_was_evaluated_before(name: str) -> None:
    decoder = Decoder(toy_config(name))
    fresh = Decoder(toy_config(name))
    fresh.load_state_dict(decoder.state_dict())
    tokens = torch.randint(0, 50, (1, 21))
    ids = torch.arange(21)[None]
    with torch.no_grad():
        for length in (21, 5, 20, 3):
            decoder.hidden(tokens[:, :length], ids[:, :length], Exchange())
        again = decoder.hidden(tokens, ids, Exchange())
        assert torch.equal(again, fresh.hidden(tokens, ids, Exchange()))


@pytest.mark.parametrize("name", NAMES)
def test_a_bf16_model_keeps_integer_positions(name: str) -> None:
    """Cast to bf16, an encoding still tells 65,536 positions apart as well as in fp32.

    Both are fed the same bf16 queries and inputs, so only rounding of results may differ: positions
    held in bf16 would be off by whole tokens.
    """
    position, cast = build(name), build(name).bfloat16()
    shape = registry.build({"name": name}, SHAPE)
    far = 65_530 if shape.max_length is None else SHAPE.train_length - 3
    ids = torch.arange(far, far + 3)[None]
    x = torch.randn(1, 3, 32).bfloat16()
    wide, narrow = position("embed", x.float(), ids), cast("embed", x, ids)
    assert (wide - narrow.float()).abs().max() <= 2**-7 * wide.abs().max()
    q = torch.randn(1, 4, 3, 8).bfloat16()
    site = Site(0, range(4), far + 3)
    wide, _ = position("rotate", q.float(), q.float(), ids, site)
    narrow, _ = cast("rotate", q, q, ids, site)
    assert (wide - narrow.float()).abs().max() <= 2**-7 * wide.abs().max()
    table, other = (p("distance_table", site, ids.device) for p in (position, cast))
    if table is not None:
        assert other.dtype == torch.float32
        assert (table - other).abs().max() <= 2**-8 * table.abs().max()
        if name == "alibi":
            assert len(other[0].unique()) == far + 3
