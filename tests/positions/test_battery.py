"""What every registered encoding must satisfy; a new encoding is tested here with no edit.

Attention itself, by every path that an encoding declares, is tested in `test_paths`.
"""

import itertools
from collections.abc import Mapping
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor

from pipeline.errors import ConfigError
from pipeline.launch.checks import check_model
from pipeline.model.decoder import Decoder
from pipeline.model.exchange import Exchange
from pipeline.positions import registry
from tests.distributed.ranks import ROOT
from tests.distributed.toy import toy_config
from tests.oracles import positions as oracle
from tests.oracles.attention import dense_scores
from tests.positions.cases import (
    CASES,
    NAMES,
    SHAPE,
    attend,
    build,
    check_gradients,
    encoding,
    named,
    random_qkv,
    scores_of,
    words,
)

HOOKS: dict[str, Mapping[str, Any]] = {
    "embed": oracle.INPUTS,
    "rotate": oracle.SCORES,
    "branches": oracle.SCORES,
    "bias": oracle.SCORES,
    "relative_keys": oracle.SCORES,
    "relative_queries": oracle.SCORES,
    "gate_logits": oracle.SCORES,
    "allowed": oracle.SCORES,
    "transform": oracle.SCORES,
    "adjust": oracle.SCORES,
    "fold": oracle.SCORES,
    "relative_values": oracle.VALUES,
}
every_case = pytest.mark.parametrize(("name", "chosen"), CASES, ids=named)


def decoder_of(name: str, chosen: dict[str, Any]) -> Decoder:
    config = toy_config(name)
    config.position |= chosen
    return Decoder(config)


@pytest.mark.parametrize("name", NAMES)
def test_input_equals_the_paper_in_loops(name: str) -> None:
    position, length = build(name), 24
    x = torch.randn(2, length, 32, requires_grad=True)
    out = position("embed", x, torch.arange(length).expand(2, -1), words(2, length))
    pull = torch.randn_like(out)
    own, xd = encoding(position, name), x.detach().double()
    expected = oracle.INPUTS[name](xd, own, words(2, length)) if name in oracle.INPUTS else xd
    assert (out - expected).abs().max() <= 1e-6 * expected.abs().max()
    if name in oracle.INPUTS and own.parameters:
        (out * pull).sum().backward()
        (expected * pull.double()).sum().backward()
        check_gradients([(p.grad, own.parameters[n].grad) for n, p in position.named_parameters()])


@pytest.mark.parametrize("name", NAMES)
def test_every_encoding_has_an_oracle_or_does_nothing(name: str) -> None:
    position = build(name)
    for hook, oracles in HOOKS.items():
        assert name in oracles or not position.has(hook), (
            f"{name} has the hook {hook}: write its formula in slow loops and add it to the "
            "table of tests/oracles/positions.py that HOOKS names for this hook"
        )
    if not any(name in oracles for oracles in HOOKS.values()):
        assert not list(position.parameters())


@pytest.mark.parametrize(
    ("name", "chosen", "parts"),
    [(*case, n) for case, n in itertools.product(CASES, (2, 4))],
    ids=named,
)
def test_head_slices_tile_the_whole(name: str, chosen: dict[str, Any], parts: int) -> None:
    """Attention with global head indices, slice by slice, is attention with all heads; where it
    is not, ranks that would share the heads are refused."""
    position = build(name, **chosen)
    if not position.facts.head_shardable:
        with pytest.raises(ConfigError, match=f"position='{name}' needs all heads on one rank"):
            check_model(toy_config(name, sequence_parallel=parts, ring=1))
        return
    q, k, v = random_qkv(23)
    whole = attend(position, q, k, v)
    held = 4 // parts
    slices = []
    for heads in (range(p * held, (p + 1) * held) for p in range(parts)):
        own = slice(heads.start, heads.stop)
        slices.append(attend(position, q[:, own], k[:, own], v[:, own], heads=heads))
    assert (torch.cat(slices, dim=1) - whole).abs().max() < 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_a_ring_is_taken_or_refused_as_declared(name: str) -> None:
    """Where the heads are shared as well, it is one ring of two ranks for each half of them."""
    facts = registry.position_class(name).facts
    for parts, heads_shared in ((2, False), (4, True)):
        config = toy_config(name, sequence_parallel=parts, ring=2)
        if facts.ring_shardable and (facts.head_shardable or not heads_shared):
            check_model(config)
        else:
            what = "heads" if heads_shared and not facts.head_shardable else "tokens"
            with pytest.raises(ConfigError, match=f"position='{name}' needs all {what}"):
                check_model(config)


@pytest.mark.parametrize("name", NAMES)
def test_token_shards_tile_the_whole_input(name: str) -> None:
    position = build(name)
    x, ids = torch.randn(2, 23, 32), torch.arange(23).expand(2, -1)
    whole = position("embed", x, ids, words(2, 23))
    parts = (slice(0, 12), slice(12, 23))
    shards = [position("embed", x[:, s], ids[:, s], words(2, 23)[:, s]) for s in parts]
    assert torch.equal(torch.cat(shards, dim=1), whole)


@every_case
def test_causality_is_exact(name: str, chosen: dict[str, Any]) -> None:
    """Changing token t changes no hidden state before t, and does change a later one."""
    decoder = decoder_of(name, chosen)
    tokens = torch.randint(0, 50, (1, 20), generator=torch.Generator().manual_seed(1))
    changed = tokens.clone()
    changed[0, 12] = (changed[0, 12] + 1) % 50
    ids = torch.arange(20)[None]
    with torch.no_grad():
        before, after = (decoder.hidden(x, ids, Exchange()) for x in (tokens, changed))
    assert torch.equal(before[:, :12], after[:, :12])
    assert not torch.equal(before[:, 13:], after[:, 13:])


@every_case
def test_shift_invariance_is_as_declared(name: str, chosen: dict[str, Any]) -> None:
    """Scores depend on i - j alone if and only if the encoding says so."""
    position, length = build(name, **chosen), 12
    torch.manual_seed(0)
    x = torch.randn(1, length, 32, dtype=torch.float64)

    def scores(start: int) -> Tensor:
        h = position("embed", x, torch.arange(start, start + length)[None], words(1, length))
        q = k = h.view(1, length, 4, 8).transpose(1, 2)
        return dense_scores(scores_of(position, q, k, start=start)).tril()

    moved = (scores(0) - scores(9)).abs().max()
    assert (moved < 1e-4) == position.facts.shift_invariant, f"moved by {moved}"


@every_case
def test_declared_parameters_are_exact(name: str, chosen: dict[str, Any]) -> None:
    position = registry.build({"name": name, **chosen}, SHAPE)
    known = {"width": 32, "layers": 2, "heads": 4, "train_length": 24}
    known |= registry.default_settings(name) | chosen
    formula = position.facts.extra_parameters
    count = sum(p.numel() for p in position.parameters())
    assert count == eval(formula, {"__builtins__": {}}, known)


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


@every_case
def test_every_tensor_is_on_the_device_of_the_input(name: str, chosen: dict[str, Any]) -> None:
    """On the meta device a tensor left on the CPU is an error, as it would be on a GPU."""
    with torch.device("meta"):
        decoder = decoder_of(name, chosen)
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


@every_case
def test_a_bf16_model_keeps_integer_positions(name: str, chosen: dict[str, Any]) -> None:
    """Cast to bf16, an encoding still tells 65,536 positions apart as well as in fp32.

    Both are fed the same bf16 queries, inputs and parameters, so only rounding of results may
    differ: positions held in bf16 would be off by whole tokens.
    """
    cast = build(name, **chosen).bfloat16()
    position = build(name, **chosen)
    position.load_state_dict(cast.state_dict())
    shape = registry.build({"name": name}, SHAPE)
    far = 65_530 if shape.max_length is None else SHAPE.train_length - 3
    ids = torch.arange(far, far + 3)[None]
    x = torch.randn(1, 3, 32).bfloat16()
    wide, narrow = (
        own("embed", y, ids, words(1, 3)) for own, y in ((position, x.float()), (cast, x))
    )
    assert (wide - narrow.float()).abs().max() <= 2**-7 * wide.abs().max()
    q = torch.randn(1, 4, 3, 8).bfloat16()
    one, other = (
        scores_of(position, q.float(), q.float(), start=far),
        scores_of(cast, q, q, start=far),
    )
    kept = len(one.tensors()) - len(one.parameters)
    for exact, rounded in zip(one.tensors()[:kept], other.tensors()[:kept], strict=True):
        if exact is None or rounded is None:
            assert exact is rounded
        else:
            assert (exact - rounded.float()).abs().max() <= 2**-7 * exact.abs().max()
    if one.bias is not None and other.bias is not None:
        wide, narrow = one.bias(ids[0], ids[0]), other.bias(ids[0], ids[0])
        assert narrow.dtype == torch.float32
        assert (wide - narrow).abs().max() <= 2**-8 * wide.abs().max()
    if one.table is not None and other.table is not None:
        assert other.table.dtype == torch.float32
        assert (one.table - other.table).abs().max() <= 2**-8 * one.table.abs().max()
        if name == "alibi":
            assert len(other.table[0].unique()) == far + 3
