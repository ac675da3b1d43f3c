"""Only whole, undamaged prepared folders are ever seen, whatever happens meanwhile."""

import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.config.schema import DataConfig
from pipeline.data import prepare as preparation
from pipeline.data.pack import PackWriter
from pipeline.data.prepare import open_prepared, prepare
from pipeline.data.split import SPLITS
from pipeline.errors import DataError, StorageError
from tests.data.corpus import config_for, folder_of_text


def test_a_corpus_that_changes_meanwhile_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = folder_of_text(tmp_path / "corpus")
    pack_batch = preparation._pack_batch

    def change_and_pack(*arguments: object) -> None:
        (corpus / "000.txt").write_text("another text")
        pack_batch(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(preparation, "_pack_batch", change_and_pack)
    with pytest.raises(DataError, match="changed meanwhile"):
        prepare(config_for(corpus, tmp_path / "prepared"))
    assert os.listdir(tmp_path / "prepared") == []


def test_a_full_disk_leaves_nothing(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(PackWriter, "add", full)
    with pytest.raises(StorageError, match="No space left"):
        prepare(config_for(corpus, tmp_path))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "name", ["manifest.json", "tokenizer.model", "train.tokens", "test.documents"]
)
@pytest.mark.parametrize("change", ["gone", "cut", "empty"])
def test_a_damaged_folder_is_refused_by_name(copy: Path, name: str, change: str) -> None:
    content = (copy / name).read_bytes()
    (copy / name).write_bytes(content[:-7] if change == "cut" else b"")
    if change == "gone":
        (copy / name).unlink()
    with pytest.raises(DataError, match=name):
        open_prepared(copy)


def test_a_swapped_tokenizer_is_refused(copy: Path, tmp_path: Path) -> None:
    corpus = folder_of_text(tmp_path / "other")
    other = prepare(config_for(corpus, tmp_path / "prepared"))
    shutil.copy(other.folder / "tokenizer.model", copy)
    with pytest.raises(DataError, match=r"tokenizer\.model: sha256 .* that the packs were made"):
        open_prepared(copy)


@pytest.mark.parametrize("split", SPLITS)
def test_prepared_tokens_that_changed_are_never_trained_on(
    corpus: Path, tmp_path: Path, split: str
) -> None:
    """Two tokens exchanged, so that no size and no id tells."""
    config = config_for(corpus, tmp_path)
    tokens = np.memmap(prepare(config).folder / f"{split}.tokens", dtype="<u2", mode="r+")
    other = int(np.argmax(tokens != tokens[1]))
    tokens[[1, other]] = tokens[[other, 1]]
    tokens.flush()
    with pytest.raises(DataError, match=rf"{split}\.tokens: damaged: its sha256"):
        prepare(config)


@pytest.mark.parametrize("other", ["corpus_sha256", "settings"])
def test_a_whole_folder_of_something_else_is_refused(
    corpus: Path, tmp_path: Path, other: str
) -> None:
    """Copied to the place of the one that is wanted."""
    config = config_for(corpus, tmp_path / "prepared")
    wanted = prepare(config).folder
    strange = replace(config, prepared=str(tmp_path / "strange"))
    if other == "settings":
        strange = replace(strange, test_fraction=0.3)
    else:
        strange = replace(strange, source=str(folder_of_text(tmp_path / "other")))
    shutil.rmtree(wanted)
    shutil.copytree(prepare(strange).folder, wanted)
    with pytest.raises(DataError, match=f"`{other}` is .* it was prepared from something else"):
        prepare(config)


@pytest.mark.parametrize("suffix", ["tokens", "documents"])
@pytest.mark.parametrize("split", SPLITS)
def test_one_flipped_bit_is_found_on_request(copy: Path, split: str, suffix: str) -> None:
    open_prepared(copy, verify=True)
    path = copy / f"{split}.{suffix}"
    content = bytearray(path.read_bytes())
    content[9] ^= 4
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"{split}\.tokens: damaged: its sha256"):
        open_prepared(copy, verify=True)


@pytest.mark.parametrize(
    "edit",
    [
        '{"format": 2}',
        "[]",
        "null",
        '{"format": 1}',
        '{"format": 1, "splits": {"train": {"n_tokens": "5"}}}',
    ],
)
def test_a_strange_manifest_is_refused(copy: Path, edit: str) -> None:
    (copy / "manifest.json").write_text(edit)
    with pytest.raises(DataError, match=r"manifest\.json.*delete"):
        open_prepared(copy)


def test_a_folder_of_another_format_is_refused(copy: Path) -> None:
    path = copy / "manifest.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(DataError, match=r"manifest\.json: has format 2, this version reads 1"):
        open_prepared(copy)


class Canary:
    """Leaves a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize(
    "name", ["manifest.json", "tokenizer.model", "train.tokens", "train.documents"]
)
def test_a_pickle_in_the_folder_is_never_run(copy: Path, tmp_path: Path, name: str) -> None:
    canary = tmp_path / "canary"
    (copy / name).write_bytes(pickle.dumps(Canary(canary)))
    with pytest.raises(DataError, match=name):
        open_prepared(copy)
    assert not canary.exists()


PREPARE = """
import sys, time
from pipeline.config.schema import DataConfig
from pipeline.data import prepare as preparation
source, prepared, when, slow = sys.argv[1:]
if slow == "slow":
    pack = preparation._pack_batch
    preparation._pack_batch = lambda *a: (pack(*a), print("packing", flush=True), time.sleep(60))
time.sleep(max(float(when) - time.time(), 0))
config = DataConfig(source=source, prepared=prepared, vocab=300, tokenizer_bytes=20_000)
print(preparation.prepare(config).folder)
"""


def start(corpus: Path, prepared: Path, when: float, slow: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PREPARE, str(corpus), str(prepared), str(when), slow],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_processes_that_start_together_see_one_whole_folder(corpus: Path, tmp_path: Path) -> None:
    when = time.time() + 2
    processes = [start(corpus, tmp_path, when) for _ in range(4)]
    answers = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, answers
    folder = Path(answers[0][0].strip())
    assert {out for out, _ in answers} == {f"{folder}\n"}
    assert os.listdir(tmp_path) == [folder.name]
    assert sum("tokenizer" in err for _, err in answers) == 1, "only one of them did the work"
    open_prepared(folder, verify=True)


def test_a_kill_leaves_nothing_that_is_used(corpus: Path, tmp_path: Path) -> None:
    process = start(corpus, tmp_path, 0, "slow")
    assert process.stdout is not None
    assert process.stdout.readline() == "packing\n"
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    left = os.listdir(tmp_path)
    assert len(left) == 1
    assert left[0].endswith(".partial")
    done = prepare(
        DataConfig(source=str(corpus), prepared=str(tmp_path), vocab=300, tokenizer_bytes=20_000)
    )
    assert os.listdir(tmp_path) == [done.folder.name]
    open_prepared(done.folder, verify=True)
