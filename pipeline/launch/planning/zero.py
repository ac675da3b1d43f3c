"""What DeepSpeed's ZeRO keeps on each rank and needs around a step, in bytes.

Read in deepspeed 0.19 (runtime/zero/stage_1_and_2.py, stage3.py), as Farsight sets it up
(`pipeline.training.strategy`), and held to measured memory by tests. N parameters in all, W ranks,
b bytes of a number in the training precision. Under every stage masters and moments are fp32 and
parted among all ranks; gradients are reduced in fp32.

The bucket that gradients are moved to before they are reduced has 5e8 numbers. A GPU reserves all
of it, about 1.9 GiB in fp32, however small the model; on a CPU it takes what is written to it.
"""

from dataclasses import dataclass

BUCKET = 500_000_000
WIDE = 4


@dataclass(frozen=True)
class Zero:
    """One stage: N parameters of `size` bytes each on `world` ranks of a device type."""

    stage: int
    parameters: int
    world: int
    size: int
    accumulate: int = 1
    device: str = "cpu"

    @property
    def share(self) -> int:
        """Parameters whose masters a rank keeps."""
        return -(-self.parameters // self.world)

    @property
    def gradients(self) -> str:
        """What becomes of a gradient when it is made, in the words of `planning.trace.Place`.

        On a CPU the bucket takes as much as the gradients in it, where a GPU has it already.
        """
        if self.stage == 1:
            return "kept" if self.size == WIDE else "widened"
        return "moved" if self.device == "cuda" or self.stage == 3 else "kept"

    @property
    def micro_batches(self) -> int:
        """How many have gradients on the rank at once, as far as these are not reduced apart."""
        return min(2, self.accumulate) if self.stage == 1 else 1

    @property
    def kept(self) -> dict[str, int]:
        """Bytes of what is there from the first step to the last."""
        weights = self.share if self.stage == 3 else self.parameters
        kept = {
            "weights": weights * self.size,
            "masters": self.share * WIDE,
            "moments": self.share * 2 * WIDE,
            "gradients": self.share * WIDE if self.stage == 3 else 0,
            "bucket": self._bucket(WIDE) if self.stage == 3 else 0,
        }
        return kept

    @property
    def during_backward(self) -> int:
        """Bytes beside `kept` and what a trace counts, at the most of a micro-batch.

        Stage 3 gathers weights, of models below 1e9 parameters all, until they are used no more.
        """
        if self.stage == 3:
            return self.parameters * self.size
        reserved = self._bucket(self._staged) if self.device == "cuda" else 0
        return reserved + self._earlier

    @property
    def during_reduction(self) -> int:
        """Bytes beside `kept` while gradients are reduced, when activations are gone.

        They lie in the bucket; a copy of them, put in the order of the ranks, is reduced, and the
        rank keeps its share. Of one rank, whose order it is already, the share is the copy.
        """
        whole = self.parameters * WIDE
        if self.stage == 3:
            # gloo scatters a copy of what it is handed, NCCL the same memory
            copied = self._bucket(WIDE) if self.device == "cpu" and self.world > 1 else 0
            return whole + self.parameters * self.size + copied
        copies = 0 if self.world == 1 else self.parameters * self._staged
        share, together = self.share * WIDE, copies + self.share * WIDE
        if self._staged != WIDE:
            together += whole
        elif self.size == WIDE:
            # the copy is freed before the share is made
            together = max(copies, share)
        return self._bucket(self._staged) + together + self._earlier

    @property
    def exchanged(self) -> dict[str, int]:
        """Bytes a rank sends in one optimizer step, as rings do it: 2 (W - 1) / W of what all
        reduce, (W - 1) / W of what is gathered or scattered."""
        part = (self.world - 1) / self.world
        weights, wide = self.parameters * self.size * part, self.parameters * WIDE * part
        if self.stage == 3:
            found = (wide * self.accumulate, 2 * weights * self.accumulate)
        else:
            rounds = self.accumulate if self.stage == 2 else 1
            found = (2 * wide * rounds, weights)
        return dict(zip(("gradients", "weights"), map(round, found), strict=True))

    @property
    def _staged(self) -> int:
        """Bytes of a number in the bucket."""
        return self.size if self.stage == 2 else WIDE

    @property
    def _earlier(self) -> int:
        """What earlier micro-batches left, where each is reduced by itself."""
        return self.share * WIDE if self.stage == 2 and self.accumulate > 1 else 0

    def _bucket(self, size: int) -> int:
        taken = BUCKET if self.device == "cuda" else min(BUCKET, self.parameters)
        return taken * size
