"""Commands that train nothing, and input that is refused before anything is written."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline.config.compose import load
from pipeline.errors import ConfigError
from pipeline.launch import checks
from pipeline.launch.cli import main
from pipeline.model.modifier_facts import MODIFIERS
from pipeline.positions import registry
from tests.distributed.ranks import ROOT
from tests.report.synthetic import write_run

CPU_PATHS = ("sdpa", "tile", "contextual")
DEMO = str(ROOT / "configs" / "demo.yaml")


def contents(folder: Path) -> dict[str, bytes | None]:
    """All that lies below, folders too."""
    return {str(p): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("RANK", "WORLD_SIZE", "SLURM_STEP_ID"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_positions_lists_every_encoding(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["positions", "--json"]) == 0
    facts = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    names = {
        kind: [one["name"] for one in facts if one["kind"] == kind]
        for kind in ("encoding", "extension", "position ids", "modifier")
    }
    assert list(names.values()) == [
        registry.names(), registry.extension_names(), registry.ids_names(),
        [modifier.name for modifier in MODIFIERS],
    ]  # fmt: skip
    assert [one["kind"] for one in facts] == [kind for kind in names for _ in names[kind]]
    assert {"none", "learned", "sinusoidal", "rope", "alibi", "t5", "fire"} <= set(registry.names())
    encodings = facts[: len(registry.names())]
    assert all(one["attention_paths"][0] in CPU_PATHS for one in encodings)
    learned = next(one for one in facts if one["name"] == "learned")
    assert learned["max_length"] == "train_length" and not learned["shift_invariant"]
    assert main(["positions"]) == 0
    printed = capsys.readouterr().out
    assert "S_ij = q_i.k_j/sqrt(d) - m_h(i-j)" in printed
    assert "attention paths: tile, fold, flex" in printed
    assert "interpolation\n    kind: extension\n" in printed and "settings: scale=4\n" in printed


def test_positions_end_quietly_where_their_reader_does() -> None:
    command = f"{sys.executable} -m pipeline positions --json | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_positions_say_that_the_disk_is_full() -> None:
    command = [sys.executable, "-m", "pipeline", "positions"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (
        74, "error: standard output: No space left on device\n",
    )  # fmt: skip


@pytest.mark.parametrize("command", ["train", "prepare"])
def test_an_extension_belongs_to_a_test(
    command: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, DEMO, "extension=interpolation"]) == 2
    assert "evaluate RUN extension=interpolation" in capsys.readouterr().err
    assert list(here.iterdir()) == []
    assert main(["bench", "extension=interpolation"]) == 2
    assert "`extension` has no effect on a bench" in capsys.readouterr().err


def test_runs_of_other_position_ids_have_names_of_their_own(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = "sweep={position_ids: [consecutive, shifted]}"
    assert main(["train", DEMO, sweep, "position=sinusoidal", "--dry-run"]) == 0
    names = [x.split(":")[0] for x in capsys.readouterr().out.splitlines() if x.startswith("# ")]
    assert names == ["# sinusoidal-L128-s0-consecutive", "# sinusoidal-L128-s0-shifted"]


@pytest.mark.parametrize(
    ("position", "more", "code"),
    [
        ("rope", ["model.attention_path=sdpa"], 0),
        # the window of 100 tokens takes no effect at 64, and does at 128
        ("rope", ["model.attention_path=sdpa", "model.attention_window=100"], 2),
        ("t5", ["model.attention_path=far_near"], 0),
        ("t5", ["model.attention_path=far_near", "model.attention_window=100"], 2),
        ("alibi", ["model.attention_path=far_near"], 2),
        ("t5", ["model.attention_path=far_near", "trainer.ring=2"], 2),
        ("alibi", ["model.attention_path=fold"], 2),
        ("alibi", ["model.attention_path=fold", "trainer.precision=bf16"], 0),
        ("alibi", ["model.attention_path=flex"], 2),
        ("alibi", ["model.attention_path=flex", "trainer.accelerator=cuda"], 0),
        ("learned", ["model.attention_path=sdpa"], 0),
    ],
)
def test_an_attention_path_is_checked_at_every_length_before_a_run(
    position: str, more: list[str], code: int, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = str(ROOT / "configs" / "base.yaml")
    assert main(["train", base, f"position={position}", *more, "--dry-run"]) == code
    assert ("model.attention_path=" in capsys.readouterr().err) == (code == 2)
    assert list(here.iterdir()) == []


def test_a_dry_run_names_every_run_and_writes_nothing(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", DEMO, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert [f"# {p}-L128-s0: {p}: " in out for p in ("none", "learned", "t5")] == [True] * 3
    assert "128 of the encoding" in out and not list(here.iterdir())


def test_settings_may_follow_options(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", DEMO, "position=rope", "--dry-run", "seed=3"]) == 0
    assert "# rope-L128-s3" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["train", DEMO, "--dry-runn"])
    assert "not understood: --dry-runn" in capsys.readouterr().err


def test_what_is_not_understood_is_not_repeated_with_its_value(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for more in (["--api-key=hunter2"], ["--api-key", "hunter2"]):
        with pytest.raises(SystemExit):
            main(["train", DEMO, *more])
        said = capsys.readouterr().err
        assert "not understood: --api-key" in said and "hunter2" not in said


def test_runs_are_named_by_what_a_sweep_varies(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Settings that come with another encoding are no axes; those of one encoding are."""
    study = str(ROOT / "configs" / "study" / "rope_base.yaml")
    assert main(["train", study, "--dry-run"]) == 0
    names = [x for x in capsys.readouterr().out.splitlines() if x.startswith("# ")]
    assert len({name.split(":")[0] for name in names}) == 6
    assert names[0].startswith("# rope-L512-s0-base1000: ")
    assert main(["train", DEMO, "--dry-run"]) == 0
    assert "# t5-L128-s0: " in capsys.readouterr().out


def test_a_task_is_one_run_of_the_sweep(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", DEMO, "--dry-run", "--task", "3"]) == 0
    assert capsys.readouterr().out.count("# rope-L128-s0") == 1
    assert main(["train", DEMO, "--dry-run", "--task", "6"]) == 2
    assert "names 6 runs, so a task is 0 to 5" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["position=rop"], "rope"),
        (["model.heads=4", "trainer.sequence_parallel=8", "trainer.processes=8"], "model.heads"),
        (["trainer.processes=3"], "trainer.sequence_parallel"),
        (["position=rope", "position.base=-5.0"], "position.base=-5.0"),
        (["position=rope", "model.width=12", "model.heads=4"], "even width"),
        (["data.source=absent.txt"], "absent.txt"),
        (["data.source=empty.txt"], "empty.txt"),
        (["data.source=bytes.txt"], "bytes.txt"),
        (["trainer.nodes=2"], "trainer.nodes=2"),
        (["trainer.accelerator=cuda"], "torch sees no GPU"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(
    overrides: list[str], message: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "empty.txt").write_text("")
    (here / "bytes.txt").write_bytes(b"good text" * 30 + b"\xff")
    before = contents(here)
    assert main(["train", DEMO, *overrides]) == 2
    # the bars of reading may stand before it
    lines = capsys.readouterr().err.splitlines()
    assert [line.startswith("error: ") for line in lines].count(True) == 1
    assert lines[-1].startswith("error: ") and message in lines[-1]
    assert contents(here) == before


def test_a_corpus_below_one_sequence_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = here / "texts"
    folder.mkdir()
    for n in range(30):
        (folder / f"{n}.txt").write_text(f"a short text, number {n}, of few words " * 15)
    overrides = [f"data.source={folder}", "data.vocab=300", "data.tokenizer_bytes=10000"]
    lengths = ["train_length=100000", "eval_lengths=[64]", "data.test_fraction=0.3"]
    assert main(["train", DEMO, "position=none", *overrides, *lengths]) == 2
    error = capsys.readouterr().err
    assert "100001" in error and "train" in error
    assert not (here / "runs").exists()


def test_an_unwritable_run_folder_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "file").write_text("in the way")
    small = ["data.source=texts", "data.vocab=300", "data.tokenizer_bytes=10000"]
    (here / "texts").mkdir()
    for n in range(30):
        (here / "texts" / f"{n}.txt").write_text(f"a text, number {n}, of some words " * 15)
    more = ["eval_lengths=[64]", "data.test_fraction=0.3", "data.validation_fraction=0.2"]
    assert main(["train", DEMO, "position=none", "runs=file", *small, *more]) == 74
    assert "file" in capsys.readouterr().err


def test_a_later_run_that_cannot_start_stops_the_study_before_its_first(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unfinished = here / "runs" / "demo" / "t5-L128-s0"
    unfinished.mkdir(parents=True)
    assert main(["train", DEMO]) == 2
    assert "t5-L128-s0 exists but is no run folder" in capsys.readouterr().err
    assert list((here / "runs" / "demo").iterdir()) == [unfinished]


def test_evaluate_needs_a_run_folder(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(here)]) == 2
    assert "is not a run folder" in capsys.readouterr().err


def test_separators_that_no_token_ends_in_are_refused_with_the_corpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before any run folder is made: the vocabulary is known once the corpus is prepared."""
    config = load(ROOT / "configs" / "smoke.yaml", ["sweep={}", "position_ids=segments"])[0]
    tokenizer = SimpleNamespace(pieces=[b"", b"a", b"b"])
    made = SimpleNamespace(tokenizer=tokenizer, split=lambda name: None)
    monkeypatch.setattr(checks, "prepare", lambda data: made)
    monkeypatch.setattr(checks, "training_sequences", lambda config, data: None)
    monkeypatch.setattr(checks, "_check_documents", lambda *asked: None)
    with pytest.raises(ConfigError, match="no token of the vocabulary ends so"):
        checks.prepare_all([config])
    tokenizer.pieces = [b"", b"a.", b"b"]
    assert list(checks.prepare_all([config]).values()) == [made]


def test_runs_that_cannot_be_reported_do_not_take_the_others_with_them(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, source in enumerate(("a.txt", "b.txt", "c.txt")):
        config = {"experiment": f"of{number}", "data": {"source": source}}
        write_run(here, "rope", config=config)
    (here / "of1" / "rope-L128-s0" / "evaluation" / "rows.jsonl").write_text("{}")
    assert main(["report", str(here), "--out", "report"]) == 2
    said = capsys.readouterr()
    assert "of1/rope-L128-s0/evaluation/rows.jsonl" in said.err
    pages = [path.parent.name for path in sorted((here / "report").glob("*/index.html"))]
    assert pages == ["1", "3"] and "data.source=c.txt" in said.out
