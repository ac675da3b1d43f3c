"""The token ids of global batch k are the same however many ranks read them."""

import hashlib

import numpy as np
import pytest

from pipeline.data.module import MicroBatches
from pipeline.parallel.mesh import Mesh
from tests.distributed.toy import ToySequences, toy_config

STEPS = 50


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
        ranks.append(MicroBatches(data, config, Mesh(world, rank, sequence_parallel)))
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
    items = MicroBatches(ToySequences(), config, Mesh())
    forward = [items[n]["tokens"].numpy().tobytes() for n in range(STEPS)]
    order = np.random.default_rng(0).permutation(STEPS)
    again = {int(n): items[int(n)]["tokens"].numpy().tobytes() for n in order}
    assert forward == [again[n] for n in range(STEPS)]
    config.seed += 1
    other = MicroBatches(ToySequences(), config, Mesh())
    assert [other[n]["tokens"].numpy().tobytes() for n in range(STEPS)] != forward
