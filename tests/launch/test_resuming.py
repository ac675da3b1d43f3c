"""Where a broken-off run goes on, what it refuses, and what it leaves alone when it refuses."""

import json
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.checkpoint.state import MOMENTS, TrainingState
from pipeline.config.changes import Change
from pipeline.config.dotted import dotted
from pipeline.config.redact import public
from pipeline.config.schema import Config
from pipeline.config.values import show
from pipeline.errors import CheckpointError, ConfigError, DataError
from pipeline.launch.resuming import Resumed, resume, training_code
from pipeline.record.folder import RunFolder
from pipeline.record.metrics import MetricsLog, read_rows
from tests.launch.made_origin import small_config

CPU = torch.device("cpu")


@dataclass
class Tokenizer:
    sha256: str = "70" * 32


@dataclass
class Text:
    """What `resume` asks of prepared text."""

    corpus_sha256: str = "c0" * 32
    tokenizer: Tokenizer = field(default_factory=Tokenizer)


def go_on(
    config: Config, folder: RunFolder, text: Any = None, origin: str | None = None
) -> Resumed:
    given: Any = Text() if text is None else text
    return resume(config, folder, given, CPU, origin)


def state(step: int) -> TrainingState:
    named = {"w": torch.full((3,), float(step))}
    return TrainingState(step, 100 * step, 2.0 * step, named, {moment: named for moment in MOMENTS})


def code_is(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.launch.resuming.training_sha256", lambda *_: code * 32)


@pytest.fixture
def broken_off(tmp_path: Path) -> tuple[Config, RunFolder]:
    """A run with checkpoints at 2 and 4, and rows up to step 5."""
    config = small_config(tmp_path / "runs")
    folder = RunFolder.create(config, name="a")
    keeper = go_on(config, folder).keeper
    with MetricsLog(folder.metrics) as log:
        for step in range(1, 6):
            log.write({"kind": "train", "step": step, "loss": 1 / step})
            if step % 2 == 0:
                log.write({"kind": "evaluation", "step": step, "loss": 2 / step})
                keeper.save(state(step))
    folder.release()
    return config, RunFolder.create(config, name="a")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_fresh_run_says_nothing_and_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = small_config(tmp_path / "runs")
    folder = RunFolder.create(config, name="a")
    assert go_on(config, folder).state is None
    assert capsys.readouterr().err == "" and not folder.restarts.exists()


def test_it_goes_on_from_the_newest_and_later_rows_go(
    broken_off: tuple[Config, RunFolder], capsys: pytest.CaptureFixture[str]
) -> None:
    config, folder = broken_off
    lines = folder.metrics.read_bytes().splitlines(keepends=True)
    with folder.metrics.open("ab") as file:
        file.write(b'{"kind": "tr')  # a row that a kill cut
    resumed = go_on(config, folder)
    assert resumed.state is not None
    assert (resumed.state.step, resumed.state.tokens, resumed.state.seconds) == (4, 400, 8.0)
    assert folder.metrics.read_bytes() == b"".join(lines[:6])
    assert "goes on from step-4, 400 tokens" in capsys.readouterr().err
    (row,) = read_rows(folder.restarts)
    assert (row["step"], row["world"], row["device"], row["changed"]) == (4, 1, "cpu", {})
    assert row["versions"]["torch"] == torch.__version__.partition("+")[0] or row["versions"]


def test_a_bad_checkpoint_is_named_and_the_one_before_taken(
    broken_off: tuple[Config, RunFolder], capsys: pytest.CaptureFixture[str]
) -> None:
    config, folder = broken_off
    (folder.checkpoints / "step-4" / "optimizer.pt").unlink()
    resumed = go_on(config, folder)
    assert resumed.state is not None and resumed.state.step == 2
    said = capsys.readouterr().err
    assert "skipped: " in said and "step-4/optimizer.pt is missing" in said
    assert "latest says 'step-4'; step-2 is used" in said
    assert [row["step"] for row in read_rows(folder.metrics)] == [1, 2, 2]


def test_if_all_are_bad_nothing_is_touched(broken_off: tuple[Config, RunFolder]) -> None:
    config, folder = broken_off
    for step in (2, 4):
        (folder.checkpoints / f"step-{step}" / "weights.pt").write_bytes(b"")
    before = contents(folder.path)
    with pytest.raises(CheckpointError, match="step-4/weights.pt.*step-2/weights.pt"):
        go_on(config, folder)
    assert contents(folder.path) == before


def test_a_run_without_a_checkpoint_starts_again_and_says_so(
    broken_off: tuple[Config, RunFolder],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Code whose work is lost is none that trained it."""
    config, folder = broken_off
    shutil.rmtree(folder.checkpoints)
    code_is("aa", monkeypatch)
    again = go_on(config, folder)
    assert again.state is None and again.codes == ["aa" * 32]
    assert "before its first checkpoint: it starts again" in capsys.readouterr().err
    assert read_rows(folder.metrics) == []
    assert [row["step"] for row in read_rows(folder.restarts)] == [0]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (Text(corpus_sha256="c1" * 32), "corpus_sha256 was c0c0.* is c1c1"),
        (Text(tokenizer=Tokenizer("71" * 32)), "tokenizer_sha256 was 7070.* is 7171"),
    ],
)
def test_other_text_is_refused(text: Text, key: str, broken_off: tuple[Config, RunFolder]) -> None:
    config, folder = broken_off
    before = contents(folder.path)
    with pytest.raises(DataError, match=key):
        go_on(config, folder, text)
    assert contents(folder.path) == before


def test_other_weights_to_continue_are_refused(broken_off: tuple[Config, RunFolder]) -> None:
    with pytest.raises(CheckpointError, match="holds 1234"):
        go_on(*broken_off, origin="1234" * 16)


FIXED = {
    "seed": "7", "optimizer.learning_rate": "0.002", "position": "alibi", "position.base": "500",
    "train_length": "24", "data.vocab": "300", "trainer.batch_sequences": "16",
    "trainer.max_steps": "400", "trainer.precision": "bf16", "data.mix.copy": "0.1",
    "model.qk_norm": "key", "evaluate.documents": "16", "optimizer.gradient_clip": "0.5",
    "trainer.evaluate_every": "50", "data.validation_fraction": "0.1",
}  # fmt: skip


@pytest.mark.parametrize("key", FIXED)
def test_what_changes_the_numbers_is_refused_by_key(
    key: str, broken_off: tuple[Config, RunFolder]
) -> None:
    config, folder = broken_off
    folder.release()
    before = contents(folder.path)
    other = small_config(Path(config.runs), f"{key}={FIXED[key]}")
    for ask in (RunFolder.check, RunFolder.create):
        with pytest.raises(ConfigError, match=f"{key}.* is .* there, .* here") as caught:
            ask(other, name="a")
        assert caught.value.exit_code == 2
    assert contents(folder.path) == before


FREE: dict[str, tuple[str, list[Any]]] = {
    "trainer.processes": ("2", [1, 2]), "trainer.zero_stage": ("3", [1, 3]),
    "trainer.nodes": ("2", [1, 2]), "trainer.accelerator": ("cpu", ["auto", "cpu"]),
    "trainer.sequence_parallel": ("2", [1, 2]), "trainer.ring": ("2", [1, 2]),
    "trainer.hang_timeout": ("0", [80.0, 0.0]), "trainer.keep_best": ("true", [False, True]),
    "model.activation_checkpointing": ("true", [False, True]),
    "trainer.accumulate": ("2", [1, 2]), "trainer.log_every": ("5", [10, 5]),
    "trainer.save_every": ("7", [100, 7]), "trainer.keep": ("5", [2, 5]),
    "trainer.threads": ("1", [None, 1]), "data.workers": ("2", [0, 2]),
    "data.prepared": ("elsewhere", ["data/prepared", "elsewhere"]),
    "model.tiled_mlp": ("true", [False, True]), "model.attention_path": ("tile", ["auto", "tile"]),
    "wandb.mode": ("offline", ["off", "offline"]),
}  # fmt: skip
# changes that cannot come alone
WITH = {
    "trainer.hang_timeout": ("trainer.processes",),
    "trainer.sequence_parallel": ("trainer.processes",),
    "trainer.ring": ("trainer.processes", "trainer.sequence_parallel"),
}


def test_every_setting_that_may_change_is_tried(tmp_path: Path) -> None:
    keys = dotted(public(small_config(tmp_path)))
    free = {key for key in keys if Change(key, 0, 1).free and not key.startswith("wandb.")}
    assert free == {key for key in FREE if not key.startswith("wandb.")}


@pytest.mark.parametrize("key", FREE)
def test_what_does_not_is_taken_said_and_noted(
    key: str, broken_off: tuple[Config, RunFolder], capsys: pytest.CaptureFixture[str]
) -> None:
    config, folder = broken_off
    folder.release()
    saved = folder.config.read_bytes()
    keys = (*WITH.get(key, ()), key)
    other = small_config(Path(config.runs), *(f"{one}={FREE[one][0]}" for one in keys))
    folder = RunFolder.create(other, name="a")
    resumed = go_on(other, folder)
    assert resumed.state is not None and resumed.state.step == 4
    assert folder.config.read_bytes() == saved
    assert read_rows(folder.restarts)[0]["changed"] == {one: FREE[one][1] for one in keys}
    shown = " -> ".join(map(show, FREE[key][1]))
    said = capsys.readouterr().err
    assert f": {key} {shown}" in said or f", {key} {shown}" in said
    # and the next checkpoint is still of this run
    resumed.keeper.save(replace(state(8)))
    assert (
        json.loads((folder.checkpoints / "step-8" / "manifest.json").read_text())["config_hash"]
        == folder.identity
    )
    assert go_on(config, folder).state is not None


def test_other_versions_are_said(
    broken_off: tuple[Config, RunFolder],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pipeline.launch.resuming._VERSIONS", ("torch",))
    assert go_on(*broken_off).state is not None
    assert "its last digits may differ" in capsys.readouterr().err


def test_other_code_that_trains_on_is_said_and_noted_at_every_change(
    broken_off: tuple[Config, RunFolder],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also in the next checkpoint, and so for all that comes of it."""
    resumed = go_on(*broken_off)
    assert resumed.codes == [training_code(broken_off[0])]
    assert "other code" not in capsys.readouterr().err
    del resumed.keeper.facts["training_sha256"]  # as in checkpoints older than the field
    resumed.keeper.save(state(6))
    expected = ["unknown"]
    for step, code in ((8, "aa"), (10, "aa"), (12, "bb"), (14, "aa")):
        code_is(code, monkeypatch)
        resumed, before = go_on(*broken_off), expected[-1]
        said = f"by other code (training_sha256 {before[:12]}) than goes on now ({code * 6})"
        assert (said in capsys.readouterr().err) == (code * 32 != before)
        expected += [code * 32] if code * 32 != before else []
        assert resumed.codes == expected
        assert read_rows(broken_off[1].restarts)[-1]["training_sha256"] == code * 32
        saved = resumed.keeper.save(state(step))
        assert json.loads((saved / "manifest.json").read_text())["training_sha256"] == expected
    assert expected == ["unknown", "aa" * 32, "bb" * 32, "aa" * 32]


def test_a_folder_that_a_kill_left_half_made_is_made_again(tmp_path: Path) -> None:
    config = small_config(tmp_path / "runs")
    folder = RunFolder.create(config, name="a")
    folder.release()
    whole = contents(folder.path)
    folder.config.rename(folder.path / "config.yaml.partial")
    RunFolder.check(config, name="a")
    again = RunFolder.create(config, name="a")
    again.release()
    assert again.config.read_bytes() == whole["config.yaml"]
    (folder.path / "notes").write_text("mine")
    folder.config.unlink()
    with pytest.raises(ConfigError, match="is no run folder"):
        RunFolder.create(config, name="a")
