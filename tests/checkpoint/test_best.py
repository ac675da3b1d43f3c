"""The checkpoint of the lowest validation loss outlives newer ones, until a better one is whole."""

from pathlib import Path

import pytest

from pipeline.checkpoint import folder as written
from pipeline.checkpoint.export import latest_export, save_export
from pipeline.checkpoint.folder import steps_of
from pipeline.checkpoint.state import Keeper, best_of, find_state, keep_only
from pipeline.errors import StorageError
from pipeline.record.metrics import read_rows
from tests.checkpoint.made_states import FACTS, flip_bit, state
from tests.launch.made_study import command, write_study


def steps(checkpoints: Path) -> list[int]:
    return [int(folder.name.removeprefix("step-")) for folder in steps_of(checkpoints)]


def keeper(place: Path, keep: int = 2, newest: Path | None = None, best: bool = True) -> Keeper:
    return Keeper(place / "checkpoints", keep, FACTS, newest, keep_best=best)


def test_it_takes_one_of_the_places_and_leaves_it_to_a_better_one(tmp_path: Path) -> None:
    given = {1: 3.0, 2: 2.0, 3: 2.5, 4: None, 5: 2.1, 6: 1.9, 7: 2.0, 8: 1.9, 9: 4.0}
    kept, two = [], keeper(tmp_path)
    for step, loss in given.items():
        two.save(state(step, loss))
        kept.append(steps(tmp_path / "checkpoints"))
    assert kept == [[1], [2, 1], [3, 2], [4, 2], [5, 2], [6, 5], [7, 6], [8, 7], [9, 8]]


def test_without_it_the_newest_are_kept(tmp_path: Path) -> None:
    plain = keeper(tmp_path, best=False)
    for step, loss in {1: 1.0, 2: 2.0, 3: 3.0}.items():
        plain.save(state(step, loss))
    assert steps(tmp_path / "checkpoints") == [3, 2]


def test_of_three_the_other_two_are_the_newest(tmp_path: Path) -> None:
    three = keeper(tmp_path, 3)
    for step, loss in {1: 3.0, 2: 1.0, 3: 2.0, 4: 2.0, 5: 2.0, 6: 2.0}.items():
        three.save(state(step, loss))
    assert steps(tmp_path / "checkpoints") == [6, 5, 2]


def test_it_stays_where_the_better_one_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = keeper(tmp_path)
    for step, loss in {1: 1.0, 2: 2.0, 3: 2.0}.items():
        two.save(state(step, loss))
    monkeypatch.setattr(written, "sync", lambda path: flip_bit(path) if path.is_file() else None)
    with pytest.raises(StorageError, match="does not hold what was written"):
        two.save(state(4, 0.5))
    assert steps(tmp_path / "checkpoints") == [3, 1]


def test_a_resumed_run_knows_it_and_a_bad_newer_one_goes(tmp_path: Path) -> None:
    checkpoints, two = tmp_path / "checkpoints", keeper(tmp_path, 3)
    for step, loss in {1: 1.0, 2: 2.0, 3: 0.5}.items():
        two.save(state(step, loss))
    flip_bit(checkpoints / "step-3" / "weights.pt")
    found = find_state(checkpoints)
    assert found is not None and found.folder.name == "step-2"
    again = keeper(tmp_path, 2, found.folder)
    for step in (3, 4):
        again.save(state(step, 2.0))
    assert steps(checkpoints) == [4, 1]


def test_what_has_no_readable_manifest_is_not_the_best(tmp_path: Path) -> None:
    checkpoints, three = tmp_path / "checkpoints", keeper(tmp_path, 3)
    for step, loss in {1: 1.0, 2: 2.0, 3: None}.items():
        three.save(state(step, loss))
    (checkpoints / "step-1" / "manifest.json").write_text("{}")
    assert best_of(steps_of(checkpoints)) == checkpoints / "step-2"
    assert best_of([checkpoints / "step-3"]) is None


@pytest.mark.parametrize(
    ("last", "asked", "left"),
    [(2.0, True, [4, 1]), (None, True, [4, 1]), (0.5, True, [4]), (2.0, False, [4])],
)
def test_a_trained_run_keeps_it_beside_its_end_if_that_is_worse(
    last: float | None, asked: bool, left: list[int], tmp_path: Path
) -> None:
    checkpoints, two = tmp_path / "checkpoints", keeper(tmp_path)
    for step, loss in {1: 1.0, 2: 2.0, 3: 2.0}.items():
        two.save(state(step, loss))
    weights = state(4).weights
    save_export(checkpoints, weights, step=4, tokens=40, config_hash="c", validation_loss=last)
    keep_only(latest_export(checkpoints), asked)
    assert steps(checkpoints) == left
    assert latest_export(checkpoints).name == "step-4"


@pytest.mark.slow
@pytest.mark.distributed
def test_a_whole_run_leaves_the_best_beside_the_end(tmp_path: Path) -> None:
    """Steps of a rate that rises to far too much: the first checkpoint is the best."""
    study = write_study(tmp_path, "rope")
    settings = [
        *("trainer.keep_best=true", "trainer.save_every=2", "trainer.evaluate_every=2"),
        *("trainer.max_steps=10", "optimizer.warmup_steps=10", "optimizer.learning_rate=1.0"),
    ]
    command("train.py", study, *settings)
    run = tmp_path / "runs" / "path" / "rope-L33-s0"
    rows = [row for row in read_rows(run / "metrics.jsonl") if row["kind"] == "evaluation"]
    losses = {row["step"]: row["loss"] for row in rows if row["length"] == 33}
    best = min(losses, key=lambda step: losses[step])
    assert best < 8
    assert steps(run / "checkpoints") == [10, best]
