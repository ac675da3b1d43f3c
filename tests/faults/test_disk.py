"""A disk that refuses at any byte, at fsync or at rename, of every file that a run writes: one
error that names the place; what was there is whole, and nothing partial is taken for whole."""

import errno
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline.checkpoint.export import latest_export, load_export
from pipeline.config.schema import DataConfig
from pipeline.data.prepare import open_prepared, prepare
from pipeline.errors import StorageError, disk_refused, free_space
from pipeline.launch import cli, rank
from pipeline.launch.commands import training
from pipeline.record.folder import RunFolder
from pipeline.report.page import build_report
from tests.distributed.ranks import ROOT
from tests.faults import written as files
from tests.faults.inject import refusing_disk
from tests.faults.written import CODES, EVERY, FREE, Written
from tests.report.synthetic import write_run


@pytest.fixture(autouse=True)
def known_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """To ask git and all packages takes longer than all else here."""
    monkeypatch.setattr("pipeline.record.folder.environment", lambda: {"python": "3", "cores": 2})


def label(value: object) -> str:
    return value.file if isinstance(value, Written) else str(value)


@pytest.mark.parametrize("code", CODES, ids=lambda code: errno.errorcode[code])
@pytest.mark.parametrize("written", EVERY, ids=label)
def test_refused_at_any_byte(tmp_path: Path, written: Written, code: int) -> None:
    measured = tmp_path / "measured"
    measured.mkdir()
    written.write(measured, 1)
    size = max(p.stat().st_size for p in measured.rglob(f"*{written.file}"))
    for at in sorted({0, 1, size // 2, size - 1}):
        folder = tmp_path / f"{at:08d}"  # its name stands in files: as long as the measured one's
        folder.mkdir()
        written.refuse(folder, written.file, code, at)


SYNCED = (
    files.WEIGHTS, files.MANIFEST, files.OPTIMIZER, files.LATEST, files.SUMMARY, files.CONFIG,
    files.ENVIRONMENT, files.FINISHED,
)  # fmt: skip


@pytest.mark.parametrize("code", CODES, ids=lambda code: errno.errorcode[code])
@pytest.mark.parametrize(
    ("written", "step"),
    [
        *((one, "fsync") for one in SYNCED),
        *((one, "rename") for one in (*EVERY, files.FOLDER) if one.renamed),
    ],
    ids=label,
)
def test_refused_when_made_durable(tmp_path: Path, written: Written, step: str, code: int) -> None:
    name = written.renamed if step == "rename" else written.file
    written.refuse(tmp_path, name, code, step)


@pytest.mark.parametrize(
    ("name", "at"),
    [
        ("table.csv", 1),
        ("suffix.png", 99),
        ("suffix.svg", 1),
        ("index.html", 9),
    ],
)
def test_a_report_is_refused_and_its_page_stays(tmp_path: Path, name: str, at: int) -> None:
    run, out = write_run(tmp_path, "rope"), tmp_path / "report"
    page = out / "index.html"
    out.mkdir()
    page.write_text("the page of before")
    with refusing_disk(name, errno.ENOSPC, at) as refused:
        with pytest.raises(StorageError, match="the report cannot be written") as caught:
            build_report([run], out)
        assert refused
    assert caught.value.exit_code == 74 and str(out) in str(caught.value)
    assert page.read_text() == "the page of before"
    assert "rope" in build_report([run], out).read_text()


@pytest.mark.parametrize(("name", "at"), [(".tokens", 100), ("manifest", 3), ("manifest", "fsync")])
def test_a_corpus_that_was_half_prepared_is_not_taken_for_whole(
    tmp_path: Path, name: str, at: int | str
) -> None:
    text = "\n\n".join(f"Document {n} is about the number {n * n}." for n in range(400))
    (tmp_path / "corpus.txt").write_text(text)
    config = DataConfig(
        source=str(tmp_path / "corpus.txt"),
        prepared=str(tmp_path / "prepared"),
        vocab=300,
        tokenizer_bytes=10_000,
    )
    with refusing_disk(name, errno.ENOSPC, at) as refused:
        with pytest.raises(StorageError) as caught:
            prepare(config)
        assert refused
    assert caught.value.exit_code == 74 and str(tmp_path / "prepared") in str(caught.value)
    assert [p for p in (tmp_path / "prepared").iterdir() if p.name.startswith("corpus")] == []
    assert open_prepared(prepare(config).folder).corpus_sha256


@pytest.mark.parametrize("code", CODES)
def test_what_nobody_expected_to_be_refused_ends_with_74_as_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(code, "refused", "/runs/a/summary.json")

    monkeypatch.setattr(RunFolder, "open", full)
    assert rank.main(["train", "run", "prepared"]) == 74
    monkeypatch.setattr(training, "load", full)
    assert cli.main(["prepare", "config.yaml"]) == 74
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    for said in lines:
        assert "error: /runs/a/summary.json: cannot be written: refused; " in said
        assert FREE.search(said)


def test_a_mistake_of_the_program_is_not_blamed_on_the_disk() -> None:
    assert disk_refused(FileNotFoundError(errno.ENOENT, "no such file", "x")) is None


def test_free_bytes_are_those_of_the_volume_that_was_to_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a file that is not there, those of the folder above it; of no file, none."""
    volumes = {tmp_path: 7, Path("/"): 9}
    monkeypatch.setattr(
        "shutil.disk_usage",
        lambda place: SimpleNamespace(free=volumes[place]) if place.is_dir() else place.stat(),
    )
    assert free_space(tmp_path / "a" / "b") == "7 bytes are free there"
    assert free_space("/no/such/folder") == "9 bytes are free there"
    refused = disk_refused(OSError(errno.ENOSPC, "full", str(tmp_path / "rows")))
    assert f"{tmp_path}/rows: cannot be written: full; 7 bytes are free there. " in str(refused)
    assert "the disk: cannot be written: full. " in str(disk_refused(OSError(errno.ENOSPC, "full")))


def test_a_real_limit_on_the_size_of_files_is_met_as_well(tmp_path: Path) -> None:
    code = """
import resource, signal, sys
from pathlib import Path
import torch
from pipeline.checkpoint.export import save_export
from pipeline.errors import StorageError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
facts = {"tokens": 1, "config_hash": "c"}
save_export(Path(sys.argv[1]), {"a": torch.ones(20000)}, step=1, **facts)
resource.setrlimit(resource.RLIMIT_FSIZE, (40000, 40000))
try:
    save_export(Path(sys.argv[1]), {"a": torch.ones(20000)}, step=2, **facts)
except StorageError as error:
    print(error)
    sys.exit(error.exit_code)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "checkpoints")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 74, done.stderr
    assert str(tmp_path / "checkpoints" / "step-2") in done.stdout
    latest = latest_export(tmp_path / "checkpoints")
    assert latest.name == "step-1" and load_export(latest)[0]["a"].sum() == 20000
