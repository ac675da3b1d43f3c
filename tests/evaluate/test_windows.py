"""Which targets each protocol scores, counted one by one."""

from collections import Counter

import pytest

from pipeline.evaluate.windows import Window, non_overlapping, restricted, sliding, suffix

SIZES = [33, 40, 65]


def scored_targets(windows: list[Window]) -> Counter[tuple[int, int]]:
    """(document, target) -> times scored; a window [start, stop) ends with target `stop`."""
    return Counter(
        (w.document, target) for w in windows for target in range(w.stop - w.scored + 1, w.stop + 1)
    )


def last_targets(count: int) -> Counter[tuple[int, int]]:
    return Counter((d, t) for d, n in enumerate(SIZES) for t in range(n - count, n))


@pytest.mark.parametrize("length", [8, 9, 16, 31, 32])
@pytest.mark.parametrize("stride", [1, 2, 3, 8])
def test_sliding_scores_every_target_once_with_the_stated_context(length: int, stride: int) -> None:
    windows = sliding(SIZES, length, stride, 32)
    assert scored_targets(windows) == last_targets(32)
    assert max(w.length for w in windows) <= length
    for w in windows:
        first = SIZES[w.document] - 1 - 32
        if w.start > first:
            assert w.length == length and w.length - w.scored >= length - stride


@pytest.mark.parametrize("length", [1, 5, 8, 31, 32, 50])
def test_non_overlapping_scores_every_target_once_without_context(length: int) -> None:
    windows = non_overlapping(SIZES, length, 32)
    assert scored_targets(windows) == last_targets(32)
    assert all(w.scored == w.length <= length for w in windows)


@pytest.mark.parametrize("length", [8, 16, 32])
def test_suffix_scores_the_same_targets_at_every_length(length: int) -> None:
    windows = suffix(SIZES, length, 7)
    assert scored_targets(windows) == last_targets(7)
    assert all(w.length == length for w in windows)


@pytest.mark.parametrize("stride", [1, 3, 4, 7])
def test_the_window_control_never_sees_more_than_its_length(stride: int) -> None:
    windows = restricted(SIZES, 16, stride, 7)
    assert scored_targets(windows) == last_targets(7)
    assert all(w.length == 16 and w.scored <= stride for w in windows)
