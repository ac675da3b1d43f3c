"""`python -m pipeline probe` on a trained run: rows, pictures, table, and what it refuses."""

import re
from pathlib import Path
from typing import Any

import pytest

from pipeline.launch.cli import main
from pipeline.record.metrics import read_rows
from tests.launch.made_study import command, write_study

pytestmark = pytest.mark.distributed

ONE = ("trainer.processes=1", "trainer.sequence_parallel=1")
KINDS = {"attention": 2 * 4 * 2, "resolution": 2 * 4 * 2, "decodability": 2 * 3 * 2}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run of rope at 33 tokens, tested to 132, and probed."""
    folder: Path = tmp_path_factory.mktemp("probed")
    command("train.py", write_study(folder, "rope"), *ONE)
    found = folder / "runs" / "path" / "rope-L33-s0"
    (folder / "printed").write_text(command("-m", "pipeline", "probe", found).stdout)
    return found


def rows_of(run: Path, label: str = "") -> list[dict[str, Any]]:
    return read_rows(run / "probes" / label / "rows.jsonl")


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_rows_say_what_was_measured_on_what(run: Path) -> None:
    rows = rows_of(run)
    for kind, count in KINDS.items():
        assert sum(row["probe"] == kind for row in rows) == count
    assert {row["length"] for row in rows} == {33, 132}
    own = read_rows(run / "evaluation" / "rows.jsonl")[0]
    same = (
        "text_sha256", "corpus_sha256", "position", "extension", "seed", "train_length", "step",
        "documents", "precision", "split", "tokenizer_sha256", "suffix_tokens",
    )  # fmt: skip
    for row in rows:
        assert [row[key] for key in same] == [own[key] for key in same]
        assert (row["run"], row["queries"], row["defined"]) == ("path/rope-L33-s0", 8, True)
    assert not list((run / "probes").glob("*.partial")) and not (run / "lock").exists()


def test_the_table_and_the_pictures_are_there(run: Path) -> None:
    printed = (run.parents[2] / "printed").read_text()
    numbers = {(x["length"], x["layer"]) for x in rows_of(run)}
    lines = [line.split()[1:3] for line in printed.splitlines() if line.startswith("rope ")]
    assert lines == [[str(n), str(layer)] for n, layer in sorted(numbers)]
    for stem in ("attention", "decodability"):
        assert (run / "probes" / f"probe-{stem}.png").stat().st_size > 10_000


def test_the_report_shows_them(run: Path, tmp_path: Path) -> None:
    assert main(["report", str(run), "--out", str(tmp_path)]) == 0
    assert "<h2>Probes</h2>" in (tmp_path / "index.html").read_text()


def test_under_an_extension_rows_have_a_folder_of_their_own(run: Path) -> None:
    before = (run / "probes" / "rows.jsonl").read_bytes()
    settings = ("extension=interpolation", "extension.scale=4")
    done = command("-m", "pipeline", "probe", run, *settings)
    assert "rope + interpolation scale=4" in done.stdout
    rows, own = rows_of(run, "interpolation-scale=4"), rows_of(run)
    assert {(row["extension"], row["extension_settings"]) for row in rows} == {
        ("interpolation", "scale=4")
    }
    moved = [a["distance"] for a in rows if a["probe"] == "attention"]
    assert moved != [a["distance"] for a in own if a["probe"] == "attention"]
    assert (run / "probes" / "rows.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["model.width=64"], "model.width: belongs to how"),
        (["trainer.processes=2"], "trainer.processes.*has no effect on a probe"),
        (["evaluate.stride_fraction=0.5"], "stride_fraction: has no effect on a probe"),
        (["extension=hierarchical"], "extension=hierarchical does not fit position=rope"),
        (["evaluate.documents=2"], "evaluate.documents=2: .* use 3 or more"),
        (["extension=interpolation", "--queries", "4"], "queries differs [(]8 in .*, 4 in .*[+] i"),
        (
            ["extension=interpolation", "evaluate.suffix_tokens=4", "--queries", "4"],
            "(suffix_tokens|text_sha256) differs",
        ),
        (["--queries", "9"], "--queries 9: .* use 1 to 8"),
        (["--queries", "0"], "--queries 0: .* use 1 to 8"),
        (["sweep={evaluate.documents: [3, 4]}"], "one set of settings"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(
    settings: list[str], message: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(run.parent)
    assert main(["probe", str(run), *settings]) == 2
    error = capsys.readouterr().err
    assert re.search(message, error), error
    assert contents(run.parent) == before


def test_a_run_that_is_not_finished_or_has_no_checkpoint_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("config.yaml", "trained.json"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    assert main(["probe", str(tmp_path)]) == 2
    assert "not finished" in capsys.readouterr().err
    (tmp_path / "finished").write_bytes((run / "finished").read_bytes())
    assert main(["probe", str(tmp_path)]) == 3
    assert "holds no checkpoint" in capsys.readouterr().err
    assert not (tmp_path / "probes").exists()
