"""RECL against slow loops written from Dai et al. 2019, appendix C, and against known cases."""

import math

import numpy as np
import pytest

from pipeline.evaluate.recl import Nats, Reach, effective_lengths

LENGTHS = (16, 32, 64, 128, 256)
Group = dict[str, dict[int, Nats]]


def slow_recl(group: Group, name: str, r: float) -> tuple[int, bool]:
    """The algorithm of the appendix, target by target."""
    place = 0
    while place + 1 < len(LENGTHS):
        c, longer = LENGTHS[place], LENGTHS[place + 1]
        b = []
        for t in range(len(group[name][LENGTHS[0]])):
            b.append(min(float(model[c][t]) for model in group.values() if c in model))
        targets = sorted(range(len(b)), key=lambda t: -b[t])[: max(1, round(r * len(b)))]
        if longer not in group[name]:
            return c, True
        f_short = sum(min(b[t], float(group[name][c][t])) for t in targets) / len(targets)
        f_long = sum(min(b[t], float(group[name][longer][t])) for t in targets) / len(targets)
        gain = (math.exp(f_short) - math.exp(f_long)) / math.exp(f_short)
        if gain < 0.01:
            return c, False
        place += 1
    return LENGTHS[place], True


def made_up(seed: int) -> Group:
    """Three models whose losses fall with context, to different lengths, with noise by target."""
    draw = np.random.default_rng(seed)
    text, group = draw.gamma(2.0, 1.0, 120), {}
    for name, ends in (("near", 32), ("far", 128), ("on", 1024)):
        group[name] = {
            c: text * (1.0 - 0.06 * math.log2(min(c, ends) / 16)) + 0.05 * draw.normal(size=120)
            for c in LENGTHS
        }
    return group


@pytest.mark.parametrize("r", [0.1, 0.5, 1.0])
def test_recl_is_that_of_slow_loops(r: float) -> None:
    seen = set()
    for seed in range(8):
        group = made_up(seed)
        group["near"].pop(256)
        found = effective_lengths(group, LENGTHS, r)
        expected = {name: Reach(*slow_recl(group, name, r)) for name in group}
        assert found == expected
        seen |= {reach.length for reach in found.values()}
    assert len(seen) > 1


@pytest.mark.parametrize("r", [0.1, 1.0])
def test_models_that_stop_gaining_at_64_tokens_have_a_recl_of_64(r: float) -> None:
    text = np.random.default_rng(0).gamma(2.0, 1.0, 200)
    own = {c: text - 0.1 * math.log2(min(c, 64)) for c in LENGTHS}
    assert effective_lengths({"a": own, "b": own}, LENGTHS, r) == {
        "a": Reach(64, False), "b": Reach(64, False),
    }  # fmt: skip


def test_a_gain_of_one_percent_counts_and_less_does_not() -> None:
    text = np.full(10, 3.0)
    for drop, length in ((0.0099, 16), (0.0102, 32)):
        # 1 - exp(-0.0102) = 0.01015, 1 - exp(-0.0099) = 0.00985
        own = {16: text, 32: text - drop, 64: text - drop, 128: text, 256: text}
        assert effective_lengths({"a": own}, LENGTHS, 1.0)["a"] == Reach(length, False)


def test_what_a_better_model_had_on_little_context_is_no_gain() -> None:
    good, poor = np.full(10, 2.0), np.full(10, 3.0)
    group = {
        "good": dict.fromkeys(LENGTHS, good),
        # gains much, but never on what the other has at the shorter length already
        "poor": {c: poor - 0.1 * i for i, c in enumerate(LENGTHS)},
    }
    assert effective_lengths(group, LENGTHS, 1.0)["poor"] == Reach(16, False)


def test_a_model_that_gains_to_the_end_is_open() -> None:
    own = {c: np.full(10, 3.0 - 0.1 * i) for i, c in enumerate(LENGTHS)}
    short = {c: own[c] for c in LENGTHS[:2]}
    found = effective_lengths({"long": own, "short": short}, LENGTHS, 1.0)
    assert found == {"long": Reach(256, True), "short": Reach(32, True)}


def test_lengths_that_no_model_is_defined_at_do_not_count() -> None:
    own = {c: np.full(10, 3.0 - 0.1 * i) for i, c in enumerate(LENGTHS[:2])}
    assert effective_lengths({"short": own}, LENGTHS, 1.0) == {"short": Reach(32, True)}
