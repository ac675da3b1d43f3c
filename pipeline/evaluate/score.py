"""Scores windows: nats, and if asked ranks, of every target, over all ranks, in bounded memory.

Batches go round the data-parallel groups; within a group each rank computes its part of every
sequence. All ranks run equally many forwards, as ZeRO-3's gathers need.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from pipeline.evaluate.windows import Window
from pipeline.model.decoder import Decoder
from pipeline.model.exchange import Exchange
from pipeline.model.loss import IGNORED
from pipeline.parallel.mesh import Mesh

Ids = npt.NDArray[np.int64]


class Standings(NamedTuple):
    """Of each scored target, [N]: nats, rank among all tokens and rank among given choices.

    Rank 1 is strictly more likely than every other; ties count against the target.
    """

    nats: npt.NDArray[np.float64]
    rank: Ids
    among: Ids


def batches_of(windows: Sequence[Window], batch_tokens: int) -> list[list[int]]:
    """Window numbers in batches of equal length, at most `batch_tokens` tokens (or one window)."""
    by_length: dict[int, list[int]] = {}
    for number, window in enumerate(windows):
        by_length.setdefault(window.length, []).append(number)
    batches = []
    for length, numbers in by_length.items():
        rows = max(1, batch_tokens // length)
        batches += [numbers[i : i + rows] for i in range(0, len(numbers), rows)]
    return batches


@dataclass
class Scorer:
    """A decoder with this rank's place; `progress` is told how many tokens were just shown."""

    decoder: Decoder
    mesh: Mesh
    exchange: Exchange
    device: torch.device
    batch_tokens: int
    progress: Callable[[int], object] = lambda tokens: None

    @property
    def precision(self) -> str:
        """fp32 or bf16: what the decoder's weights are held in now."""
        dtype = next(self.decoder.parameters()).dtype
        return {torch.float32: "fp32", torch.bfloat16: "bf16"}[dtype]

    def score(self, windows: Sequence[Window], documents: Sequence[Ids]) -> npt.NDArray[np.float64]:
        """Nats of the scored targets of every window, window after window, in text order.

        Returns:
            [sum of scored] fp64, the same on all ranks.
        """
        return self._gather(windows, documents, None)[:, 0]

    def standings(
        self, windows: Sequence[Window], documents: Sequence[Ids], choices: Ids
    ) -> Standings:
        """As `score`, with the ranks of the targets among all tokens and among `choices` [C]."""
        found = self._gather(windows, documents, torch.from_numpy(choices).to(self.device))
        nats, rank, among = found.T
        return Standings(nats, rank.astype(np.int64), among.astype(np.int64))

    def _gather(
        self, windows: Sequence[Window], documents: Sequence[Ids], choices: torch.Tensor | None
    ) -> npt.NDArray[np.float64]:
        """The values of every scored target from all ranks, [sum of scored, 1 or 3]."""
        starts = np.concatenate([[0], np.cumsum([w.scored for w in windows])])
        columns = 1 if choices is None else 3
        found = torch.zeros(int(starts[-1]), columns, dtype=torch.float64, device=self.device)
        times = torch.zeros(len(found), dtype=torch.float64, device=self.device)
        batches = batches_of(windows, self.batch_tokens)
        groups = self.mesh.data_parallel
        training = self.decoder.training
        self.decoder.eval()
        for turn in range(-(-len(batches) // groups)):
            number = turn * groups + self.mesh.data_rank
            batch = batches[min(number, len(batches) - 1)]
            values = self._forward([windows[i] for i in batch], documents, choices)
            together = batches[turn * groups : (turn + 1) * groups]
            self.progress(sum(windows[i].length for b in together for i in b))
            if number >= len(batches):
                continue
            for i, row in zip(batch, values, strict=True):
                self._place(windows[i], row, int(starts[i]), found, times)
        self.decoder.train(training)
        if dist.is_initialized():
            dist.all_reduce(found)
            dist.all_reduce(times)
        if not bool((times == 1).all()):
            raise AssertionError("a target was not scored exactly once")
        return found.cpu().numpy()

    @torch.no_grad()
    def _forward(
        self, windows: Sequence[Window], documents: Sequence[Ids], choices: torch.Tensor | None
    ) -> torch.Tensor:
        """Windows of one length L -> fp32 values [B,T,1 or 3] of this rank's tokens."""
        length = windows[0].length
        shown = np.stack([documents[w.document][w.start : w.stop + 1] for w in windows])
        labels = np.full((len(windows), length), IGNORED)
        for row, window in zip(labels, windows, strict=True):
            row[length - window.scored :] = documents[window.document][
                window.stop - window.scored + 1 : window.stop + 1
            ]
        here = self.exchange.tokens(length)
        inputs = shown[:, :length]
        shared = (
            torch.from_numpy(inputs[:, here]).to(self.device),
            torch.from_numpy(labels[:, here]).to(self.device),
            self.decoder.test_ids(inputs).to(self.device),
        )
        consecutive = self.decoder.position_ids.tests_consecutive
        if choices is not None:
            return self.decoder.standings(*shared, choices, self.exchange, consecutive)
        nats: torch.Tensor = self.decoder(*shared, self.exchange, consecutive)
        return nats.unsqueeze(-1)

    def _place(
        self,
        window: Window,
        row: torch.Tensor,
        start: int,
        found: torch.Tensor,
        times: torch.Tensor,
    ) -> None:
        """Put this rank's scored values of one window where they belong in the whole."""
        here = range(window.length)[self.exchange.tokens(window.length)]
        first = window.length - window.scored
        skipped = max(0, -((here.start - first) // here.step))
        scored = here[skipped:]
        if scored:
            places = slice(start + scored[0] - first, start + scored[-1] - first + 1, here.step)
            found[places] = row[skipped:].double()
            times[places] += 1
