"""What a task row says, what it refuses, and which cells there are."""

import hashlib
import json
import math

import numpy as np
import pytest
import torch

from pipeline.data.prepare import Prepared
from pipeline.data.tasks.registry import evaluation_example
from pipeline.errors import DataError
from pipeline.evaluate import tasks
from pipeline.evaluate.steps import Row
from pipeline.evaluate.tasks import depth_means, task_steps
from pipeline.model.decoder import Decoder
from pipeline.report.needed import DEFINED_TASK, ROW, ROW_OF_EXTENSION, ROW_OF_PROTOCOL
from tests.distributed.toy import VOCAB, toy_config
from tests.evaluate.known_models import (
    BYTES,
    Told,
    config_of,
    equal,
    measured,
    real_task,
    scorer_of,
    step_of,
    told_toy,
)
from tests.evaluate.toy_task import ToyTask, at_random


def test_other_seeds_are_asked_the_same(prepared: Prepared) -> None:
    task, rows = real_task("passkey", prepared), []
    for seed in (0, 7):
        config = config_of(BYTES, seed=seed)
        step = step_of(task, task.least + 20, depth=0.25)
        rows.append(step.measure(config, scorer_of(Told(config, equal(BYTES))))[0])
    assert [row.pop("seed") for row in rows] == [0, 7]
    assert rows[0] == rows[1]
    digest = hashlib.sha256()
    for number in range(12):
        digest.update(evaluation_example(task, task.least + 20, 0.25, number).tokens.tobytes())
    assert rows[0]["text_sha256"] == digest.hexdigest()


def test_every_task_at_every_length_and_depth_has_a_step(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "evaluation_example", None)  # no example before it is needed
    config = config_of(BYTES, eval_lengths=[8, 64])
    config.evaluate.tasks, config.evaluate.task_examples = ["passkey", "copy"], 5
    config.evaluate.needle_depths, config.evaluate.split = [0.0, 0.25], "validation"
    steps = task_steps(config, prepared)
    assert [step.key for step in steps] == [
        "task-passkey-8-d0.0", "task-passkey-8-d0.25", "task-passkey-64-d0.0",
        "task-passkey-64-d0.25", "task-copy-8", "task-copy-64",
    ]  # fmt: skip
    assert [(step.length, step.tokens) for step in steps[3:5]] == [(64, 320), (8, 40)]
    assert {step.task.haystack.pack.split for step in steps} == {"validation"}


def test_a_cell_that_is_too_short_or_too_long_is_not_defined() -> None:
    task = ToyTask(at_random)
    short, values = measured(step_of(task, task.least - 1), told_toy(equal(VOCAB)))
    assert (short["defined"], short["examples"], values) == (False, 0, {})
    assert short["reason"] == "toy is not defined below 4 tokens"
    long, values = measured(step_of(task, 22), Decoder(toy_config("learned")))
    assert (long["defined"], long["examples"], values) == (False, 12, {})
    assert "not defined beyond 21 tokens" in long["reason"]
    same, _ = measured(step_of(task, 22), told_toy(equal(VOCAB)))
    assert long["text_sha256"] == same["text_sha256"] != short["text_sha256"]
    assert measured(step_of(task, 21), Decoder(toy_config("learned")))[0]["defined"]


def test_a_loss_that_is_no_number_is_not_defined() -> None:
    row, values = measured(
        step_of(ToyTask(at_random), 9),
        told_toy(lambda tokens: torch.full((*tokens.shape, VOCAB), math.nan)),
    )
    assert (row["defined"], row["exact_match"], row["rank"], values) == (False, None, None, {})
    assert "not a finite number" in row["reason"]


@pytest.mark.parametrize("off", [-4, 1])
def test_a_cell_that_is_not_as_long_as_it_says_is_an_error(off: int) -> None:
    with pytest.raises(DataError, match=rf"task-toy-100: example 0 shows {100 + off} tokens"):
        measured(step_of(ToyTask(at_random, off=off), 100), told_toy(equal(VOCAB)))


def test_the_length_in_a_row_is_the_real_one() -> None:
    row, _ = measured(step_of(ToyTask(at_random, off=-3), 100), told_toy(equal(VOCAB)))
    assert (row["length"], row["real_length"]) == (100, 97.0)


def test_an_answer_out_of_other_tokens_than_the_choices_is_an_error() -> None:
    task = ToyTask(lambda draw: np.array([1, 9]))
    with pytest.raises(DataError, match=r"example 0 has the tokens \[9\] in its answer"):
        measured(step_of(task, 9), told_toy(equal(VOCAB)))


def test_rows_are_what_a_report_reads(prepared: Prepared) -> None:
    task = real_task("passkey", prepared)
    later = {"tokens", "corpus_sha256", "tokenizer_sha256", "code_sha256"}  # told by the launcher
    for length in (8, task.least):
        step = step_of(task, length, depth=0.5)
        row, _ = measured(step, Told(config_of(BYTES), equal(BYTES)))
        row = json.loads(json.dumps(row, allow_nan=False))
        needed = {**ROW, **ROW_OF_EXTENSION, **ROW_OF_PROTOCOL["task"]}
        needed |= DEFINED_TASK if row["defined"] else {}
        for key, kinds in needed.items():
            assert key in later or isinstance(row[key], kinds), key
        assert row["defined"] == (length == task.least)
        assert row["standard_error"] is None
        assert row["shown"] == (1 if row["defined"] else None)


@pytest.mark.parametrize("name", ["recall", "parity"])
def test_a_row_says_how_many_answers_a_prompt_shows(name: str, prepared: Prepared) -> None:
    task = real_task(name, prepared)
    row, _ = measured(step_of(task, 46), Told(config_of(BYTES), equal(BYTES)))
    # (46 tokens - 2 - the question of 4 with its answer) / 4 tokens of a pair
    assert row["shown"] == (10 if name == "recall" else None)


def test_means_over_depths_are_of_lengths_that_are_whole() -> None:
    def cell(length: int, depth: float | None, right: float | None, scored: int) -> Row:
        return {
            "protocol": "task", "task": "needle", "length": length, "depth": depth,
            "defined": right is not None, "exact_match": right, "examples": 4,
            "loss": right, "rank": right, "scored_tokens": scored,
        }  # fmt: skip

    rows = [
        cell(8, 0.0, 1.0, 4), cell(8, 1.0, 0.5, 12), cell(16, 0.0, 1.0, 4), cell(16, 1.0, None, 0),
        cell(8, None, 1.0, 4), {"protocol": "suffix"},
    ]  # fmt: skip
    assert depth_means(rows) == [
        {
            "protocol": "task", "task": "needle", "length": 8, "depth": None, "exact_match": 0.75,
            "loss": 0.625, "rank": 0.625,
        }
    ]  # fmt: skip
