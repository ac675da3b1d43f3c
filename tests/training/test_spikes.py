"""What counts as a spike of the loss, and that going on from a checkpoint forgets nothing."""

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipeline.checkpoint.folder import verify
from pipeline.checkpoint.state import MOMENTS, Keeper, TrainingState, load_state
from pipeline.record.metrics import read_rows
from pipeline.record.wandb_points import points
from pipeline.training.callbacks.recorder import Recorder
from pipeline.training.spikes import LEAST, WINDOW, SpikeDetector
from tests.distributed.toy import toy_config
from tests.faults.inject import ranks_as
from tests.launch.made_study import command, write_study


def falling(steps: int) -> list[float]:
    """As a training: fast at first, then slow, with noise."""
    noise = np.random.default_rng(3).normal(0.0, 0.05, steps)
    return [2.0 + 6.0 * math.exp(-step / 40) + float(noise[step]) for step in range(steps)]


def test_a_quiet_training_has_none() -> None:
    detector = SpikeDetector()
    assert [step for step, loss in enumerate(falling(2000)) if detector.see(loss)] == []


def test_a_loss_of_ten_times_its_usual_is_one_wherever_it_comes() -> None:
    for step in (LEAST, LEAST + 1, 100, 1500):
        losses = falling(2000)
        losses[step] *= 10
        detector = SpikeDetector()
        assert [i for i, loss in enumerate(losses) if detector.see(loss)] == [step]


def test_mean_and_deviation_are_those_of_the_losses_before() -> None:
    detector = SpikeDetector([9.0] * 50 + [1.0, 3.0] * (WINDOW // 2))
    assert detector.see(8.99) is None
    detector = SpikeDetector([9.0] * 50 + [1.0, 3.0] * (WINDOW // 2))
    assert detector.see(9.01) == (2.0, 1.0)
    assert detector.losses[-1] == 9.01 and len(detector.losses) == WINDOW


def test_a_low_loss_is_none() -> None:
    assert SpikeDetector([2.0, 2.1] * 20).see(0.1) is None


def recorded(recorder: Recorder, losses: list[float], first: int) -> None:
    for step, loss in enumerate(losses, start=first):
        recorder.tokens += 10
        recorder._mind_spike(SimpleNamespace(step=step, loss=loss), True)  # type: ignore[arg-type]


def test_every_spike_is_a_row_of_its_own_also_after_going_on(tmp_path: Path) -> None:
    losses = falling(60)
    losses[40] *= 10
    rows: list[dict[str, Any]] = []
    trainer = toy_config("none").trainer
    recorder = Recorder(trainer, rows.append, "whole")
    recorded(recorder, losses, 0)
    (row,) = rows
    assert (row["kind"], row["step"], row["tokens"], row["loss"]) == ("spike", 41, 410, losses[40])
    assert row["mean"] + 7 * row["deviation"] < row["loss"]
    assert points(row) == [("train/tokens", {"train/tokens": 410, "train/spike": losses[40]})]

    first = Recorder(trainer, rows.append, "first")
    recorded(first, losses[:35], 0)
    nothing: dict[str, Any] = {name: {} for name in MOMENTS}
    state = TrainingState(35, first.tokens, 1.0, {}, nothing, first.spikes.losses)
    folder = Keeper(tmp_path / "checkpoints", 1, {"config_hash": ""}).save(state)
    found = load_state(folder, verify(folder)["seal"])
    second = Recorder(trainer, rows.append, "second")
    second.go_on(found.step, found.tokens, found.seconds, found.losses)
    recorded(second, losses[35:], 35)
    assert rows == [row, row]


@pytest.mark.distributed
def test_a_training_records_its_spike_and_counts_it(tmp_path: Path) -> None:
    """One target of step 21 costs 1e5 nats more than all others together."""
    program = ranks_as("tests.faults.poisoned_rank", "0", "20", "loss", "1e5")
    settings = (
        "trainer.max_steps=24", "trainer.processes=1", "trainer.sequence_parallel=1",
        "eval_lengths=[16,33]", "trainer.evaluate_every=24",
    )  # fmt: skip
    command("-c", program, "train", write_study(tmp_path, "none"), *settings)
    run = tmp_path / "runs" / "path" / "none-L33-s0"
    (row,) = (row for row in read_rows(run / "metrics.jsonl") if row["kind"] == "spike")
    # 8 sequences of 33 targets a step
    assert (row["step"], row["tokens"]) == (21, 21 * 8 * 33)
    assert row["loss"] == pytest.approx(1e5 / (8 * 33), rel=0.05)
    assert 2.0 < row["mean"] < 8.0 and row["mean"] + 7 * row["deviation"] < row["loss"]
    for file in ("trained.json", "summary.json"):
        assert json.loads((run / file).read_text())["loss_spikes"] == 1
