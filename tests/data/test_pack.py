"""Token packs: what goes in comes out, and damage is noticed."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from pipeline.data.pack import Pack, PackFacts, PackWriter
from pipeline.errors import DataError

DOCUMENTS = [[], [5, 6, 7], [2] * 1000, [9], []]


def write(folder: Path, documents: list[list[int]], vocab: int = 300) -> PackFacts:
    with PackWriter(folder, "train", vocab) as writer:
        for ids in documents:
            writer.add(np.array(ids, dtype=np.int32), 2 * len(ids))
        return writer.close()


@pytest.mark.parametrize(
    "documents", [DOCUMENTS, [], [[]], [[7] * 100_000]], ids=["mixed", "none", "empty", "long"]
)
def test_every_document_comes_back_after_its_bos(
    tmp_path: Path, documents: list[list[int]]
) -> None:
    facts = write(tmp_path, documents)
    pack = Pack(tmp_path, "train", facts)
    assert pack.n_documents == len(documents)
    assert [pack.document(i).tolist() for i in range(len(documents))] == [
        [1, *ids] for ids in documents
    ]
    assert pack.tokens.tolist() == [token for ids in documents for token in [1, *ids]]
    assert pack.n_tokens == len(pack.tokens) == sum(len(ids) + 1 for ids in documents)
    assert pack.n_bytes == sum(2 * len(ids) for ids in documents)
    assert pack.document_lengths().tolist() == [len(ids) + 1 for ids in documents]


def test_a_document_is_wide_and_out_of_range_is_refused(tmp_path: Path) -> None:
    pack = Pack(tmp_path, "train", write(tmp_path, DOCUMENTS))
    assert pack.document(1).dtype == np.int64
    for i in (-1, 5):
        with pytest.raises(IndexError, match="of a pack with 5"):
            pack.document(i)


@pytest.mark.parametrize(("vocab", "width"), [(300, 2), (65_536, 2), (65_537, 4), (1 << 20, 4)])
def test_the_integers_are_just_wide_enough(tmp_path: Path, vocab: int, width: int) -> None:
    facts = write(tmp_path, [[vocab - 1]], vocab)
    assert (tmp_path / "train.tokens").stat().st_size == 2 * width
    assert Pack(tmp_path, "train", facts).document(0).tolist() == [1, vocab - 1]


@pytest.mark.parametrize("i", [-1, 300, 65_536 + 5])
def test_an_id_outside_the_vocab_is_refused(tmp_path: Path, i: int) -> None:
    with (
        PackWriter(tmp_path, "train", 300) as writer,
        pytest.raises(DataError, match="for a vocab of 300"),
    ):
        writer.add(np.array([5, i]), 1)


@pytest.mark.parametrize("name", ["train.tokens", "train.documents"])
@pytest.mark.parametrize("change", ["cut", "longer", "gone"])
def test_a_wrong_size_is_noticed_on_opening(tmp_path: Path, name: str, change: str) -> None:
    facts = write(tmp_path, DOCUMENTS)
    path = tmp_path / name
    content = path.read_bytes()
    if change == "gone":
        path.unlink()
    else:
        path.write_bytes(content[:-1] if change == "cut" else content + b"\0")
    with pytest.raises(DataError, match=rf"{name}: damaged: .*delete"):
        Pack(tmp_path, "train", facts)


def test_an_index_of_another_pack_is_noticed_on_opening(tmp_path: Path) -> None:
    facts = write(tmp_path, DOCUMENTS)
    (tmp_path / "train.documents").write_bytes(np.arange(6, dtype="<i8").tobytes())
    with pytest.raises(DataError, match=r"train\.documents: damaged: its ends"):
        Pack(tmp_path, "train", facts)


@pytest.mark.parametrize("name", ["train.tokens", "train.documents"])
def test_one_flipped_bit_is_noticed_by_verify(tmp_path: Path, name: str) -> None:
    facts = write(tmp_path, DOCUMENTS)
    Pack(tmp_path, "train", facts).verify(lambda _: None)
    content = bytearray((tmp_path / name).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match="sha256"):
        Pack(tmp_path, "train", facts).verify(lambda _: None)


def test_a_pack_cannot_be_written_to(tmp_path: Path) -> None:
    pack = Pack(tmp_path, "train", write(tmp_path, DOCUMENTS))
    with pytest.raises(ValueError, match="read-only"):
        pack.tokens[0] = 3


def test_closing_brings_both_files_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: dict[str, int] = {}
    fsync = os.fsync

    def note(handle: int) -> None:
        fsync(handle)
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        synced[path.name] = path.stat().st_size

    monkeypatch.setattr(os, "fsync", note)
    write(tmp_path, DOCUMENTS)
    assert synced == {
        name: (tmp_path / name).stat().st_size for name in ("train.tokens", "train.documents")
    }


def test_a_worker_process_gets_the_path_not_the_tokens(tmp_path: Path) -> None:
    pack = Pack(tmp_path, "train", write(tmp_path, [[7] * 100_000]))
    sent = pickle.dumps(pack)
    assert len(sent) < 2000
    assert pickle.loads(sent).document(0).tolist() == pack.document(0).tolist()
