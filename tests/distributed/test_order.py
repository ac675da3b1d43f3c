"""The token ids of global batch k are the same however many ranks read them."""

import hashlib

import numpy as np
import pytest
import torch

from pipeline.data.module import MicroBatches
from pipeline.parallel.mesh import Mesh
from pipeline.positions.base import Shape
from pipeline.positions.ids.consecutive import ConsecutiveIds
from pipeline.positions.ids.pose import SkippedIds
from tests.distributed.toy import BATCH, LENGTH, ToySequences, toy_config

STEPS = 200
# there are too few different ids for more that all differ
DRAWN = 50
SHAPE = Shape(width=32, layers=2, heads=4, train_length=LENGTH)


class Watched(ToySequences):
    """Remembers the widest slice of one sequence that was read."""

    widest = 0

    def read(self, index: int, start: int, stop: int):  # type: ignore[no-untyped-def]
        self.widest = max(self.widest, stop - start)
        return super().read(index, start, stop)


def digests(world: int, sequence_parallel: int, accumulate: int = 1) -> list[str]:
    """sha256 of the whole global batch of each step, put together from what the ranks read."""
    config = toy_config("none", accumulate=accumulate)
    config.trainer.max_steps = STEPS
    ranks = []
    for rank in range(world):
        data = Watched()
        ranks.append(
            MicroBatches(data, config, Mesh(world, rank, sequence_parallel), ConsecutiveIds(SHAPE))
        )
        assert len(ranks[-1]) == STEPS * accumulate
    found = []
    for step in range(STEPS):
        rows = []
        for micro in range(accumulate):
            items = [rank[step * accumulate + micro] for rank in ranks]
            assert {item["step"] for item in items} == {step}
            for group in range(world // sequence_parallel):
                own = items[group * sequence_parallel : (group + 1) * sequence_parallel]
                both = [np.concatenate([i[k] for i in own], 1) for k in ("tokens", "labels")]
                rows.append(np.concatenate(both, axis=1))
        batch = np.concatenate(rows)
        counted = int((batch[:, 21:] != -100).sum())
        assert {item["step_tokens"] for item in items} == {counted}
        found.append(hashlib.sha256(batch.tobytes()).hexdigest())
    widest = max(rank.sequences.widest for rank in ranks)  # type: ignore[attr-defined]
    assert widest == -(-21 // sequence_parallel), "a rank read more than its slice"
    return found


@pytest.mark.parametrize(
    ("world", "sequence_parallel", "accumulate"),
    [(2, 1, 1), (2, 2, 1), (1, 1, 2), (4, 2, 2), (4, 4, 1), (4, 1, 1)],
)
def test_every_world_sees_the_same_global_batches(
    world: int, sequence_parallel: int, accumulate: int
) -> None:
    reference = digests(1, 1)
    assert digests(world, sequence_parallel, accumulate) == reference
    assert len(set(reference)) == STEPS


def test_batches_are_a_pure_function_of_their_number() -> None:
    config = toy_config("none")
    config.trainer.max_steps = STEPS
    items = MicroBatches(ToySequences(), config, Mesh(), ConsecutiveIds(SHAPE))
    forward = [items[n]["tokens"].numpy().tobytes() for n in range(STEPS)]
    order = np.random.default_rng(0).permutation(STEPS)
    again = {int(n): items[int(n)]["tokens"].numpy().tobytes() for n in order}
    assert forward == [again[n] for n in range(STEPS)]
    config.seed += 1
    other = MicroBatches(ToySequences(), config, Mesh(), ConsecutiveIds(SHAPE))
    assert [other[n]["tokens"].numpy().tobytes() for n in range(STEPS)] != forward


def drawn_ids(world: int, sequence_parallel: int, accumulate: int = 1) -> list[list[list[int]]]:
    """The ids of the whole global batch of each step, put together from what the ranks have."""
    config = toy_config("rope", accumulate=accumulate)
    config.trainer.max_steps = DRAWN
    scheme = SkippedIds(SHAPE, target_length=200)
    meshes = [Mesh(world, rank, sequence_parallel) for rank in range(world)]
    ranks = [MicroBatches(ToySequences(), config, mesh, scheme) for mesh in meshes]
    found = []
    for step in range(DRAWN):
        rows: list[list[int]] = []
        for micro in range(accumulate):
            items = [rank[step * accumulate + micro]["ids"] for rank in ranks]
            for first in range(0, world, sequence_parallel):
                group = items[first : first + sequence_parallel]
                assert all(torch.equal(ids, group[0]) for ids in group), "one sequence, other ids"
                rows += group[0].tolist()
        found.append(rows)
    return found


@pytest.mark.parametrize(
    ("world", "sequence_parallel", "accumulate"), [(1, 1, 2), (2, 1, 1), (2, 2, 2), (4, 2, 1)]
)
def test_every_world_draws_the_same_ids(
    world: int, sequence_parallel: int, accumulate: int
) -> None:
    reference = drawn_ids(1, 1)
    assert drawn_ids(world, sequence_parallel, accumulate) == reference
    every = [tuple(row) for rows in reference for row in rows]
    assert len(every) == DRAWN * BATCH and len(set(every)) > 0.9 * len(every)
