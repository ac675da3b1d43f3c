"""Masks by position, against their definitions in loops."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from pipeline.positions.masks import blockwise, lambda_shaped, shifted_groups

Mask = Callable[[Tensor, Tensor], Tensor]


def block_of(i: int, size: int) -> list[int]:
    """The tokens of the block that i is in."""
    return next(b for b in _cut(0, size) if i in b)


def _cut(first: int, size: int) -> list[list[int]]:
    """0 .. 199 in groups: the first of `first` tokens, the others of `size`."""
    starts = [*([0] if first else []), *range(first, 200, size)]
    return [list(range(a, b)) for a, b in zip(starts, [*starts[1:], 200], strict=True)]


MASKS: list[Mask] = [
    lambda q, k: blockwise(q, k, 6),
    lambda q, k: shifted_groups(q, k, range(4), 4, 6),
    lambda q, k: shifted_groups(q, k, range(3), 3, 5),
    lambda q, k: lambda_shaped(q, k, 7, 3),
]


@pytest.mark.parametrize("size", [1, 2, 5, 40])
def test_blockwise_sees_its_block_and_the_one_before(size: int) -> None:
    ids = torch.arange(37)
    mask = blockwise(ids, ids, size)
    assert mask.shape == (1, 37, 37) and mask.dtype == torch.bool
    for i in range(37):
        own = block_of(i, size)
        before = block_of(own[0] - 1, size) if own[0] else []
        assert mask[0, i].nonzero().flatten().tolist() == [j for j in before + own if j <= i]


@pytest.mark.parametrize(("heads", "size"), [(4, 6), (4, 2), (3, 6), (2, 5), (1, 4)])
def test_the_second_half_of_the_heads_has_groups_shifted_by_half(heads: int, size: int) -> None:
    """The first half group of shifted heads stands alone."""
    ids = torch.arange(37)
    mask = shifted_groups(ids, ids, range(heads), heads, size)
    assert mask.shape == (heads, 37, 37) and mask.dtype == torch.bool
    for h in range(heads):
        groups = _cut(0, size) if h < heads // 2 else _cut(size - size // 2, size)
        for i in range(37):
            own = next(group for group in groups if i in group)
            assert mask[h, i].nonzero().flatten().tolist() == [j for j in own if j <= i]


@pytest.mark.parametrize(("window", "first"), [(7, 3), (1, 0), (7, 0), (40, 2), (2, 40)])
def test_lambda_is_the_first_tokens_and_the_last(window: int, first: int) -> None:
    ids = torch.arange(37)
    mask = lambda_shaped(ids, ids, window, first)
    assert mask.shape == (1, 37, 37) and mask.dtype == torch.bool
    for i in range(37):
        seen = sorted({*range(min(first, i + 1)), *range(max(0, i - window + 1), i + 1)})
        assert mask[0, i].nonzero().flatten().tolist() == seen


@pytest.mark.parametrize("mask", MASKS)
def test_every_query_sees_itself_and_nothing_later(mask: Mask) -> None:
    ids = torch.arange(96)
    seen = mask(ids, ids)
    assert bool(seen.diagonal(dim1=1, dim2=2).all())
    assert int(seen.triu(1).sum()) == 0


def test_groups_rolled_around_would_leak_as_many_pairs_as_was_counted() -> None:
    """The authors' first code lets the first tokens see the last ones: 144 pairs of 96 tokens."""
    ids, group = torch.arange(96), 24
    rolled = ids.roll(-group // 2)
    same = (torch.arange(96) // group)[:, None] == torch.arange(96) // group
    leaks = same & same.tril() & (rolled[None] > rolled[:, None])
    assert int(leaks.sum()) == 144
    shifted = shifted_groups(ids, ids, range(1, 2), 2, group)
    assert int(shifted.triu(1).sum()) == 0


def test_one_group_of_all_tokens_is_plain_causal_attention_in_heads_not_shifted() -> None:
    ids = torch.arange(37)
    mask = shifted_groups(ids, ids, range(4), 4, 38)
    causal = torch.ones(37, 37, dtype=torch.bool).tril()
    assert torch.equal(mask[:2], causal.expand(2, -1, -1))
    assert not torch.equal(mask[2], causal)


@pytest.mark.parametrize("held", [range(1), range(1, 2), range(2, 4), range(1, 4)])
def test_a_slice_of_the_heads_has_the_groups_of_its_global_heads(held: range) -> None:
    ids = torch.arange(37)
    whole = shifted_groups(ids, ids, range(4), 4, 6)
    assert torch.equal(shifted_groups(ids, ids, held, 4, 6), whole[held.start : held.stop])


@pytest.mark.parametrize("mask", MASKS)
def test_masks_of_some_tokens_are_parts_of_the_whole(mask: Mask) -> None:
    """They depend on ids alone, whichever tokens are at hand."""
    ids = torch.arange(41)
    whole = mask(ids, ids)
    rows, columns = slice(1, None, 2), slice(3, 30, 3)
    assert torch.equal(mask(ids[rows], ids[columns]), whole[:, rows, columns])
