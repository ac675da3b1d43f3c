"""A trained run whose weights are missing or damaged: what the command that trains it does."""

import shutil
from pathlib import Path

import pytest

from pipeline.checkpoint.export import latest_export
from pipeline.errors import CheckpointError
from pipeline.launch.resuming import reopen_if_lost
from pipeline.record.folder import RunFolder
from tests.checkpoint.made_states import flip_bit, state
from tests.launch.made_origin import finish, small_config
from tests.launch.made_study import command, write_study
from tests.launch.test_resumed_evaluation import contents
from tests.launch.test_resuming import go_on


@pytest.fixture
def trained(tmp_path: Path) -> RunFolder:
    return RunFolder.open(finish(small_config(tmp_path / "runs")))


def leave_checkpoint(folder: RunFolder, seed: int = 0) -> None:
    """One at step 4, as `keep_best` leaves it beside the weights."""
    own = small_config(folder.path.parents[1], f"seed={seed}")
    other = RunFolder.create(own, name="other")
    saved = go_on(own, other).keeper.save(state(4))
    shutil.copytree(saved, folder.checkpoints / saved.name)
    other.release()


def damage(folder: RunFolder) -> None:
    flip_bit(latest_export(folder.checkpoints) / "weights.pt")


def remove(folder: RunFolder) -> None:
    shutil.rmtree(latest_export(folder.checkpoints))


def test_whole_weights_are_left_alone(
    trained: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    leave_checkpoint(trained)
    before = contents(trained.path)
    reopen_if_lost(trained)
    assert contents(trained.path) == before and capsys.readouterr().err == ""


@pytest.mark.parametrize("lose", [damage, remove])
@pytest.mark.parametrize("finished", [True, False])
def test_it_goes_on_from_a_checkpoint(
    finished: bool, lose: object, trained: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    leave_checkpoint(trained)
    if not finished:
        (trained.path / "finished").unlink()
        trained.take()
    assert callable(lose)
    lose(trained)
    reopen_if_lost(trained)
    assert "is trained again from step-4 on" in capsys.readouterr().err
    assert not trained.finished and not trained.trained.exists() and not trained.summary.exists()
    assert (trained.path / "lock").exists()


def test_rows_stay_where_no_checkpoint_is_left(
    trained: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(trained)
    before = contents(trained.path)
    reopen_if_lost(trained)
    said = capsys.readouterr().err
    assert "weights.pt: sha256" in said and f"or delete {trained.path} and train again" in said
    assert contents(trained.path) == before
    (trained.path / "finished").unlink()
    with pytest.raises(CheckpointError, match="not tested to the end: restore .*or delete"):
        reopen_if_lost(trained)


def test_a_checkpoint_of_another_run_makes_nothing(trained: RunFolder) -> None:
    leave_checkpoint(trained, seed=7)
    remove(trained)
    before = contents(trained.path)
    with pytest.raises(CheckpointError, match="is of another run"):
        reopen_if_lost(trained)
    assert contents(trained.path) == before


@pytest.mark.slow
@pytest.mark.distributed
def test_the_same_weights_are_made_again(tmp_path: Path) -> None:
    """From the best checkpoint, and the rows of the evaluation stay; before, nothing else is
    tested in their place."""
    study = write_study(tmp_path, "rope")
    settings = [
        *("trainer.processes=1", "trainer.sequence_parallel=1", "trainer.keep_best=true"),
        *("trainer.save_every=2", "trainer.evaluate_every=2", "trainer.max_steps=10"),
        *("optimizer.warmup_steps=10", "optimizer.learning_rate=1.0"),
    ]
    command("train.py", study, *settings)
    run = tmp_path / "runs" / "path" / "rope-L33-s0"
    before = contents(run)
    shutil.rmtree(run / "checkpoints" / "step-10")
    refused = command("-m", "pipeline", "evaluate", run, expect=3)
    assert "holds no weights of a whole training" in refused.stderr
    assert "give the command that trains this run" in refused.stderr
    said = command("train.py", study, *settings).stderr
    assert "is trained again from step-" in said and "goes on from step-" in said
    after = contents(run)
    for name in before:
        if name.startswith(("checkpoints/", "evaluation/")):
            assert after[name] == before[name], name
