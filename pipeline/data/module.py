"""The LightningDataModule: micro-batch n of a rank is a pure function of (seed, n, its place)."""

from typing import Any, Protocol

import lightning as L
import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, Dataset

from pipeline.config.schema import Config
from pipeline.parallel.mesh import Mesh
from pipeline.parallel.signals import ignore_stops, stops_held
from pipeline.positions.position_ids import PositionIds, generator, pack_ids

Ids = npt.NDArray[np.int64]


class _Loader(DataLoader[dict[str, Any]]):
    """Its processes begin deaf to requests to stop: until `ignore_stops` runs in them, torch's own
    handler would end them."""

    def __iter__(self) -> Any:
        with stops_held():
            return super().__iter__()


class TrainingSequences(Protocol):
    """What training reads from: the text of a pack (`pipeline.data.sequences.Sequences`), or that
    mixed with tasks (`pipeline.data.mixture.Mixture`)."""

    length: int

    def order(self, seed: int, step: int, batch: int) -> Ids:
        """int64 [batch]: the sequences of the global batch of `step`, each named by a number."""

    def read(self, index: int, start: int, stop: int) -> tuple[Ids, Ids]:
        """Inputs and labels, each int64 [stop - start], of places [start, stop)."""

    def target_count(self, index: int) -> int:
        """Labels of the whole sequence that are not ignored."""


class MicroBatches(Dataset[dict[str, Any]]):
    """Item n = micro-batch n of this rank: its sequences, and of each only its tokens.

    The global batch of step k is `sequences.order(seed, k, ...)`, cut into `accumulate`
    micro-batches of data_parallel shares each; every world that divides it sees the same. Items
    hold tokens and labels [B,T] int64, the ids of whole sequences as `pack_ids` makes them, the
    step, and `step_tokens`, the target tokens of the whole optimizer step over all ranks, which the
    loss is divided by. Ids are drawn from (seed, step, place in the global batch). Order and ids
    count steps from the beginning of the first run, of which `done_before` are behind this one.
    Item 0 is the first of step `first`: where training goes on, if it was broken off.
    """

    def __init__(
        self,
        sequences: TrainingSequences,
        config: Config,
        mesh: Mesh,
        scheme: PositionIds,
        done_before: int = 0,
        first: int = 0,
    ) -> None:
        self.sequences, self.seed, self.scheme = sequences, config.seed, scheme
        self.done_before, self.first = done_before, first
        self.batch, self.accumulate = config.trainer.batch_sequences, config.trainer.accumulate
        self.groups, self.group = mesh.data_parallel, mesh.data_rank
        self.here = mesh.tokens(sequences.length)
        self.total = (config.trainer.max_steps - first) * self.accumulate

    def __len__(self) -> int:
        return self.total

    def __getitem__(self, number: int) -> dict[str, Any]:
        step, part = divmod(self.first * self.accumulate + number, self.accumulate)
        counted = self.done_before + step
        indices = self.sequences.order(self.seed, counted, self.batch)
        share = indices.reshape(self.accumulate, self.groups, -1)[part, self.group]
        length, every = self.sequences.length, self.here.step
        start, stop = min(self.here.start, length), min(self.here.stop, length)
        rows = [self.sequences.read(int(i), start, stop) for i in share]
        places = np.arange(len(indices)).reshape(self.accumulate, self.groups, -1)
        return {
            "ids": self._ids(counted, share, places[part, self.group]),
            "tokens": torch.from_numpy(np.stack([inputs[::every] for inputs, _ in rows])),
            "labels": torch.from_numpy(np.stack([labels[::every] for _, labels in rows])),
            "step": step,
            "step_tokens": sum(self.sequences.target_count(int(i)) for i in indices),
        }

    def _ids(self, step: int, share: Ids, places: Ids) -> torch.Tensor:
        """Sequences `share` at `places` of the global batch -> their ids, [B,S] or [1,S]."""
        length, ids = self.sequences.length, []
        for sequence, place in zip(share, places, strict=True):
            tokens = None
            if self.scheme.reads_tokens:
                tokens, _ = self.sequences.read(int(sequence), 0, length)
            draw = generator(self.seed, step, int(place))
            ids.append(self.scheme.drawn(length, tokens, draw))
        return pack_ids(ids)


class TrainingData(L.LightningDataModule):
    """Feeds `MicroBatches` to the trainer; the rank's place comes from the strategy's mesh."""

    def __init__(
        self,
        sequences: TrainingSequences,
        config: Config,
        scheme: PositionIds,
        done_before: int = 0,
        first: int = 0,
    ) -> None:
        super().__init__()
        self.sequences, self.config, self.scheme = sequences, config, scheme
        self.done_before, self.first = done_before, first

    def train_dataloader(self) -> DataLoader[dict[str, Any]]:
        """All micro-batches of the run that are left, in order."""
        mesh = self.trainer.strategy.mesh  # type: ignore[union-attr]
        done = self.done_before, self.first
        return _Loader(
            MicroBatches(self.sequences, self.config, mesh, self.scheme, *done),
            batch_size=None,
            shuffle=False,
            num_workers=self.config.data.workers,
            worker_init_fn=ignore_stops,
        )
