"""Decoders whose answers are known: told what to think, guessing, or built by hand of weights."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pipeline.config.schema import Config, DataConfig
from pipeline.data.prepare import Prepared
from pipeline.data.tasks.base import Task
from pipeline.data.tasks.registry import build_task
from pipeline.data.tasks.symbols import Ids, Symbols
from pipeline.evaluate.score import Scorer
from pipeline.evaluate.steps import Row, Values
from pipeline.evaluate.tasks import TaskStep
from pipeline.model.decoder import Decoder
from pipeline.model.exchange import Exchange
from pipeline.model.loss import Head
from pipeline.parallel.mesh import Mesh
from tests.distributed.toy import VOCAB, toy_config

# tokens [B,T] -> logits [B,T,V]
Thought = Callable[[Tensor], Tensor]
WINNING = 30.0
BYTES = 300  # tokens of the vocabulary of `prepared`


class Told(Decoder):
    """Thinks what it is told; places, labels, loss and ranks are those of every decoder."""

    def __init__(self, config: Config, thought: Thought) -> None:
        super().__init__(config)
        self.thought = thought
        self.head = Head(nn.Parameter(torch.eye(config.data.vocab)))

    def hidden(
        self, tokens: Tensor, ids: Tensor, exchange: Exchange, consecutive: bool = True
    ) -> Tensor:
        return self.thought(tokens)


def scorer_of(decoder: Decoder) -> Scorer:
    return Scorer(decoder, Mesh(), Exchange(), torch.device("cpu"), batch_tokens=512)


def config_of(vocab: int, position: str = "none", **settings: Any) -> Config:
    """A small configuration in this vocabulary."""
    config = toy_config(position)
    config.data = DataConfig(vocab=vocab)
    for name, value in settings.items():
        setattr(config, name, value)
    return config


def told_toy(thought: Thought) -> Told:
    """`thought` in the vocabulary of toys."""
    return Told(config_of(VOCAB), thought)


def real_task(name: str, prepared: Prepared) -> Task:
    """A registered task in the vocabulary of `prepared`."""
    return build_task(name, prepared.tokenizer, prepared.split("test"))


def step_of(task: Task, length: int, count: int = 12, depth: float | None = None) -> TaskStep:
    """One cell of a task."""
    return TaskStep(task, length, depth, count, "test")


def measured(step: TaskStep, decoder: Decoder) -> tuple[Row, Values]:
    """What the cell gives for this decoder."""
    config = config_of(decoder.embedding.num_embeddings)
    return step.measure(config, scorer_of(decoder))


def equal(vocab: int) -> Thought:
    """Every token as likely as every other."""
    return lambda tokens: torch.zeros(*tokens.shape, vocab)


def always(vocab: int, choice: int) -> Thought:
    """One token before all others, whatever was shown."""
    return lambda tokens: torch.eye(vocab)[choice].mul(WINNING).expand(*tokens.shape, vocab)


def guessing(vocab: int, choices: Ids, seed: int = 0) -> Thought:
    """Some order of the choices, another one at every token, before all others."""
    draw = torch.Generator().manual_seed(seed)

    def thought(tokens: Tensor) -> Tensor:
        logits = torch.full((*tokens.shape, vocab), -WINNING)
        logits[..., choices] = torch.rand(*tokens.shape, len(choices), generator=draw)
        return logits

    return thought


def reading(task: Task, vocab: int) -> Thought:
    """Solves the task by reading what stands before the answer, and writes the answer."""

    def thought(tokens: Tensor) -> Tensor:
        logits = torch.zeros(*tokens.shape, vocab)
        count = task.answer_tokens(tokens.shape[1])
        start = tokens.shape[1] + 1 - count
        for row, shown in zip(logits, tokens.numpy(), strict=True):
            answer = solved(task.name, task.symbols, shown[:start].tolist())
            assert len(answer) == count
            row[range(start - 1, start - 1 + count), answer] = WINNING
        return logits

    return thought


def solved(name: str, symbols: Symbols, prompt: list[int]) -> list[int]:
    """The answer to a prompt of ids, worked out from the words of the task."""
    marker = prompt.index(symbols.marker(name))
    body = prompt[marker + 1 : -1]
    letters, digits = symbols.letters.tolist(), symbols.digits.tolist()
    if name in ("copy", "reverse"):
        return body if name == "copy" else body[::-1]
    if name == "sort":
        return sorted(body, key=letters.index)
    if name == "majority":
        return [max(letters[:4], key=body.count)]
    if name == "parity":
        return [digits[body.count(digits[1]) % 2]]
    if name == "addition":
        plus = body.index(symbols.plus)
        parts = body[:plus], body[plus + 1 :]
        total = sum(digits.index(x) * 10**i for part in parts for i, x in enumerate(part))
        return [digits[total // 10**i % 10] for i in range(1 + max(map(len, parts)))]
    if name == "variable_tracking":
        return _tracked(symbols, prompt)
    return _continued(prompt, {"recall": 2}.get(name, 5), 3 if name == "multi_value" else 1)


def _continued(prompt: list[int], size: int, times: int) -> list[int]:
    """What followed, `size` tokens each time, where the end of the prompt stood before: of the
    places that agree with it furthest back, the first `times`."""

    def agreement(place: int) -> int:
        same = 0
        while same < place and prompt[place - 1 - same] == prompt[-1 - same]:
            same += 1
        return same

    places = sorted(range(1, len(prompt)), key=agreement)[-times:]
    return [x for place in sorted(places) for x in prompt[place : place + size]]


def _tracked(symbols: Symbols, prompt: list[int]) -> list[int]:
    """The variables that have the value at the end of the prompt, one after another."""
    given, found = prompt[-5:], list[int]()
    statements = prompt[: prompt.index(symbols.ask)]
    while True:
        words = [symbols.equals, *given, symbols.end]
        size = len(words)
        place = [i for i in range(len(statements)) if statements[i : i + size] == words]
        if not place:
            return found
        given = [statements[place[0] - 1]]
        found += given


def induction(symbols: Symbols, vocab: int, train_length: int, *, sees_back: bool) -> Decoder:
    """A decoder of two layers that continues what it has read before, built of T5 distances.

    Of its four heads, heads 0 to 2 of the first layer attend to the token 1, 2 and 3 before, by
    their bias alone, and write it beside the token. Head 3 of the second layer compares the last
    three tokens of the query with the three before each key, and writes the token at the key
    (induction heads: Olsson et al. 2022). If not `sees_back` the first layer attends everywhere.
    """
    words = np.concatenate([symbols.letters, symbols.digits, [symbols.bos, symbols.ask]])
    words = np.append(words, symbols.marker("recall"))
    n, width = len(words), 4 * 3 * len(words)
    config = config_of(vocab, "t5", train_length=train_length)
    config.model.width, config.model.mlp_width, config.model.tied_embeddings = width, 8, False
    decoder = Decoder(config)
    size = width // 4
    one_hot, far = torch.eye(n), torch.zeros(32, 4)
    if sees_back:
        far[[1, 2, 3], [0, 1, 2]] = WINNING
    weights = dict(decoder.named_parameters())
    first, second = (
        {part: weights[f"blocks.{layer}.attention.{part}"] for part in ("qkv", "out")}
        for layer in (0, 1)
    )
    with torch.no_grad():
        for parameter in weights.values():
            if parameter.ndim > 1:
                parameter.zero_()
        weights["position.table"].copy_(far)
        decoder.embedding.weight[words, :n] = one_hot * width**-0.5
        for head in range(3):
            value = 3 * size * head + 2 * size
            first["qkv"][value : value + n, :n] = one_hot
            slot = n * (head + 1)
            first["out"][slot : slot + n, size * head : size * head + n] = one_hot * width**-0.5
        start = 3 * size * 3
        second["qkv"][start : start + 3 * n, : 3 * n] = torch.eye(3 * n) * WINNING
        second["qkv"][start + size : start + size + 3 * n, n : 4 * n] = torch.eye(3 * n)
        second["qkv"][start + 2 * size : start + 2 * size + n, :n] = one_hot
        second["out"][4 * n : 5 * n, 3 * size : 3 * size + n] = one_hot
        decoder.head.weight[words, 4 * n : 5 * n] = one_hot * WINNING
    return decoder
