"""Watches every rank's own gradients, and says where a loss or a gradient stopped being finite.

Once ranks have added their gradients, a NaN of one is everywhere, so norms are taken as autograd
hands the gradients over, before DeepSpeed reduces them. That reads each gradient once and waits for
nothing; all ranks learn of trouble by the one reduction that every step has anyway.
"""

import hashlib
import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

_ADVICE = "Lower optimizer.learning_rate or raise optimizer.warmup_steps"


class GradientWatch:
    """L2 norms, fp32, of this rank's gradients since `clear`, in the order they came."""

    def __init__(self, parameters: Iterable[tuple[str, nn.Parameter]]) -> None:
        self._names: list[str] = []
        self._norms: list[Tensor] = []
        self._hooks = [
            parameter.register_hook(partial(self._see, name)) for name, parameter in parameters
        ]

    def _see(self, name: str, gradient: Tensor) -> None:
        self._names.append(name)
        self._norms.append(torch.linalg.vector_norm(gradient.detach(), dtype=torch.float32))

    def trouble(self) -> Tensor | float:
        """1 if a gradient is not finite, or so large that a norm over all overflows fp32; else 0.

        No norm of a sum of these gradients is larger than the sum of their norms, so with 0 the
        norm that clipping divides by is finite as well.
        """
        if not self._norms:
            return 0.0
        return 1.0 - torch.stack(self._norms).sum().square().isfinite().float()

    def culprit(self) -> str | None:
        """The parameter whose gradient came first of those that are not finite, else the one with
        the largest; None if there is no trouble."""
        if not float(self.trouble()):
            return None
        norms = torch.stack(self._norms).tolist()
        broken = [i for i, norm in enumerate(norms) if not math.isfinite(norm)]
        return self._names[broken[0] if broken else norms.index(max(norms))]

    def clear(self) -> None:
        """Forget the gradients seen so far."""
        self._names.clear()
        self._norms.clear()

    def remove(self) -> None:
        """Watch no more."""
        for hook in self._hooks:
            hook.remove()
        self.clear()


def batch_digits(tokens: Sequence[Tensor]) -> str:
    """12 digits of the sha256 of token ids, as int64 in the order they were read."""
    digest = hashlib.sha256()
    for part in tokens:
        digest.update(part.detach().to("cpu", torch.int64).contiguous().numpy().tobytes())
    return digest.hexdigest()[:12]


def diverged_words(step: int, culprit: str | None, tokens: Sequence[Tensor]) -> str:
    """What a step that is not finite is reported by: step, ranks, tensors and batches.

    Every rank calls it. `culprit` is "loss", the parameter with the gradient, or None if nothing is
    wrong on this rank; `tokens` are what this rank read in the step.
    """
    own = (culprit, batch_digits(tokens))
    told: list[Any] = [own]
    if dist.is_initialized():
        told = [None] * dist.get_world_size()
        dist.all_gather_object(told, own)
    found = [
        f"{'the loss' if name == 'loss' else f'the gradient norm of {name}'} is not finite on rank "
        f"{rank}, whose batch is {batch}"
        for rank, (name, batch) in enumerate(told)
        if name is not None
    ]
    if not found:
        found = ["the sum over ranks is not finite"]
    more = f", and so on {len(found) - 1} more ranks" if len(found) > 1 else ""
    return (
        f"step {step}: {found[0]}{more}. Stopped before the optimizer step: no weight was changed "
        f"by it, and no checkpoint of it is written. {_ADVICE}"
    )
