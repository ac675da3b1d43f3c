"""No clock decides which checkpoint is used or deleted: neither that of files, which copying and
other machines change, nor that of a rank, which may go backwards."""

import os
import random
from pathlib import Path

import pytest
import torch

from pipeline.checkpoint.export import latest_export, save_export
from pipeline.checkpoint.state import Keeper, best_of, find_state, keep_only, stale_latest
from pipeline.record.folder import RunFolder
from pipeline.record.metrics import MetricsLog, read_rows
from tests.checkpoint.made_states import FACTS, flip_bit, state
from tests.distributed.ranks import run_ranks
from tests.faults.inject import clock
from tests.launch.made_origin import small_config
from tests.launch.test_resuming import go_on
from tests.launch.test_resuming import state as small_state

ORDERS = ("backwards", "equal", "shuffled", "in the future")


def skew(folder: Path, order: str) -> None:
    """Give everything below other times: the newer the checkpoint, the older its files, say."""
    draw = random.Random(order)
    for number, path in enumerate(sorted(folder.rglob("*"), key=lambda p: (len(p.name), str(p)))):
        seconds = {
            "backwards": 1e9 - 1000.0 * number,
            "equal": 1e9,
            "shuffled": draw.uniform(0.0, 2e9),
            "in the future": 4e9 - number,
        }[order]
        os.utime(path, (seconds, seconds))


def names(checkpoints: Path) -> list[str]:
    return sorted(path.name for path in checkpoints.iterdir())


@pytest.mark.parametrize("order", ORDERS)
def test_steps_decide_what_is_kept_found_and_best(order: str, tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    keeper = Keeper(checkpoints, 3, FACTS, keep_best=True)
    with clock(start=2e9, step=-3600.0):
        for step, loss in {2: 2.0, 4: 1.0, 9: 3.0, 10: 2.5, 100: 2.0}.items():
            keeper.save(state(step, loss))
            skew(tmp_path, order)
        assert names(checkpoints) == ["latest", "step-10", "step-100", "step-4"]
        found = find_state(checkpoints)
        assert found is not None and found.folder.name == "step-100" and not found.bad
        assert stale_latest(found) is None
        flip_bit(checkpoints / "step-100" / "weights.pt")
        skew(tmp_path, order)
        found = find_state(checkpoints)
        assert found is not None and found.folder.name == "step-10"
        assert stale_latest(found) == "'step-100'"
        again = Keeper(checkpoints, 2, FACTS, found.folder, keep_best=True)
        again.prune()
        assert names(checkpoints) == ["latest", "step-10", "step-4"]
        assert best_of(checkpoints.glob("step-*")) == checkpoints / "step-4"
        save_export(checkpoints, state(11).weights, step=11, tokens=110, config_hash="c")
        skew(tmp_path, order)
        assert latest_export(checkpoints).name == "step-11"
        keep_only(latest_export(checkpoints))
    assert names(checkpoints) == ["step-11"]


@pytest.fixture
def broken_off(tmp_path: Path) -> RunFolder:
    """A run with checkpoints at 2, 4 and 6, of which the last is damaged, and rows up to step 6."""
    config = small_config(tmp_path / "runs")
    folder = RunFolder.create(config, name="a")
    keeper = go_on(config, folder).keeper
    keeper.keep = 3
    with MetricsLog(folder.metrics) as log:
        for step in range(1, 7):
            log.write({"kind": "train", "step": step, "loss": 1 / step})
            if step % 2 == 0:
                keeper.save(small_state(step))
    flip_bit(folder.checkpoints / "step-6" / "weights.pt")
    folder.release()
    return folder


@pytest.mark.distributed
def test_ranks_with_other_clocks_go_on_from_one_checkpoint(
    broken_off: RunFolder, tmp_path: Path
) -> None:
    skew(broken_off.path, "backwards")
    out = tmp_path / "seen.pt"
    run_ranks(2, "tests.faults.clocks_worker", str(broken_off.path), str(out), timeout=120.0)
    first, other = torch.load(out, weights_only=True)
    where = str(broken_off.checkpoints)
    assert first == (4, f"{where}/step-8", "step-8") and other == (4, f"{where}/step-4", "")
    assert [row["step"] for row in read_rows(broken_off.metrics)] == [1, 2, 3, 4]
    assert names(broken_off.checkpoints) == ["latest", "step-4", "step-8"]
