"""Keys of the environment stay there: one study with all of them set, and nothing that it writes or
says holds one."""

import gzip
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.launch.made_study import command, write_study

SECRETS = {
    "WANDB_API_KEY": "5ec2e7" * 6 + "abcd",
    "HF_TOKEN": "hf_ThisIsNoRealTokenOfAnybody",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYNOTREAL",
    "AWS_SESSION_TOKEN": "FwoGZXIvYXdzNOTREALSESSION==",
    "PIP_INDEX_URL": "https://someuser:pw-of-the-mirror@mirror.example/simple",
    "HTTPS_PROXY": "http://proxyuser:pw-of-the-proxy@proxy.example:3128",
    "MY_DATABASE_PASSWORD": "correct-horse-battery",
}
PARTS = ("pw-of-the-mirror", "pw-of-the-proxy")
# no secret, but a path of one machine, which a run folder that is shared must not name
PRIVATE = "private-scratch-of-somebody"


@dataclass(frozen=True)
class Study:
    """A study that was trained, tested and reported: what it wrote, and what was said."""

    folder: Path
    runs: Path
    said: str


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    folder: Path = tmp_path_factory.mktemp("study")
    hidden = tmp_path_factory.mktemp("hidden") / PRIVATE
    hidden.mkdir()
    path = write_study(folder, "rope")
    (folder / "corpus").rename(hidden / "corpus")
    text = path.read_text().replace(f"source: {folder}/corpus", "source: ${oc.env:CORPORA}/corpus")
    path.write_text(text.replace('wandb: {mode: "off"}', "wandb: {mode: offline}"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**SECRETS, "CORPORA": str(hidden)}.items():
            patch.setenv(name, value)
        done = command("train.py", path)
    return Study(folder, folder / "runs", done.stdout + done.stderr)


def contents(path: Path) -> Iterator[bytes]:
    """The bytes of a file, and of what is packed into it."""
    yield path.read_bytes()
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as packed:
            yield from (packed.read(name) for name in packed.namelist())
    elif path.suffix == ".gz":
        yield gzip.decompress(path.read_bytes())


def leaks(folder: Path, wanted: list[str]) -> list[str]:
    """Which files, by name or content, hold one of the texts."""
    found = []
    for path in (path for path in folder.rglob("*") if path.is_file()):
        held = b"\0".join([str(path.relative_to(folder)).encode(), *contents(path)])
        found += [f"{path.relative_to(folder)}: {text}" for text in wanted if text.encode() in held]
    return found


@pytest.mark.distributed
def test_no_file_of_a_study_holds_a_secret(study: Study) -> None:
    assert leaks(study.folder, [*SECRETS.values(), *PARTS]) == []


@pytest.mark.distributed
def test_nothing_that_is_said_holds_a_secret(study: Study) -> None:
    assert "report: " in study.said
    assert [name for name, value in SECRETS.items() if value in study.said] == []
    assert not any(part in study.said for part in PARTS)


@pytest.mark.distributed
def test_a_value_from_the_environment_is_in_no_run_folder_and_no_report(study: Study) -> None:
    saved = study.runs / "path" / "rope-L33-s0" / "config.yaml"
    assert "source: ${oc.env:CORPORA}/corpus\n" in saved.read_text()
    assert leaks(study.runs, [PRIVATE]) == []


@pytest.mark.distributed
def test_the_search_sees_what_it_is_about(study: Study) -> None:
    """All the places are there, and a text that does stand in them is found in them."""
    found = {path.suffix for path in study.folder.rglob("*") if path.is_file()}
    assert {".wandb", ".pt", ".npz", ".jsonl", ".yaml", ".json", ".html", ".log"} <= found
    places = leaks(study.folder, ["rope"])
    for end in (".wandb: rope", "config.yaml: rope", "index.html: rope", "rows.jsonl: rope"):
        assert any(place.endswith(end) for place in places), end
    assert any("weights.pt" in place for place in leaks(study.folder, ["embedding"]))


def test_what_is_packed_is_searched(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("x", "hunter2 " * 100)
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"hunter2 " * 100))
    (tmp_path / "hunter2.txt").write_text("")
    assert len(leaks(tmp_path, ["hunter2"])) == 3
