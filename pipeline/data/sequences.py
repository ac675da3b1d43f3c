"""Training sequences of a pack, and the order in which optimizer steps read them.

Sequence i of length L has the inputs tokens[i L : (i + 1) L]; its labels are the same slice one
token further on. Every token but the first one and the last (n_tokens - 1) mod L of the pack is
the target of exactly one sequence.
"""

import hashlib

import numpy as np
import numpy.typing as npt

from pipeline.data.pack import Pack
from pipeline.errors import DataError

_ROUNDS = 6


class Sequences:
    """The whole training sequences of `length` tokens in a pack; `len()` is their number."""

    def __init__(self, pack: Pack, length: int) -> None:
        """Raises DataError, naming needed and available tokens, if not one sequence fits."""
        if pack.n_tokens < length + 1:
            raise DataError(
                f"the {pack.split} split has {pack.n_tokens} tokens, but one training sequence "
                f"needs {length + 1} (train_length {length} and one more as the last target): add "
                f"text or lower train_length"
            )
        self.pack = pack
        self.length = length
        self._count = (pack.n_tokens - 1) // length

    def __len__(self) -> int:
        return self._count

    def order(self, seed: int, step: int, batch: int) -> npt.NDArray[np.int64]:
        """int64 [batch]: the sequences of the global batch of `step`, see `step_indices`."""
        return step_indices(seed, step, batch, len(self))

    @property
    def remainder(self) -> int:
        """Tokens at the end of the pack that are no sequence's target: fewer than `length`."""
        return self.pack.n_tokens - 1 - self._count * self.length

    def target_count(self, i: int) -> int:
        """Real target tokens of sequence i: `length`, as sequences are never padded."""
        self._check(i)
        return self.length

    def read(
        self, i: int, start: int, stop: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Inputs and labels, each int64 [stop - start], of places start..stop of sequence i.

        Only these tokens (and one more) are read from the disk. Raises IndexError for a sequence
        or place that does not exist.
        """
        self._check(i)
        if not 0 <= start <= stop <= self.length:
            raise IndexError(f"places {start}..{stop} of a sequence of {self.length} tokens")
        first = i * self.length
        tokens = self.pack.tokens[first + start : first + stop + 1].astype(np.int64)
        return tokens[: stop - start], tokens[1:]

    def _check(self, i: int) -> None:
        if not 0 <= i < self._count:
            raise IndexError(f"sequence {i} of {self._count}")


def step_indices(seed: int, step: int, batch: int, n: int) -> npt.NDArray[np.int64]:
    """int64 [batch]: which of n sequences the global batch of `step` (from 0) holds.

    A pure function: the state of a loader is the step alone, and every world size sees the same
    batches. Each epoch is a fresh permutation of all n, drawn from (seed, epoch); a batch that
    meets the end of an epoch goes on in the next.
    """
    if step < 0 or batch < 1 or n < 1:
        raise ValueError(f"step {step}, batch {batch}, n {n}: step >= 0, batch >= 1 and n >= 1")
    return ordered(seed, step * batch, (step + 1) * batch, n)


def ordered(seed: int, start: int, stop: int, n: int) -> npt.NDArray[np.int64]:
    """int64 [stop - start]: places start..stop of the endless order of n sequences, by epochs."""
    epochs = range(start // n, -(-stop // n))
    parts = [
        _permuted(seed, epoch, max(start - epoch * n, 0), min(stop - epoch * n, n), n)
        for epoch in epochs
    ]
    return np.concatenate([np.empty(0, dtype=np.int64), *parts])


def _permuted(seed: int, epoch: int, start: int, stop: int, n: int) -> npt.NDArray[np.int64]:
    """Places start..stop of the permutation of range(n) that belongs to (seed, epoch).

    A keyed Feistel network permutes the next power of four; places that fall outside range(n) are
    sent through again. So one place costs the same however large n is, and nothing is stored.
    """
    half = max(((n - 1).bit_length() + 1) // 2, 1)
    digest = hashlib.sha512(f"{seed}:{epoch}".encode()).digest()
    keys = np.frombuffer(digest, dtype="<u8")[:_ROUNDS]
    places = np.arange(start, stop, dtype=np.uint64)
    outside = np.ones(len(places), dtype=bool)
    while outside.any():
        places[outside] = _feistel(places[outside], keys, half)
        outside = places >= n
    return places.astype(np.int64)


def _feistel(
    places: npt.NDArray[np.uint64], keys: npt.NDArray[np.uint64], half: int
) -> npt.NDArray[np.uint64]:
    mask = np.uint64((1 << half) - 1)
    left, right = places >> np.uint64(half), places & mask
    for key in keys:
        left, right = right, left ^ (_mixed(right ^ key) & mask)
    return (left << np.uint64(half)) | right


def _mixed(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of splitmix64: every output bit depends on every input bit."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
