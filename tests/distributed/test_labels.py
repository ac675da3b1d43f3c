"""Labels at the edges of what ranks hold: the last token of a rank is told what follows it, which
the next rank holds."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from pipeline.data.module import MicroBatches
from pipeline.data.pack import Pack, PackWriter
from pipeline.data.sequences import Sequences
from pipeline.parallel.mesh import Mesh
from pipeline.positions.ids.consecutive import ConsecutiveIds
from tests.distributed.test_order import SHAPE
from tests.distributed.toy import toy_config


def pack_of(folder: Path) -> Pack:
    """One document, whose token at place t is t + 1."""
    with PackWriter(folder, "train", 300) as writer:
        writer.add(2 + np.arange(298), 298)
        return Pack(folder, "train", writer.close())


@pytest.mark.parametrize("length", [1, 7, 9, 16, 21, 33])
@pytest.mark.parametrize(("parts", "ring"), [(2, 1), (4, 1), (8, 1), (2, 2), (8, 8), (8, 2)])
def test_the_label_of_every_token_is_the_token_after_it(
    length: int, parts: int, ring: int, tmp_path: Path
) -> None:
    """Odd lengths, and lengths of which some ranks hold nothing, included."""
    config = toy_config("none")
    sequences = Sequences(pack_of(tmp_path), length)
    places = [np.arange(length)[Mesh(parts, r, parts, ring).tokens(length)] for r in range(parts)]
    ranks = [
        MicroBatches(sequences, config, Mesh(parts, r, parts, ring), ConsecutiveIds(SHAPE))
        for r in range(parts)
    ]
    for step in range(2):
        shape = config.trainer.batch_sequences, length
        tokens, labels = np.full(shape, -1), np.full(shape, -1)
        for here, rank in zip(places, ranks, strict=True):
            item = rank[step]
            tokens[:, here], labels[:, here] = item["tokens"], item["labels"]
        assert np.array_equal(labels[:, :-1], tokens[:, 1:])
        assert np.array_equal(labels[:, -1], tokens[:, -1] + 1)
    if ring == 1:
        edges = [here for here in places if len(here)]
        assert all(a[-1] + 1 == b[0] for a, b in itertools.pairwise(edges))
