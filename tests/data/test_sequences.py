"""Training sequences and their order: every target once an epoch, order a pure function of step."""

import hashlib
import random
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from pipeline.data.pack import Pack, PackFacts, PackWriter
from pipeline.data.sequences import Sequences, step_indices
from pipeline.errors import DataError


def pack_of(folder: Path, tokens: int) -> Pack:
    """A pack with one document whose token at place t is 2 + t mod 297."""
    with PackWriter(folder, "train", 300) as writer:
        writer.add(2 + np.arange(1, tokens) % 297, tokens)
        return Pack(folder, "train", writer.close())


@pytest.mark.parametrize(
    ("tokens", "length"), [(17, 16), (32, 16), (100, 7), (1000, 128), (129, 128)]
)
def test_every_token_is_a_target_exactly_once(tmp_path: Path, tokens: int, length: int) -> None:
    sequences = Sequences(pack_of(tmp_path, tokens), length)
    stream = sequences.pack.tokens.tolist()
    labels: list[int] = []
    for i in range(len(sequences)):
        inputs, targets = sequences.read(i, 0, length)
        assert inputs.dtype == targets.dtype == np.int64
        assert inputs.tolist() == stream[i * length : (i + 1) * length]
        assert sequences.target_count(i) == len(targets) == length
        labels += targets.tolist()
    assert labels == stream[1 : 1 + len(labels)]
    assert 1 + len(labels) + sequences.remainder == tokens
    assert 0 <= sequences.remainder < length


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_slices_of_the_ranks_join_to_the_whole(tmp_path: Path, ranks: int) -> None:
    sequences = Sequences(pack_of(tmp_path, 1000), 128)
    share = 128 // ranks
    for i in range(len(sequences)):
        whole = np.stack(sequences.read(i, 0, 128))
        parts = [sequences.read(i, r * share, (r + 1) * share) for r in range(ranks)]
        assert np.array_equal(np.concatenate([np.stack(p) for p in parts], axis=1), whole)


class Watched:
    """Tokens that note which places are read."""

    def __init__(self, tokens: npt.NDArray[np.integer]) -> None:
        self.tokens = tokens
        self.asked: list[slice] = []

    def __getitem__(self, places: slice) -> npt.NDArray[np.integer]:
        self.asked.append(places)
        return self.tokens[places]


def test_reading_a_slice_touches_only_that_slice(tmp_path: Path) -> None:
    sequences = Sequences(pack_of(tmp_path, 1000), 128)
    watched = Watched(sequences.pack.tokens)
    sequences.pack.tokens = watched  # type: ignore[assignment]
    sequences.read(3, 32, 64)
    assert watched.asked == [slice(3 * 128 + 32, 3 * 128 + 64 + 1)]


def test_reading_from_a_huge_pack_takes_little_memory(tmp_path: Path) -> None:
    tokens = 1 << 36
    with (tmp_path / "train.tokens").open("wb") as stream:
        stream.truncate(2 * tokens)
    (tmp_path / "train.documents").write_bytes(np.array([0, tokens], dtype="<i8").tobytes())
    sequences = Sequences(Pack(tmp_path, "train", PackFacts(1, tokens, 0, 300, "")), 1 << 20)
    before = resident()
    for i in (0, len(sequences) // 2, len(sequences) - 1):
        assert not sequences.read(i, 0, 4096)[0].any()
    assert resident() - before < 8 << 20


def resident() -> int:
    """Bytes of memory this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize("i", [-1, 7])
def test_a_sequence_that_does_not_exist_is_refused(tmp_path: Path, i: int) -> None:
    sequences = Sequences(pack_of(tmp_path, 1000), 128)
    assert len(sequences) == 7
    with pytest.raises(IndexError, match="of 7"):
        sequences.read(i, 0, 128)
    with pytest.raises(IndexError, match="of 7"):
        sequences.target_count(i)


@pytest.mark.parametrize(("start", "stop"), [(-1, 5), (5, 4), (0, 129)])
def test_a_place_outside_the_sequence_is_refused(tmp_path: Path, start: int, stop: int) -> None:
    with pytest.raises(IndexError, match="of 128 tokens"):
        Sequences(pack_of(tmp_path, 1000), 128).read(0, start, stop)


def test_a_pack_too_small_for_one_sequence_is_refused_with_both_counts(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train split has 128 tokens, .* needs 129"):
        Sequences(pack_of(tmp_path, 128), 128)
    with PackWriter(tmp_path, "train", 300) as writer:
        empty = Pack(tmp_path, "train", writer.close())
    with pytest.raises(DataError, match=r"has 0 tokens, .* needs 2 "):
        Sequences(empty, 1)


@pytest.mark.parametrize(("batch", "n"), [(32, 1000), (7, 97), (64, 5), (1, 1), (3, 2)])
def test_every_epoch_holds_every_sequence_once(batch: int, n: int) -> None:
    steps = 3 * n // batch + 2
    order = np.concatenate([step_indices(5, step, batch, n) for step in range(steps)])
    assert order.dtype == np.int64
    assert len(order) == steps * batch
    for epoch in range(3):
        assert sorted(order[epoch * n : (epoch + 1) * n]) == list(range(n))


@pytest.mark.parametrize("n", [*range(1, 70), 255, 256, 257, 4095, 4096, 4097])
def test_every_size_is_permuted(n: int) -> None:
    assert sorted(step_indices(0, 0, n, n)) == list(range(n))


def test_the_order_of_asking_does_not_matter() -> None:
    steps = list(range(1000))
    in_order = {step: step_indices(3, step, 32, 4567).tobytes() for step in steps}
    random.Random(0).shuffle(steps)
    shuffled = {step: step_indices(3, step, 32, 4567).tobytes() for step in steps}
    joined = [b"".join(found[step] for step in range(1000)) for found in (in_order, shuffled)]
    assert hashlib.sha256(joined[0]).hexdigest() == hashlib.sha256(joined[1]).hexdigest()


def test_the_order_is_the_same_for_every_batch_size() -> None:
    one = np.concatenate([step_indices(1, step, 4, 50) for step in range(60)])
    other = np.concatenate([step_indices(1, step, 24, 50) for step in range(10)])
    assert np.array_equal(one, other)


def test_the_order_never_changes_between_versions() -> None:
    assert step_indices(0, 0, 8, 1000).tolist() == [242, 834, 957, 271, 133, 602, 89, 584]
    assert step_indices(7, 2**40, 2, 10**12).tolist() == [152373755386, 630867801337]


def test_epochs_and_seeds_are_shuffled_anew() -> None:
    orders = [tuple(step_indices(seed, e, 100, 100)) for seed in range(20) for e in range(20)]
    assert len(set(orders)) == 400
    assert tuple(range(100)) not in orders


@pytest.mark.parametrize("n", [2, 5, 16, 60])
def test_every_sequence_is_equally_likely_at_every_place(n: int) -> None:
    epochs = 50 * n
    counts = np.zeros((n, n))
    for epoch in range(epochs):
        counts[np.arange(n), step_indices(0, epoch, n, n)] += 1
    expected = epochs / n
    chi_square = ((counts - expected) ** 2 / expected).sum()
    free = (n - 1) ** 2
    assert abs(chi_square - free) < 5 * (2 * free) ** 0.5


def test_neighbours_are_pulled_apart() -> None:
    order = step_indices(0, 0, 10_000, 10_000).astype(float)
    assert abs(np.corrcoef(order, np.arange(10_000))[0, 1]) < 0.05
    assert abs(np.corrcoef(order[1:], order[:-1])[0, 1]) < 0.05


@pytest.mark.parametrize(("step", "batch", "n"), [(-1, 1, 1), (0, 0, 1), (0, 1, 0)])
def test_senseless_questions_are_refused(step: int, batch: int, n: int) -> None:
    with pytest.raises(ValueError, match="step >= 0"):
        step_indices(0, step, batch, n)
