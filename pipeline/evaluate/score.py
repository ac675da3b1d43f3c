"""Scores windows: fp32 nats of every scored target, over all ranks, in bounded memory.

Batches go round the data-parallel groups; within a group each rank computes its part of every
sequence. All ranks run equally many forwards, as ZeRO-3's gathers need.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
        starts = np.concatenate([[0], np.cumsum([w.scored for w in windows])])
        nats = torch.zeros(int(starts[-1]), dtype=torch.float64, device=self.device)
        times = torch.zeros_like(nats)
        batches = batches_of(windows, self.batch_tokens)
        groups = self.mesh.data_parallel
        training = self.decoder.training
        self.decoder.eval()
        for turn in range(-(-len(batches) // groups)):
            number = turn * groups + self.mesh.data_rank
            batch = batches[min(number, len(batches) - 1)]
            values = self._forward([windows[i] for i in batch], documents)
            together = batches[turn * groups : (turn + 1) * groups]
            self.progress(sum(windows[i].length for b in together for i in b))
            if number >= len(batches):
                continue
            for i, row in zip(batch, values, strict=True):
                self._place(windows[i], row, int(starts[i]), nats, times)
        self.decoder.train(training)
        if dist.is_initialized():
            dist.all_reduce(nats)
            dist.all_reduce(times)
        if not bool((times == 1).all()):
            raise AssertionError("a target was not scored exactly once")
        return nats.cpu().numpy()

    @torch.no_grad()
    def _forward(self, windows: Sequence[Window], documents: Sequence[Ids]) -> torch.Tensor:
        """Windows of one length L -> fp32 nats [B,T] of this rank's tokens."""
        length = windows[0].length
        shown = np.stack([documents[w.document][w.start : w.stop + 1] for w in windows])
        labels = np.full((len(windows), length), IGNORED)
        for row, window in zip(labels, windows, strict=True):
            row[length - window.scored :] = documents[window.document][
                window.stop - window.scored + 1 : window.stop + 1
            ]
        here = self.exchange.tokens(length)
        inputs = shown[:, :length]
        nats: torch.Tensor = self.decoder(
            torch.from_numpy(inputs[:, here]).to(self.device),
            torch.from_numpy(labels[:, here]).to(self.device),
            self.decoder.test_ids(inputs).to(self.device),
            self.exchange,
            consecutive=self.decoder.position_ids.tests_consecutive,
        )
        return nats

    def _place(
        self,
        window: Window,
        row: torch.Tensor,
        start: int,
        nats: torch.Tensor,
        times: torch.Tensor,
    ) -> None:
        """Put this rank's scored values of one window where they belong in the whole."""
        here = range(window.length)[self.exchange.tokens(window.length)]
        first = window.length - window.scored
        skipped = max(0, -((here.start - first) // here.step))
        scored = here[skipped:]
        if scored:
            places = slice(start + scored[0] - first, start + scored[-1] - first + 1, here.step)
            nats[places] = row[skipped:].double()
            times[places] += 1
