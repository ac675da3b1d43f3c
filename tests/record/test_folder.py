import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.config.compose import load
from pipeline.config.redact import config_hash
from pipeline.config.schema import Config
from pipeline.errors import CheckpointError, ConfigError, StorageError
from pipeline.record import folder as module
from pipeline.record.folder import RunFolder, run_name

CONFIGS = Path(__file__).parents[2] / "configs"


def config_in(folder: Path, *overrides: str) -> Config:
    """A small valid configuration whose run folders go to ``folder``."""
    (config,) = load(CONFIGS / "smoke.yaml", [f"runs={folder}", "sweep={}", *overrides])
    return config


def test_it_is_made_with_configuration_environment_and_lock(tmp_path: Path) -> None:
    config = config_in(tmp_path / "runs", "experiment=first")
    made = RunFolder.create(config, name="rope-L64-s0")
    assert made.path == tmp_path / "runs" / "first" / "rope-L64-s0"
    assert load(made.config, []) == [config]
    assert json.loads(made.environment.read_text())["packages"]["torch"]
    holder = json.loads((made.path / "lock").read_text())
    assert (holder["host"], holder["pid"]) == (socket.gethostname(), os.getpid())
    assert made.metrics == made.path / "metrics.jsonl"
    assert made.evaluation.parent.is_dir()
    assert not made.finished


def test_the_marker_holds_the_hash_and_ends_the_lock(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    made = RunFolder.create(config, name="a")
    made.mark_finished()
    assert made.finished
    assert RunFolder.open(made.path).finished
    assert (made.path / "finished").read_text().strip() == config_hash(config)
    assert not (made.path / "lock").exists()


def test_a_finished_run_of_the_same_configuration_is_returned_untouched(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    made = RunFolder.create(config, name="a")
    made.mark_finished()
    before = {path: path.stat().st_mtime_ns for path in made.path.rglob("*")}
    again = RunFolder.create(config, name="a")
    assert again.finished
    assert {path: path.stat().st_mtime_ns for path in made.path.rglob("*")} == before


def test_runs_moved_elsewhere_are_the_same_runs(tmp_path: Path) -> None:
    made = RunFolder.create(config_in(tmp_path / "old"), name="a")
    made.mark_finished()
    (tmp_path / "old").rename(tmp_path / "new")
    assert RunFolder.create(config_in(tmp_path / "new"), name="a").finished


def test_another_configuration_is_refused_by_the_keys_that_differ(tmp_path: Path) -> None:
    RunFolder.create(config_in(tmp_path), name="a").mark_finished()
    other = config_in(tmp_path, "seed=7", "optimizer.learning_rate=0.002")
    with pytest.raises(ConfigError) as caught:
        RunFolder.create(other, name="a")
    message = str(caught.value)
    assert "seed is 0 there, 7 here" in message
    assert re.search(r"optimizer\.learning_rate is [\d.]+ there, 0\.002 here", message)
    assert "model" not in message
    assert "another experiment or delete" in message


def test_an_unfinished_run_is_taken_to_go_on(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    RunFolder.create(config, name="a").release()
    again = RunFolder.create(config, name="a")
    assert not again.finished and (again.path / "lock").exists()


def test_a_finished_run_stays_where_its_numbers_do_not_depend_on_what_differs(
    tmp_path: Path,
) -> None:
    made = RunFolder.create(config_in(tmp_path), name="a")
    made.mark_finished()
    other = config_in(tmp_path, "trainer.zero_stage=3", "wandb.mode=off")
    assert RunFolder.create(other, name="a").finished
    assert [str(change) for change in made.changed(other)] == [
        "trainer.zero_stage is 1 there, 3 here",
        "wandb.mode is 'auto' there, 'off' here",
    ]
    assert made.identity == config_hash(config_in(tmp_path))


def test_a_run_that_another_process_writes_is_left_alone(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    made = RunFolder.create(config, name="a")
    with pytest.raises(StorageError, match=f"written by process {os.getpid()} on this machine"):
        RunFolder.create(config, name="a")
    (made.path / "lock").write_text(json.dumps({"host": "elsewhere", "pid": 1}))
    with pytest.raises(StorageError, match="process 1 on elsewhere .*delete .*lock"):
        RunFolder.create(config, name="a")


def test_the_lock_of_a_process_that_is_gone_does_not_count(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    made = RunFolder.create(config, name="a")
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    lock = {"host": socket.gethostname(), "pid": gone.pid}
    (made.path / "lock").write_text(json.dumps(lock))
    assert not RunFolder.create(config, name="a").finished
    assert json.loads((made.path / "lock").read_text())["pid"] == os.getpid()


def test_a_configuration_edited_after_the_run_is_noticed(tmp_path: Path) -> None:
    made = RunFolder.create(config_in(tmp_path), name="a")
    made.mark_finished()
    edited = made.config.read_text().replace("seed: 0", "seed: 5")
    made.config.write_text(edited)
    with pytest.raises(ConfigError, match="changed after the run finished"):
        RunFolder.create(config_in(tmp_path, "seed=5"), name="a")
    with pytest.raises(ConfigError, match="changed after the run finished"):
        made.check_finished()


def test_a_stray_folder_is_not_written_into(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    stray = tmp_path / config.experiment / "a"
    stray.mkdir(parents=True)
    with pytest.raises(ConfigError, match="no run folder"):
        RunFolder.create(config, name="a")
    assert list(stray.iterdir()) == []


def test_where_nothing_can_be_written_nothing_happens(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match=r"cannot be written.*runs=<folder>"):
        RunFolder.create(config_in(tmp_path / "file" / "runs"), name="a")


@pytest.mark.parametrize("what", ["file", "link", "file above"])
def test_what_is_no_folder_where_the_run_folder_is_to_be_is_named(
    tmp_path: Path, what: str
) -> None:
    config = config_in(tmp_path / "runs")
    path = RunFolder.at(config, "a").path
    place = path.parent if what == "file above" else path
    place.parent.mkdir(parents=True)
    if what == "link":
        place.symlink_to(tmp_path / "nowhere")
    else:
        place.write_text("in the way")
    for refuse in (RunFolder.check, RunFolder.create):
        message = f"a cannot be written: {re.escape(str(place))} is a file, or a link .*Move it"
        with pytest.raises(StorageError, match=message):
            refuse(config, name="a")
    assert os.path.lexists(place) and not place.is_dir()


def test_a_disk_that_fills_up_leaves_no_half_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "environment", full)
    config = config_in(tmp_path)
    with pytest.raises(StorageError, match="No space left"):
        RunFolder.create(config, name="a")
    assert list((tmp_path / config.experiment).iterdir()) == []


@pytest.mark.parametrize(
    "name", ["", "../x", "a/b", "/a", "a\n", "a\0", "$(id)", ".hidden", "-x", "a" * 128, "ɑ"]
)
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="run name"):
        RunFolder.create(config_in(tmp_path / "runs"), name=name)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "text",
    [None, "", "{", "[]", "3", '{"corpus_sha256": "a", "tokenizer_sha256": "b"}',
     '{"corpus_sha256": "a", "tokenizer_sha256": "b", "lineage": 1}', '{"lineage": []}'],
)  # fmt: skip
def test_what_training_left_is_refused_if_damaged(tmp_path: Path, text: str | None) -> None:
    folder = RunFolder(tmp_path)
    if text is not None:
        folder.trained.write_text(text)
    with pytest.raises(CheckpointError, match="trained.json: missing or damaged: .*Restore"):
        folder.trained_facts()
    whole = {"corpus_sha256": "a", "tokenizer_sha256": "b", "lineage": []}
    folder.trained.write_text(json.dumps(whole))
    assert folder.trained_facts() == whole


def test_open_refuses_what_is_no_run_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no config\.yaml"):
        RunFolder.open(tmp_path)


def test_a_name_says_position_length_seed_and_the_other_axes(tmp_path: Path) -> None:
    config = config_in(
        tmp_path, "position=rope", "position.base=500000", "seed=3", "train_length=64",
        "optimizer.learning_rate=0.0005",
    )  # fmt: skip
    assert run_name(config, ["position", "seed", "train_length"]) == "rope-L64-s3"
    assert run_name(config, ["position.base", "optimizer.learning_rate"]) == (
        "rope-L64-s3-base500000-learning_rate0.0005"
    )


def test_rows_of_every_extension_with_every_setting_go_elsewhere(tmp_path: Path) -> None:
    folder = RunFolder.create(config_in(tmp_path), name="a")
    assert folder.evaluation_of({"name": "none"}) == folder.evaluation
    long = {"name": "longrope", "factors": [1.0 + n / 7 for n in range(64)]}
    places = [folder.evaluation_of(one) for one in (
        {"name": "yarn", "scale": 4.0}, {"name": "yarn", "scale": 8.0}, {"name": "ntk"}, long,
        {**long, "factors": long["factors"][::-1]},
    )]  # fmt: skip
    assert len(set(places)) == 5
    assert {place.parent.parent for place in places} == {folder.evaluation.parent}
    assert places[0] == folder.path / "evaluation" / "yarn-scale=4" / "rows.jsonl"
    assert all(len(place.parent.name) <= 100 for place in places)


def test_names_of_different_values_differ_and_are_file_names(tmp_path: Path) -> None:
    values = ["/text/a b.txt", "/text/a_b.txt", "x" * 300, "x" * 301]
    configs = [config_in(tmp_path, f"data.source={value}") for value in values]
    configs += [config_in(tmp_path, "model.layers=1"), config_in(tmp_path, "model.layers=2")]
    names = {run_name(config, ["data.source", "model"]) for config in configs}
    assert len(names) == len(configs)
    assert all(module.NAME.fullmatch(name) for name in names)


def test_many_axes_make_no_endless_name(tmp_path: Path) -> None:
    axes = ["optimizer.min_learning_rate"] * 6 + ["data.workers"]
    configs = [config_in(tmp_path, f"data.workers={workers}") for workers in (0, 1)]
    names = {run_name(config, axes) for config in configs}
    assert len(names) == 2
    assert all(module.NAME.fullmatch(name) and len(name) == 127 for name in names)


def test_an_axis_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no key 'optimizer\.rate'"):
        run_name(config_in(tmp_path), ["optimizer.rate"])


def test_a_run_is_the_one_it_was_though_settings_came_later(tmp_path: Path) -> None:
    made = RunFolder.create(config_in(tmp_path), name="a")
    text = made.config.read_text()
    older = text.replace("  keep: 2\n", "")
    assert older != text
    made.config.write_text(older)
    then = made.identity
    made.mark_finished()
    again = RunFolder.create(config_in(tmp_path), name="a")
    assert again.finished and again.identity == then
    made.check_checkpoint(tmp_path, then)
    # the marker agrees with config.yaml
    with pytest.raises(CheckpointError, match="finished name: it is of another run"):
        made.check_checkpoint(tmp_path, config_hash(config_in(tmp_path)))
