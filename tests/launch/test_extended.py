"""A trained run tested under extensions: their rows lie beside its own and are taken for no others.

The run has one rank; where it is tested on two, the numbers are the same.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from pipeline.launch.cli import main
from pipeline.record.evaluation import read_values
from pipeline.record.metrics import read_rows
from tests.launch.made_study import command, write_study

pytestmark = pytest.mark.distributed

ONE = ("trainer.processes=1", "trainer.sequence_parallel=1")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run of rope, as training left it."""
    folder: Path = tmp_path_factory.mktemp("extended")
    command("train.py", write_study(folder, "rope"), *ONE)
    return folder / "runs" / "path" / "rope-L33-s0"


@pytest.fixture(scope="module")
def run(trained: Path) -> Path:
    """The same run, also tested under interpolation, with a scale of 4 and of 1."""
    own = contents(trained)
    printed = [extended(trained, f"extension.scale={scale}").stdout for scale in (4, 1)]
    (trained.parent / "printed").write_text(printed[-1])
    assert own.items() <= contents(trained).items()
    return trained


def extended(run: Path, *settings: str) -> Any:
    return command("-m", "pipeline", "evaluate", run, "extension=interpolation", *settings)


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def rows_of(run: Path, label: str = "") -> list[dict[str, Any]]:
    return read_rows(run / "evaluation" / label / "rows.jsonl")


def test_rows_of_an_extension_have_files_of_their_own_and_say_so(run: Path) -> None:
    own, scaled = rows_of(run), rows_of(run, "interpolation-scale=4")
    assert {(row["extension"], row["extension_settings"]) for row in own} == {("none", "")}
    assert {(row["extension"], row["extension_settings"]) for row in scaled} == {
        ("interpolation", "scale=4")
    }
    same = ("protocol", "length", "position", "text_sha256", "stride", "scored_tokens", "step")
    assert [[row[key] for key in same] for row in own] == [
        [row[key] for key in same] for row in scaled
    ]
    assert {row["attention_path"] for row in own + scaled} == {"sdpa"}
    row = next(row for row in scaled if row["key"] == "suffix-132")
    nats = read_values(run / "evaluation" / "interpolation-scale=4" / "rows.jsonl", row)["nats"]
    assert row["loss"] == pytest.approx(float(nats.mean()))


def test_the_trained_weights_are_tested_under_it(run: Path) -> None:
    """A scale of 1 changes nothing; a scale of 4 does."""
    own, equal, scaled = (
        [row["loss"] for row in rows_of(run, label)]
        for label in ("", "interpolation-scale=1", "interpolation-scale=4")
    )
    assert equal == pytest.approx(own, abs=1e-6)
    assert all(abs(one - other) > 1e-5 for one, other in zip(own, scaled, strict=True))


def test_the_table_and_the_page_show_both_beside_the_trained_one(run: Path, tmp_path: Path) -> None:
    printed = (run.parent / "printed").read_text().splitlines()
    labels = [line.split("  ")[0] for line in printed if "suffix loss" in line]
    assert labels == ["rope", "rope + interpolation scale=1", "rope + interpolation scale=4"]
    assert main(["report", str(run), "--out", str(tmp_path)]) == 0
    assert "rope + interpolation scale=4</th>" in (tmp_path / "index.html").read_text()


def test_testing_again_on_two_ranks_replaces_its_own_rows_only(run: Path) -> None:
    folder = run / "evaluation" / "interpolation-scale=4"
    losses = [row["loss"] for row in rows_of(run, folder.name)]
    before = {path: path.stat().st_mtime_ns for path in contents(run)}
    two = ("trainer.processes=2", "trainer.sequence_parallel=2")
    assert "those of" in extended(run, "extension.scale=4", *two).stderr
    after = {path: path.stat().st_mtime_ns for path in contents(run)}
    changed = {path for path, when in (before.items() ^ after.items())}
    assert folder / "rows.jsonl" in changed
    assert {path.parent for path in changed} <= {folder, folder / "values"}
    rows = rows_of(run, folder.name)
    assert [row["loss"] for row in rows] == pytest.approx(losses, abs=1e-5)
    named = {row["values"] for row in rows if "values" in row}
    assert {path.name for path in (folder / "values").iterdir()} == named


def test_what_was_tested_already_is_not_measured_again(run: Path) -> None:
    before = contents(run)
    written = {path: path.stat().st_mtime_ns for path in before}
    extended(run, "extension.scale=1")
    assert contents(run) == before
    assert {path: path.stat().st_mtime_ns for path in before} == written


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["extension=hierarchical"], "extension=hierarchical does not fit position=rope: "),
        (["extension=interpolation", "extension.scale=0.5"], "extension.scale=0.5"),
        (["extension=interpolation", "extension.base=2.0"], "`base` is not used by extension"),
        (["extension=interpolate"], "Did you mean `interpolation`"),
        (["extension=interpolation", "seed=1"], "seed: belongs to how"),
        (["sweep={extension: [none, interpolation]}"], "one set of settings"),
        (["extension=interpolation", "evaluate.documents=2"], "evaluate .* with these settings"),
        (["extension=interpolation", "eval_lengths=[16,33]"], "text_sha256 differs"),
        (
            ["extension=interpolation", "evaluate.split=validation"],
            "split in rows of suffix is test in",
        ),
        (["extension=interpolation", "evaluate.stride_fraction=1.0"], "stride differs"),
        (["evaluate.documents=2"], "in .* [+] interpolation scale=1.*delete these extensions"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(
    settings: list[str], message: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(run.parent)
    assert main(["evaluate", str(run), *settings]) == 2
    error = capsys.readouterr().err
    assert re.search(message, error), error
    assert contents(run.parent) == before


def test_fewer_lengths_of_the_same_text_may_be_tested(run: Path) -> None:
    done = extended(run, "extension.scale=2", "eval_lengths=[66, 132]")
    line = next(x for x in done.stdout.splitlines() if "interpolation scale=2" in x)
    assert line.split("suffix loss")[1].split()[:2] == ["-", "-"]
