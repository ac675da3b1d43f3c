"""Text and tasks in training: exact shares, the same for every world, answers alone are targets."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest

from pipeline.config.schema import Config, DataConfig, MixConfig, TrainerConfig
from pipeline.data.mixture import Mixture, training_sequences
from pipeline.data.module import MicroBatches
from pipeline.data.prepare import Prepared
from pipeline.data.sequences import Sequences, ordered
from pipeline.data.tasks.registry import build_task, task_names
from pipeline.errors import ConfigError, DataError
from pipeline.model.loss import IGNORED
from pipeline.parallel.mesh import Mesh
from pipeline.positions.base import Shape
from pipeline.positions.ids.consecutive import ConsecutiveIds
from tests.oracles.tasks import answer_of

LENGTH, STEPS, BATCH = 240, 6, 8
SHAPE = Shape(width=32, layers=2, heads=4, train_length=LENGTH)
Ids = npt.NDArray[np.int64]


def config(**shares: float) -> Config:
    return Config(
        seed=3,
        train_length=LENGTH,
        data=DataConfig(mix=MixConfig(**shares)),
        trainer=TrainerConfig(max_steps=STEPS, batch_sequences=BATCH),
    )


def mixture(prepared: Prepared, **shares: float) -> Mixture:
    return mixture_of(config(**shares), prepared)


def mixture_of(run: Config, prepared: Prepared) -> Mixture:
    mixed = training_sequences(run, prepared)
    assert isinstance(mixed, Mixture)
    return mixed


def test_without_shares_training_reads_the_text_as_ever(prepared: Prepared) -> None:
    assert type(training_sequences(config(), prepared)) is Sequences


@pytest.mark.parametrize(
    "shares",
    [{"copy": 0.3}, {"copy": 0.1, "parity": 0.2, "sort": 0.3}, {"copy": 1e-3}, {"parity": 1.0}],
)
def test_of_the_first_n_sequences_exactly_the_share_is_text(
    prepared: Prepared, shares: dict[str, float]
) -> None:
    order = mixture(prepared, **shares).order(3, 0, 2500)
    share = 1 - sum(Fraction(str(each)) for each in shares.values())
    texts = np.cumsum(order >= 0)
    assert texts.tolist() == [int(n * share) for n in range(1, 2501)]
    # as without tasks: each sequence once an epoch
    count = len(Sequences(prepared.split("train"), LENGTH))
    assert order[order >= 0].tolist() == ordered(3, 0, int(texts[-1]), count).tolist()
    tasks = order[order < 0]
    assert len(set(tasks.tolist())) == len(tasks)


def test_the_order_does_not_depend_on_how_it_is_cut_into_batches(prepared: Prepared) -> None:
    mixed = mixture(prepared, copy=0.3, parity=0.15)
    whole = mixed.order(5, 0, 120)
    for batch in (1, 5, 24):
        parts = [mixed.order(5, step, batch) for step in range(120 // batch)]
        assert np.concatenate(parts).tolist() == whole.tolist()
    assert set(mixed.order(6, 0, 120)).isdisjoint(whole[whole < 0])


def test_tasks_are_drawn_by_their_shares(prepared: Prepared) -> None:
    mixed = mixture(prepared, copy=0.1, parity=0.3, majority=0.6)
    markers = {build_task(n, prepared.tokenizer, mixed.text.pack).marker: n for n in task_names()}
    seen = Counter(
        markers[int(next(t for t in mixed.read(int(i), 0, 9)[0] if t in markers))]
        for i in mixed.order(1, 0, 2000)
    )
    assert set(seen) == {"copy", "parity", "majority"}
    for name, share in (("copy", 0.1), ("parity", 0.3), ("majority", 0.6)):
        assert abs(seen[name] - 2000 * share) < 4 * (2000 * share * (1 - share)) ** 0.5, seen


@pytest.mark.parametrize("name", task_names())
def test_a_sequence_of_a_task_is_whole_examples_whose_answers_are_the_targets(
    name: str, prepared: Prepared
) -> None:
    mixed = mixture(prepared, **{name: 1.0})
    least = build_task(name, prepared.tokenizer, mixed.text.pack).least
    pieces, lengths = prepared.tokenizer.pieces, []
    for index in mixed.order(0, 0, 60).tolist():
        inputs, labels = mixed.read(index, 0, LENGTH)
        assert inputs.dtype == labels.dtype == np.int64 and len(inputs) == len(labels) == LENGTH
        counted = labels != IGNORED
        assert counted.sum() == mixed.target_count(index) > 0
        assert (labels[:-1] == inputs[1:])[counted[:-1]].all()
        last = labels[-1] if counted[-1] else 1
        tokens, targets = np.append(inputs, last), np.append(False, counted)
        starts = [*np.flatnonzero(tokens == 1), len(tokens)]
        assert starts[0] == 0
        examples = [slice(a, b) for a, b in pairwise(starts) if b - a > 1]
        for one in examples:
            answered = targets[one]
            assert np.flatnonzero(answered).tolist() == list(
                range(len(answered) - answered.sum(), len(answered))
            )
            prompt = b"".join(pieces[i] for i in tokens[one][~answered])
            answer = b"".join(pieces[i] for i in tokens[one][answered])
            assert answer == answer_of(name, prompt)
            lengths.append(one.stop - one.start - 1)
        assert (tokens[examples[-1].stop :] == 1).all()
        assert len(tokens) - examples[-1].stop <= least, "another example would have fitted"
    # uniform at first: short and long ones
    assert min(lengths) < least + LENGTH // 8 and max(lengths) > LENGTH - (LENGTH - least) // 4


def test_slices_join_to_the_whole_and_are_those_of_the_text(prepared: Prepared) -> None:
    mixed = mixture(prepared, passkey=0.5)
    for index in mixed.order(0, 0, 8).tolist():
        whole = np.stack(mixed.read(index, 0, LENGTH))
        parts = [np.stack(mixed.read(index, 60 * i, 60 * i + 60)) for i in range(4)]
        assert np.array_equal(np.concatenate(parts, axis=1), whole)
        if index >= 0:
            assert np.array_equal(whole, np.stack(mixed.text.read(index, 0, LENGTH)))
            assert mixed.target_count(index) == LENGTH
    with pytest.raises(IndexError, match="places 0..241"):
        mixed.read(-1, 0, LENGTH + 1)


def global_batches(prepared: Prepared, mesh: tuple[int, int], accumulate: int) -> list[Ids]:
    """[2, BATCH, LENGTH] tokens and labels of every step, from what the ranks read."""
    world, parts = mesh
    run = config(copy=0.2, passkey=0.2, addition=0.1)
    run.trainer.accumulate = accumulate
    ranks = [
        MicroBatches(
            training_sequences(run, prepared), run, Mesh(world, r, parts), ConsecutiveIds(SHAPE)
        )
        for r in range(world)
    ]
    batches = []
    for step in range(STEPS):
        rows = []
        for micro in range(accumulate):
            items = [rank[step * accumulate + micro] for rank in ranks]
            for first in range(0, world, parts):
                group = items[first : first + parts]
                both = [np.concatenate([i[k] for i in group], 1) for k in ("tokens", "labels")]
                rows.append(np.stack(both))
        batches.append(np.concatenate(rows, axis=1))
        counted = int((batches[-1][1] != IGNORED).sum())
        assert {item["step_tokens"] for item in items} == {counted}
    return batches


@pytest.mark.parametrize(
    ("mesh", "accumulate"), [((2, 1), 1), ((2, 2), 1), ((1, 1), 2), ((4, 2), 2), ((4, 4), 1)]
)
def test_every_world_sees_the_same_global_batches(
    prepared: Prepared, mesh: tuple[int, int], accumulate: int
) -> None:
    reference = global_batches(prepared, (1, 1), 1)
    found = global_batches(prepared, mesh, accumulate)
    assert all(np.array_equal(a, b) for a, b in zip(found, reference, strict=True))
    assert len({batch.tobytes() for batch in reference}) == STEPS
    assert any((batch[1] == IGNORED).any() for batch in reference)


def test_a_task_that_does_not_fit_is_refused(prepared: Prepared) -> None:
    def at(length: int, **shares: float) -> Mixture:
        return mixture_of(replace(config(**shares), train_length=length), prepared)

    least = build_task("passkey", prepared.tokenizer, prepared.split("train")).least
    assert at(least, passkey=0.5).length == least
    words = f"`data.mix.passkey` = 0.5 is not allowed: .* at least {least} tokens, `train_length`"
    with pytest.raises(ConfigError, match=words):
        at(least - 1, passkey=0.5)
    most = prepared.split("train").n_tokens - 1
    with pytest.raises(DataError, match="needles are to be hidden among"):
        at(most, passkey=0.5)
    assert at(most, copy=0.5).length == most
