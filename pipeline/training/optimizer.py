"""AdamW and its learning rate, a pure function of the step.

Linear warm-up over w steps, then cosine from learning_rate to min_learning_rate at max_steps.
Loshchilov and Hutter 2019, arXiv 1711.05101.
"""

import math
from typing import Any

import torch
from torch import nn

from pipeline.config.schema import OptimizerConfig


def learning_rate(step: int, max_steps: int, optimizer: OptimizerConfig) -> float:
    """The rate of optimizer step `step`, counted from 0."""
    if step < optimizer.warmup_steps:
        return optimizer.learning_rate * (step + 1) / optimizer.warmup_steps
    done = (step - optimizer.warmup_steps) / max(1, max_steps - optimizer.warmup_steps)
    low, high = optimizer.min_learning_rate, optimizer.learning_rate
    return low + (high - low) * 0.5 * (1.0 + math.cos(math.pi * done))


def build_optimizer(decoder: nn.Module, optimizer: OptimizerConfig) -> torch.optim.AdamW:
    """AdamW; matrices of the decoder decay, gains and position parameters do not."""
    decayed: list[nn.Parameter] = []
    free: list[nn.Parameter] = []
    for name, parameter in decoder.named_parameters():
        own = name.startswith("position.") or parameter.ndim < 2
        (free if own else decayed).append(parameter)
    groups: list[dict[str, Any]] = [{"params": decayed, "weight_decay": optimizer.weight_decay}]
    if free:
        groups.append({"params": free, "weight_decay": 0.0})
    return torch.optim.AdamW(
        groups,
        lr=optimizer.learning_rate,
        betas=(optimizer.beta1, optimizer.beta2),
        eps=optimizer.epsilon,
        fused=True,
    )
