"""A guard on the work of a training step: it is counted, so a busy machine cannot change it.

Stated bounds, for a step of two layers with two heads, at S tokens:
rope: bytes and calls grow no faster than S. alibi, beyond what rope does: up to 4 new arrays of the
causal half of all scores (forward 1, backward 2, and edges), up to 60 calls a tile of 256 x 512 in
a layer, and FLOPs within 1.35 of the model's (recomputed scores are 7 products where the model
counts 6).
"""

from functools import cache

import pytest
import torch

from pipeline.bench.cases import build_case
from pipeline.bench.options import Options, read_options
from pipeline.bench.timing import interleaved, paired_ratio
from pipeline.model.flops import step_flops
from tests.bench.counting import Work, count

LENGTHS = (1024, 2048)
LAYERS, HEADS = 2, 2


def _options(positions: str, lengths: str, *more: str) -> Options:
    return read_options(
        [f"model.layers={LAYERS}", f"model.heads={HEADS}", *more, "trainer.accelerator=cpu"],
        positions=positions, lengths=lengths, measure="step", against="", repeats=1, out=None,
    )  # fmt: skip


SMALL = _options(
    "rope,alibi", "1024,2048", "model.width=64", "model.mlp_width=128", "data.vocab=260"
)


@cache
def _work(position: str, length: int) -> Work:
    subject = next(s for s in SMALL.subjects(length) if s.position == position)
    return count(build_case(subject, SMALL.config_of(subject), torch.device("cpu")).run)


def test_the_counter_sees_new_tensors_only() -> None:
    x = torch.ones(8)

    def run() -> None:
        y = x + 1.0  # new: 32 bytes
        y.mul_(2.0)
        y.view(2, 4)
        torch.outer(y, y)  # new: 256 bytes

    work = count(run)
    assert (work.largest, work.allocated) == (256, 288)
    assert work.calls >= 4


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("position", ["rope", "alibi"])
def test_nothing_of_the_size_of_all_scores_is_allocated(position: str, length: int) -> None:
    assert _work(position, length).largest < 4 * length**2 / 2


def test_rope_works_in_proportion_to_the_length() -> None:
    short, long = (_work("rope", length) for length in LENGTHS)
    assert long.allocated <= 2.3 * short.allocated
    assert long.calls <= 1.3 * short.calls


@pytest.mark.parametrize("length", LENGTHS)
def test_alibi_stays_within_its_tiles(length: int) -> None:
    own, plain = _work("alibi", length), _work("rope", length)
    scores = 4 * LAYERS * HEADS * length**2 / 2
    assert own.allocated <= plain.allocated + 4 * scores
    tiles = sum(-(-end // 512) for end in range(256, length + 1, 256))
    # and a fixed number for each layer: how far its heads look
    assert own.calls <= plain.calls + LAYERS * (60 * tiles + 100)


@pytest.mark.parametrize("length", LENGTHS)
def test_alibi_multiplies_little_more_than_the_model(length: int) -> None:
    config = SMALL.config
    least = step_flops(config.model, config.data.vocab, length)
    assert least < _work("alibi", length).flops <= 1.35 * least


@pytest.mark.slow
def test_a_step_under_alibi_takes_at_most_twice_that_under_rope() -> None:
    # few other products, so that attention is half of the step
    small = ["model.width=256", "model.heads=4", "model.mlp_width=256", "data.vocab=260"]
    options = _options("rope,alibi", "2048", *small)
    cpu = torch.device("cpu")
    subjects = options.subjects(2048)
    runs = {s.position: build_case(s, options.config_of(s), cpu).run for s in subjects}
    took = interleaved(runs, 5, cpu, lambda position: None)
    assert paired_ratio(took["alibi"], took["rope"]) < 2.0
