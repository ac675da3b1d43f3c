"""What every registered extension must satisfy under the encodings that it fits; a new extension is
tested here with no edit."""

import itertools
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from pipeline.errors import ConfigError
from pipeline.model.attention import paths
from pipeline.model.decoder import Decoder
from pipeline.positions import registry
from tests.distributed.toy import LENGTH as TRAINED
from tests.distributed.toy import toy_config
from tests.oracles.attention import dense, dense_scores
from tests.positions.cases import (
    SHAPE,
    attend,
    build,
    random_qkv,
    scores_of,
    words,
)
from tests.positions.extension_cases import (
    FITS,
    KINDS,
    LONG,
    PAIRS,
    chosen,
    decoder_of,
    extend,
    fitting,
    hidden,
    inputs,
    moved,
    part_of,
    reached,
    toy_tokens,
)

# attributes of the trained encoding that an extension is there to change
REPLACED = {"adjusted_base": {"base"}}
every_pair = pytest.mark.parametrize(("kind", "name"), PAIRS)


@every_pair
def test_some_settings_leave_the_trained_encoding_exactly_as_it_is(kind: str, name: str) -> None:
    trained = build(name)
    length = reached(trained, LONG)
    same = extend(trained, name, kind, **registry.extension_class(kind).about.same_as_trained)
    q, k, _ = random_qkv(length)
    one, other = (dense_scores(scores_of(own, q, k)) for own in (trained, same))
    assert torch.equal(one, other)
    assert torch.equal(inputs(trained, length), inputs(same, length))


@every_pair
def test_the_default_settings_change_something_beyond_the_training_length(
    kind: str, name: str
) -> None:
    trained, extended = build(name), extend(build(name), name, kind)
    lengths = [reached(own, LONG) for own in (trained, extended)]
    if lengths[0] > SHAPE.train_length:
        q, k, _ = random_qkv(LONG)
        one, other = (dense_scores(scores_of(own, q, k)) for own in (trained, extended))
        assert moved(one, other) > 1e-4
    elif fitting(kind) == (name,):
        assert lengths[1] > lengths[0]


@every_pair
def test_causality_is_exact(kind: str, name: str) -> None:
    """Changing token t changes no hidden state before t, and does change a later one."""
    decoder = decoder_of(name, kind)
    length = reached(decoder.position, 3 * TRAINED)
    tokens, t = toy_tokens(length), 2 * length // 3
    changed = tokens.clone()
    changed[0, t] = (changed[0, t] + 1) % 50
    before, after = (hidden(decoder, x) for x in (tokens, changed))
    assert torch.equal(before[:, :t], after[:, :t])
    assert not torch.equal(before[:, t + 1 :], after[:, t + 1 :])


@every_pair
def test_attention_computes_the_scores_of_the_extension(kind: str, name: str) -> None:
    """By the path that is taken, against the dense definition."""
    position = extend(build(name), name, kind)
    q, k, v = random_qkv(reached(position, LONG))
    expected = dense(scores_of(position, q, k), v)
    assert (attend(position, q, k, v) - expected).abs().max() < 1e-5


@every_pair
def test_a_fold_gives_the_scores_of_the_extension(kind: str, name: str) -> None:
    """Where wider q and k are offered, in bf16: their products, up to a number per row."""
    position = extend(build(name), name, kind)
    q, k, _ = (x.detach().bfloat16() for x in random_qkv(reached(position, LONG)))
    scores = scores_of(position, q, k)
    if scores.folded is not None:
        wide_q, wide_k = (x.double() for x in scores.folded())
        exact = dense_scores(scores)
        apart = (wide_q @ wide_k.mT * scores.scale - exact).detach()
        largest = exact[exact.isfinite()].abs().max()
        seen = (apart - apart[..., :1])[exact.isfinite()]
        assert seen.abs().max() <= 2**-7 * largest


@pytest.mark.parametrize(
    ("kind", "name", "parts"), [(*pair, n) for pair, n in itertools.product(PAIRS, (2, 4))]
)
def test_head_slices_tile_the_whole(kind: str, name: str, parts: int) -> None:
    position = extend(build(name), name, kind)
    if not position.facts.head_shardable:
        return
    q, k, v = random_qkv(reached(position, LONG))
    whole = attend(position, q, k, v)
    slices = []
    for first in range(0, 4, 4 // parts):
        own = slice(first, first + 4 // parts)
        held = range(own.start, own.stop)
        slices.append(attend(position, q[:, own], k[:, own], v[:, own], heads=held))
    assert (torch.cat(slices, dim=1) - whole).abs().max() < 1e-6


@every_pair
@pytest.mark.parametrize("step", [slice(0, None, 2), slice(1, None, 2), slice(31, None)])
def test_some_of_the_tokens_have_their_part_of_the_scores(
    kind: str, name: str, step: slice
) -> None:
    """As the stations of a ring hold them: queries at hand against keys of all tokens."""
    position = extend(build(name), name, kind)
    length = reached(position, LONG)
    q, k, _ = random_qkv(length)
    whole = part_of(position, q, k, slice(None), length)
    part = part_of(position, q[:, :, step], k[:, :, step], step, length)
    assert part.scale == whole.scale and part.window == whole.window
    assert torch.equal(part.ids_q, whole.ids_q[step])
    assert torch.equal(part.ids_k, whole.ids_k)
    for own, every in zip(part.pairs, whole.pairs, strict=True):
        assert all(torch.equal(a, b[:, :, step]) for a, b in zip(own, every, strict=True))
    if part.queries is not None and whole.queries is not None:
        assert torch.equal(part.queries, whole.queries[:, :, step])
    for a, b in zip(part.by_distance, whole.by_distance, strict=True):
        assert torch.equal(a, b)
    if part.decay_q is not None and whole.decay_q is not None:
        assert torch.equal(part.decay_q, whole.decay_q[..., step])
    for hook in ("bias", "select", "allowed"):
        own_hook, every_hook = getattr(part, hook), getattr(whole, hook)
        assert (own_hook is None) == (every_hook is None)
        if own_hook is not None:
            found = own_hook(part.ids_q, part.ids_k)
            assert torch.equal(found, every_hook(whole.ids_q, whole.ids_k)[..., step, :])


@every_pair
def test_token_shards_tile_the_whole_input(kind: str, name: str) -> None:
    position = extend(build(name), name, kind)
    length = reached(position, LONG)
    x, ids, own = torch.randn(2, length, 32), torch.arange(length)[None], words(2, length)
    whole = position("embed", x, ids, own)
    parts = (slice(0, 40), slice(40, length))
    shards = [position("embed", x[:, s], ids[:, s], own[:, s]) for s in parts]
    assert torch.equal(torch.cat(shards, dim=1), whole)


@every_pair
def test_shift_invariance_is_as_declared(kind: str, name: str) -> None:
    """Whether scores depend on i - j alone, in sequences of one length."""
    position, step = extend(build(name), name, kind), 9
    length = reached(position, LONG)
    x = torch.randn(1, length - step, SHAPE.width, generator=torch.Generator().manual_seed(4))

    def scores(start: int) -> Tensor:
        here = slice(start, start + length - step)
        h = position("embed", x, torch.arange(length)[None, here], words(1, length - step))
        q = h.view(1, -1, 4, 8).transpose(1, 2).double()
        part = part_of(position, q, q, here, length, start)
        return dense_scores(replace(part, ids_k=part.ids_q, decay_k=part.decay_q))

    far = moved(scores(0), scores(step))
    assert (far < 1e-4) == position.facts.shift_invariant, f"moved by {far}"


@every_pair
def test_length_dependence_is_as_declared(kind: str, name: str) -> None:
    """Whether more tokens behind them change what the first ones are."""
    decoder = decoder_of(name, kind)
    whole = reached(decoder.position, 3 * TRAINED)
    tokens, part = toy_tokens(whole), whole // 2
    short, long = hidden(decoder, tokens[:, :part]), hidden(decoder, tokens)[:, :part]
    same = bool((short - long).abs().max() < 1e-5)
    # what changes beyond the training length cannot show where no such length is defined
    if whole > TRAINED or not same:
        assert same != decoder.position.facts.length_dependent


@pytest.mark.parametrize("kind", KINDS)
def test_paths_of_attention_are_those_declared(kind: str) -> None:
    """Where an extension says which paths serve it."""
    declared = registry.extension_class(kind).about.changes.get("attention_paths")
    if declared is None:
        return
    # a context has a path of its own, under any mask
    for name in (n for n in chosen(kind) if "tile" in build(n).facts.attention_paths):
        q, k, _ = random_qkv(LONG if build(name).max_length is None else SHAPE.train_length)
        position = extend(build(name), name, kind)
        found = set()
        for precision, device in itertools.product(
            (torch.float32, torch.bfloat16), ("cpu", "cuda")
        ):
            found |= set(paths(scores_of(position, q.to(precision), k.to(precision)), device))
        assert found == set(declared)


@pytest.mark.parametrize(("kind", "name"), FITS)
def test_extending_adds_nothing_and_changes_nothing_of_the_trained_one(
    kind: str, name: str
) -> None:
    """The same parameters, and every attribute that the trained one has, in both."""
    trained = build(name)
    before, own = dict(vars(trained)), {n: id(p) for n, p in trained.named_parameters()}
    extended = extend(trained, name, kind)
    assert vars(trained) == before and type(trained) is registry.position_class(name)
    assert {n: id(p) for n, p in extended.named_parameters()} == own
    assert not list(extended.buffers()) and list(extended.modules())[1:] == [*trained.modules()][1:]
    lost = {key for key, value in before.items() if vars(extended)[key] is not value}
    lost -= REPLACED.get(kind, set())
    assert not lost, f"{kind} overwrites {lost} of {name}: give its own attributes other names"


@every_pair
def test_nothing_depends_on_what_was_evaluated_before(kind: str, name: str) -> None:
    decoder, fresh = decoder_of(name, kind), decoder_of(name, kind)
    fresh.load_state_dict(decoder.state_dict())
    length = reached(decoder.position, 3 * TRAINED)
    tokens = toy_tokens(length)
    for part in (length, 5, length - 1, 2 * length // 3):
        hidden(decoder, tokens[:, :part])
    assert torch.equal(hidden(decoder, tokens), hidden(fresh, tokens))


@every_pair
def test_sixteen_times_the_train_length_is_finite_or_refused(kind: str, name: str) -> None:
    decoder, length = decoder_of(name, kind), 16 * TRAINED
    limit = decoder.position.max_length
    if limit is not None and limit < length:
        with pytest.raises(ConfigError, match=f"not defined beyond {limit} tokens"):
            hidden(decoder, toy_tokens(length))
    else:
        assert bool(hidden(decoder, toy_tokens(length)).isfinite().all())


@every_pair
def test_every_tensor_is_on_the_device_of_the_input(kind: str, name: str) -> None:
    """On the meta device a tensor left on the CPU is an error, as it would be on a GPU."""
    with torch.device("meta"):
        decoder = Decoder(toy_config(name))
    decoder.position = extend(decoder.position, name, kind)
    length = reached(decoder.position, 3 * TRAINED)
    tokens = torch.zeros(2, length, dtype=torch.int64, device="meta")
    ids = torch.empty(1, length, dtype=torch.int64, device="meta")
    assert decoder(tokens, tokens, ids).shape == (2, length)


@every_pair
def test_a_bf16_model_keeps_integer_positions(kind: str, name: str) -> None:
    """From the same bf16 numbers only rounding of results may differ: positions, angles or factors
    held in bf16 would be off by whole tokens at 65,530."""
    cast, exact = build(name).bfloat16(), build(name)
    exact.load_state_dict(cast.state_dict())
    wide, narrow = extend(exact, name, kind), extend(cast, name, kind)
    far = reached(wide, 65_533) - 3
    ids = torch.arange(far, far + 3)[None]
    x = torch.randn(1, 3, 32).bfloat16()
    a, b = wide("embed", x.float(), ids, words(1, 3)), narrow("embed", x, ids, words(1, 3))
    assert (a - b.float()).abs().max() <= 2**-7 * a.abs().max()
    q = torch.randn(1, 4, 3, 8).bfloat16()
    one = scores_of(wide, q.float(), q.float(), start=far)
    other = scores_of(narrow, q, q, start=far)
    assert one.scale == other.scale
    assert {x.dtype for pair in other.pairs for x in pair} == {torch.bfloat16}
    for found, rounded in zip(one.tensors(), other.tensors(), strict=True):
        assert (found is None) == (rounded is None)
        if found is not None and rounded is not None:
            assert (found - rounded.float()).abs().max() <= 2**-7 * found.abs().max()
    assert other.table is None or other.table.dtype == torch.float32
    if one.bias is not None and other.bias is not None:
        assert other.bias(ids[0], ids[0]).dtype == torch.float32
        difference = (one.bias(ids[0], ids[0]) - other.bias(ids[0], ids[0])).abs().max()
        assert difference <= 2**-8 * one.bias(ids[0], ids[0]).abs().max()
