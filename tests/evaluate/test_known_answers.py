"""Models whose answers are known, through the same decoder, scorer and steps as any other."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from pipeline.data.prepare import Prepared
from pipeline.data.tasks.registry import evaluation_example, task_names
from pipeline.data.tasks.symbols import Ids
from pipeline.model.decoder import Decoder
from tests.distributed.toy import VOCAB, scattered, toy_config
from tests.evaluate.known_models import (
    BYTES,
    WINNING,
    Told,
    always,
    config_of,
    equal,
    guessing,
    induction,
    measured,
    reading,
    real_task,
    scorer_of,
    step_of,
    told_toy,
)
from tests.evaluate.toy_task import ANSWER, ToyTask, at_random


@pytest.mark.parametrize("name", task_names())
def test_who_reads_the_prompt_scores_one(name: str, prepared: Prepared) -> None:
    task = real_task(name, prepared)
    for length in (task.least + 30, task.least + 101):
        step = step_of(task, length, depth=0.5 if task.has_depth else None)
        row, values = measured(step, Told(config_of(BYTES), reading(task, BYTES)))
        assert (row["defined"], row["exact_match"], row["rank"]) == (True, 1.0, 1.0)
        assert 0.0 <= row["loss"] < 1e-9
        assert values["exact"].tolist() == [1] * 12 and set(values["rank"]) == {1}
        assert row["scored_tokens"] == 12 * task.answer_tokens(length) == len(values["nats"])
        assert row["real_length"] == length
        assert (row["real_depth"] is None) == (not task.has_depth)
        if task.has_depth:
            shown = [evaluation_example(task, length, 0.5, n) for n in range(12)]
            assert row["real_depth"] == pytest.approx(np.mean([e.depth for e in shown]))
        assert {k: values[k].dtype for k in values} == {
            "nats": np.float32, "rank": np.int32, "exact": np.uint8,
        }  # fmt: skip


@pytest.mark.parametrize("name", task_names())
def test_who_finds_all_tokens_alike_is_never_right(name: str, prepared: Prepared) -> None:
    """Ties count against the model, or equal logits would be right everywhere."""
    task = real_task(name, prepared)
    row, values = measured(step_of(task, task.least + 9), Told(config_of(BYTES), equal(BYTES)))
    assert (row["exact_match"], row["rank"]) == (0.0, len(task.choices))
    assert row["loss"] == pytest.approx(math.log(BYTES), abs=1e-6)
    assert not values["exact"].any()


def test_a_tie_of_two_is_not_right_and_not_first() -> None:
    def two_alike(tokens: Tensor) -> Tensor:
        logits = torch.zeros(*tokens.shape, VOCAB)
        logits[..., [1, 2]] = WINNING
        return logits

    row, _ = measured(step_of(ToyTask(lambda draw: np.array([1, 1])), 9), told_toy(two_alike))
    assert (row["exact_match"], row["rank"]) == (0.0, 2.0)
    assert row["loss"] == pytest.approx(math.log(2), abs=1e-6)


@pytest.mark.parametrize(("name", "count"), [("parity", 2), ("majority", 4), ("recall", 10)])
def test_who_guesses_among_the_choices_scores_chance(
    name: str, count: int, prepared: Prepared
) -> None:
    task, asked = real_task(name, prepared), 600
    thought = guessing(BYTES, task.choices)
    row, values = measured(step_of(task, task.least + 3, asked), Told(config_of(BYTES), thought))
    tokens = task.answer_tokens(row["length"])
    p = count**-tokens
    assert row["choices"] == count and row["chance_exact_match"] == pytest.approx(p)
    assert row["chance"] == (count + 1) / 2
    assert abs(row["exact_match"] - p) < 4 * math.sqrt(p * (1 - p) / asked)
    spread = math.sqrt((count**2 - 1) / 12 / (asked * tokens))
    assert abs(row["rank"] - row["chance"]) < 4 * spread
    assert sorted(set(values["rank"])) == list(range(1, count + 1))


def test_guessing_several_tokens_is_a_power_of_guessing_one() -> None:
    asked, p = 3000, 4.0**-2
    task = ToyTask(at_random)
    row, _ = measured(step_of(task, 9, asked), told_toy(guessing(VOCAB, task.choices)))
    assert row["chance_exact_match"] == p
    assert abs(row["exact_match"] - p) < 4 * math.sqrt(p * (1 - p) / asked)
    assert abs(row["rank"] - 2.5) < 4 * math.sqrt(15 / 12 / (2 * asked))


@pytest.mark.parametrize(("name", "count"), [("parity", 2), ("majority", 4)])
def test_who_always_says_the_same_gains_nothing_over_chance(
    name: str, count: int, prepared: Prepared
) -> None:
    task, asked = real_task(name, prepared), 600
    for choice in task.choices[:2]:
        thought = always(BYTES, int(choice))
        row, _ = measured(step_of(task, 40, asked), Told(config_of(BYTES), thought))
        bound = 4 * math.sqrt((1 - 1 / count) / count / asked)
        assert abs(row["exact_match"] - 1 / count) < bound


def test_a_likelier_token_that_is_no_choice_makes_it_wrong_but_leaves_the_rank() -> None:
    def thought(tokens: Tensor) -> Tensor:
        logits = torch.zeros(*tokens.shape, VOCAB)
        logits[..., 1], logits[..., 40] = 3.0, 4.0
        return logits

    row, _ = measured(step_of(ToyTask(lambda draw: np.array([1, 1])), 9), told_toy(thought))
    assert (row["exact_match"], row["rank"]) == (0.0, 1.0)


def greedy(decoder: Decoder, prompt: Ids, count: int) -> Ids:
    """`count` tokens after `prompt`, each the likeliest after all before it."""
    tokens = torch.from_numpy(prompt)[None]
    with torch.no_grad():
        for _ in range(count):
            ids = torch.arange(tokens.shape[1])[None]
            hidden = decoder.hidden(tokens, ids, scorer_of(decoder).exchange)
            following = (hidden[:, -1] @ decoder.head.weight.T).argmax(-1, keepdim=True)
            tokens = torch.cat([tokens, following], dim=1)
    return tokens[0, len(prompt) :].numpy()


@pytest.mark.parametrize("position", ["rope", "learned", "alibi"])
def test_exact_is_what_decoding_greedily_would_write(position: str) -> None:
    """Of the answers, some are what the decoder writes, some are that but for one token: the
    second one too, so that the first is right and a later one is wrong."""
    decoder = scattered(Decoder(toy_config(position)))
    kinds = []

    def answers(draw: np.random.Generator, prompt: Ids) -> Ids:
        written = greedy(decoder, prompt, ANSWER)
        changed = int(draw.integers(-1, ANSWER))
        if changed >= 0:
            written[changed] = (written[changed] + draw.integers(1, VOCAB)) % VOCAB
        kinds.append(changed)
        return written

    task = ToyTask(prompted=answers, choices=np.arange(VOCAB))
    row, values = measured(step_of(task, 14, count=40), decoder)
    assert set(kinds) == set(range(-1, ANSWER))
    expected = []
    for number in range(40):
        tokens = evaluation_example(task, 14, None, number).tokens
        written = greedy(decoder, tokens[:-ANSWER], ANSWER)
        expected.append(bool((written == tokens[-ANSWER:]).all()))
    assert values["exact"].tolist() == expected
    assert expected == [changed == -1 for changed in kinds[:40]]
    assert row["exact_match"] == np.mean(expected)
    firsts = values["rank"].reshape(40, ANSWER)[:, 0]
    later = [i for i, changed in enumerate(kinds[:40]) if changed > 0]
    assert later and (firsts[later] == 1).all() and not values["exact"][later].any()


@pytest.mark.parametrize("length", [16, 32, 64, 128])
def test_an_induction_model_built_by_hand_recalls_at_every_length(
    length: int, prepared: Prepared
) -> None:
    task = real_task("recall", prepared)
    decoder = induction(task.symbols, BYTES, 32, sees_back=True)
    row, _ = measured(step_of(task, length), decoder)
    assert (row["exact_match"], row["rank"]) == (1.0, 1.0)
    assert row["loss"] < 1e-3


def test_without_its_first_layer_it_recalls_nothing(prepared: Prepared) -> None:
    task = real_task("recall", prepared)
    decoder = induction(task.symbols, BYTES, 32, sees_back=False)
    row, _ = measured(step_of(task, 64), decoder)
    assert row["exact_match"] <= 1 / 12
