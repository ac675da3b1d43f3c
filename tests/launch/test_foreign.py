"""A checkpoint and a `config.yaml` of two configurations: which of the files is named."""

import shutil
from pathlib import Path

import pytest

from pipeline.config.compose import load
from pipeline.config.schema import Config
from pipeline.errors import CheckpointError
from pipeline.record.folder import RunFolder
from tests.launch.made_origin import small_config
from tests.launch.test_resuming import go_on, state

EITHER = "Restore that file if it was .*; if the checkpoint is of another run, move it"


@pytest.fixture
def run(tmp_path: Path) -> tuple[Config, RunFolder]:
    """A run that was broken off, with checkpoints at 2 and 4."""
    config = small_config(tmp_path / "runs")
    folder = RunFolder.create(config, name="a")
    keeper = go_on(config, folder).keeper
    for step in (2, 4):
        keeper.save(state(step))
    return config, folder


def edit(folder: RunFolder) -> Config:
    text = folder.config.read_text()
    folder.config.write_text(text.replace("beta2: 0.95", "beta2: 0.9"))
    assert folder.config.read_text() != text
    return load(folder.config, [])[0]


def copy_in(folder: RunFolder) -> Path:
    """A newer checkpoint, of a run with another seed."""
    config = small_config(folder.path.parents[1], "seed=7")
    saved = go_on(config, RunFolder.create(config, name="b")).keeper.save(state(6))
    return Path(shutil.copytree(saved, folder.checkpoints / saved.name))


def test_an_edited_configuration_is_named(run: tuple[Config, RunFolder]) -> None:
    edited = edit(run[1])
    said = "config.yaml is not what .*step-4 and .*step-2 were trained under.* Restore that file"
    with pytest.raises(CheckpointError, match=said):
        go_on(edited, run[1])


def test_a_checkpoint_of_another_run_is_named(run: tuple[Config, RunFolder]) -> None:
    """The older ones and config.yaml agree: it is the newest that does not belong here."""
    copied = copy_in(run[1])
    said = f"{copied} was trained .*config.yaml and .*step-4 name: .* another run. Move it out of"
    with pytest.raises(CheckpointError, match=said):
        go_on(*run)
    shutil.rmtree(copied)
    resumed = go_on(*run)
    assert resumed.state is not None and resumed.state.step == 4


def test_where_nothing_tells_both_are_named(run: tuple[Config, RunFolder]) -> None:
    copied = copy_in(run[1])
    edited = edit(run[1])
    with pytest.raises(CheckpointError, match=EITHER):
        go_on(edited, run[1])
    shutil.rmtree(copied)
    (run[1].checkpoints / "step-2" / "manifest.json").write_text("{}")
    with pytest.raises(CheckpointError, match=EITHER):
        go_on(edited, run[1])
