"""From a subject to something that can be run: one attention layer, or one whole training step."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.bench.attention import Mix, attention_case
from pipeline.bench.options import Subject
from pipeline.bench.rivals import build_rival
from pipeline.config.schema import Config
from pipeline.model.decoder import Decoder
from pipeline.training.optimizer import build_optimizer


@dataclass(frozen=True)
class Case:
    """`run` does the work once and leaves gradients behind; `clear` frees those."""

    run: Callable[[], None]
    clear: Callable[[], None]
    parameters: int


def prepare_torch(config: Config, cores: int | None) -> torch.device:
    """Threads, denormals and device of this process; before its first parallel operation.

    Denormals are flushed because decaying biases make attention 4 to 5 times slower without.
    """
    torch.set_flush_denormal(True)
    torch.set_num_threads(config.trainer.threads or cores or 1)
    gpu = config.trainer.accelerator != "cpu" and torch.cuda.is_available()
    return torch.device("cuda" if gpu else "cpu")


def precision_of(config: Config) -> torch.dtype:
    """fp32, or bf16 for weights and arithmetic alike, which is how DeepSpeed runs a model."""
    return torch.bfloat16 if config.trainer.precision == "bf16" else torch.float32


def build_case(subject: Subject, config: Config, device: torch.device) -> Case:
    """Weights, optimizer and inputs of a subject; the inputs are equal for all of one length."""
    torch.manual_seed(config.seed)
    if subject.measure == "attention":
        return _attention(subject, config, device)
    return _step(subject, config, device)


def _attention(subject: Subject, config: Config, device: torch.device) -> Case:
    """Forward and backward of attention; gradients for q, k, v and the encoding's parameters."""
    model = config.model
    shape = (1, model.heads, subject.length, model.head_width)
    inputs = torch.randn(4, *shape, dtype=precision_of(config), device=device)
    q, k, v = (x.clone().requires_grad_() for x in inputs[:3])
    pull = inputs[3].clone()
    own: list[nn.Parameter] = []
    mix: Mix = _causal
    if subject.maker == "farsight":
        position, mix = attention_case(config, subject.length, device)
        own = list(position.parameters())

    def run() -> None:
        clear()
        mix(q, k, v).backward(pull)

    def clear() -> None:
        _forget([q, k, v, *own])

    return Case(run, clear, sum(p.numel() for p in own))


def _causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def _step(subject: Subject, config: Config, device: torch.device) -> Case:
    """Forward, mean loss, backward and AdamW on one sequence of random tokens."""
    ours = subject.maker == "farsight"
    if ours:
        module: nn.Module = Decoder(config)
    else:
        module = build_rival(subject.maker, subject.position, config, subject.length)
    module.to(device, precision_of(config)).train()
    optimizer = build_optimizer(module, config.optimizer)
    random = torch.Generator().manual_seed(config.seed)
    text = torch.randint(config.data.vocab, (1, subject.length + 1), generator=random).to(device)
    tokens, labels = text[:, :-1].contiguous(), text[:, 1:].contiguous()
    ids = torch.arange(subject.length, device=device)[None]

    def loss() -> Tensor:
        if ours:
            nats: Tensor = module(tokens, labels, ids)
            return nats.sum() / len(nats[0])  # as in training: a sum, then a scale
        return F.cross_entropy(module(tokens).float().flatten(0, 1), labels.flatten())

    def run() -> None:
        clear()
        loss().backward()
        optimizer.step()

    def clear() -> None:
        _forget(module.parameters())

    return Case(run, clear, sum(p.numel() for p in module.parameters()))


def _forget(tensors: Iterable[Tensor]) -> None:
    for tensor in tensors:
        tensor.grad = None
