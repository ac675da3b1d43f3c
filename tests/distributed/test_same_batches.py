"""The token ids of global batch k are the same whatever encoding and position ids read them."""

import functools
import hashlib

import numpy as np
import pytest

from pipeline.data.module import MicroBatches
from pipeline.model.decoder import Decoder
from pipeline.parallel.mesh import Mesh
from pipeline.positions import registry
from tests.distributed.toy import VOCAB, ToySequences, toy_config

STEPS = 20
# settings that schemes of position ids cannot do without, or that fit a toy
SETTINGS: dict[str, dict[str, int]] = {
    "pose": {"target_length": 60},
    "randomized": {"positions": 60},
    "segments": {"places": 4},
    "shifted": {"largest_shift": 7},
}


@functools.cache
def digests(position: str, ids: str = "consecutive") -> list[str]:
    """sha256 of tokens and labels of each step's global batch, as two ranks read it for a model of
    this encoding and these position ids."""
    config = toy_config(position, sequence_parallel=1)
    config.position_ids = {"name": ids, **SETTINGS.get(ids, {})}
    config.trainer.max_steps = STEPS
    scheme = Decoder(config).position_ids
    scheme.read_vocabulary([b"a." if token % 5 == 0 else b"a" for token in range(VOCAB)])
    ranks = [MicroBatches(ToySequences(), config, Mesh(2, rank), scheme) for rank in range(2)]
    found = []
    for step in range(STEPS):
        items = [rank[step] for rank in ranks]
        rows = [np.concatenate([item["tokens"], item["labels"]], axis=1) for item in items]
        found.append(hashlib.sha256(np.concatenate(rows).tobytes()).hexdigest())
    return found


@pytest.mark.parametrize("position", registry.names())
def test_every_encoding_sees_the_same_global_batches(position: str) -> None:
    assert len(set(digests("none"))) == STEPS
    assert digests(position) == digests("none")


@pytest.mark.parametrize("ids", registry.ids_names())
def test_every_numbering_sees_the_same_global_batches(ids: str) -> None:
    """sinusoidal can be trained under all of them."""
    assert digests("sinusoidal", ids) == digests("none")
