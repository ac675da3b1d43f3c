"""Faults on purpose: a number that is not finite, a rank that fails, a disk that refuses.

Nothing in `pipeline` knows of them: they come in through a subclass of the LightningModule, a hook
of autograd, or the operating system's own functions.
"""

import builtins
import hashlib
import io
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from pipeline.config.schema import Config
from pipeline.model.decoder import Decoder
from pipeline.training.module import Pretraining

WHERE = ("forward", "backward", "optimizer", "log")
# what the rank that fails says just before
INJECTED = "the fault comes now"


def hang() -> None:
    """Never come back."""
    while True:
        time.sleep(3600.0)


def stop() -> None:
    """As a process that the system has stopped: not one of its threads runs."""
    os.kill(os.getpid(), signal.SIGSTOP)


def die() -> None:
    """As a process that the system has killed."""
    os.kill(os.getpid(), signal.SIGKILL)


def refuse() -> None:
    """As a fault of the program itself."""
    raise RuntimeError("injected")


def ranks_as(module: str, *words: str) -> str:
    """The program of `python -c` that is our command line, but that its ranks run `module`, which
    gets `words` before all else."""
    return f"""
import sys
from pipeline.launch import cli, study
start = study.start_ranks
study.start_ranks = lambda config, _, given: start(config, {module!r}, [*{words!r}, *given])
sys.exit(cli.main(sys.argv[1:]))
"""


@dataclass(frozen=True)
class Fault:
    """`action` on one rank at one optimizer step, counted from 0: where in it, see WHERE."""

    rank: int
    step: int
    where: str
    action: Callable[[], None]


def fail_at(rank: int, step: int, where: str, action: Callable[[], None]) -> type[Pretraining]:
    """A LightningModule that does `action` there, and else is the one it replaces."""
    assert where in WHERE
    fault = Fault(rank, step, where, action)

    class Failing(Pretraining):
        step_now = -1

        def __init__(self, config: Config, decoder: Decoder) -> None:
            super().__init__(config, decoder)
            decoder.head.weight.register_hook(lambda gradient: self._at("backward"))

        def _at(self, where: str) -> None:
            here = Fault(dist.get_rank(), self.step_now, where, fault.action)
            if here == fault:
                print(INJECTED, flush=True)
                fault.action()

        def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
            self.step_now = batch["step"]
            self._at("forward")
            return super().training_step(batch, batch_idx)

        def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
            super().on_before_optimizer_step(optimizer)
            self._at("optimizer")

        def on_train_batch_end(self, *unused: Any) -> None:
            self._at("log")

    return Failing


class Poisoned(Pretraining):
    """Makes one number of "loss", or of the gradient of a parameter, `value`: on one rank, in the
    last micro-batch of one step. Keeps what the weights were before that step."""

    def __init__(
        self, config: Config, decoder: Decoder, rank: int, step: int, what: str, value: float
    ) -> None:
        super().__init__(config, decoder)
        self.rank, self.step, self.value = rank, step, value
        self.step_now, self.micro, self.digest = -1, 0, hashlib.sha256()
        self.before: list[Tensor] = []
        if what == "loss":
            decoder.register_forward_hook(lambda *given: self._spoil(given[-1]))
        else:
            dict(decoder.named_parameters())[what].register_hook(self._spoil)

    def _spoil(self, numbers: Tensor) -> Tensor | None:
        last = self.micro == self.config.trainer.accumulate
        if dist.get_rank() != self.rank or self.step_now != self.step or not last:
            return None
        spoiled = numbers.clone()
        spoiled.view(-1)[-1] = self.value
        return spoiled

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        if batch["step"] != self.step_now:
            self.step_now, self.micro, self.digest = batch["step"], 0, hashlib.sha256()
            if self.step_now == self.step:
                self.before = self.state()
        self.micro += 1
        self.digest.update(batch["tokens"].long().numpy().tobytes())
        return super().training_step(batch, batch_idx)

    def state(self) -> list[Tensor]:
        """Copies of all that a step changes on this rank: weights, masters, moments."""
        from deepspeed.utils import safe_get_full_fp32_param

        found: list[Tensor] = []
        for parameter in self.decoder.parameters():
            found += [getattr(parameter, "ds_tensor", parameter)]
            found += [safe_get_full_fp32_param(parameter)]
        for one in self.engine.optimizer.optimizer.state.values():
            found += [value for value in one.values() if isinstance(value, Tensor)]
        return [tensor.detach().double().clone() for tensor in found]


@contextmanager
def clock(start: float, step: float) -> Iterator[None]:
    """A clock of the system that shows `start` seconds and, at every look, `step` more."""
    real, now = (time.time, time.time_ns, time.gmtime), [start]

    def tell() -> float:
        now[0] += step
        return now[0]

    time.time, time.time_ns = tell, lambda: int(tell() * 1e9)
    time.gmtime = lambda seconds=None: real[2](tell() if seconds is None else seconds)
    try:
        yield
    finally:
        time.time, time.time_ns, time.gmtime = real


class FailingFile:
    """A file that takes `limit` bytes and refuses the next, as a disk that is full."""

    def __init__(self, file: Any, limit: int, code: int) -> None:
        self._file, self._left, self._code = file, limit, code

    def write(self, content: Any) -> int:
        data = content if isinstance(content, str) else memoryview(content).cast("B")
        if len(data) <= self._left:
            self._left -= len(data)
            return int(self._file.write(data))
        self._file.write(data[: self._left])
        self._file.flush()
        self._left = 0
        raise OSError(self._code, os.strerror(self._code))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "FailingFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


@contextmanager
def refusing_disk(name: str, code: int, at: int | str) -> Iterator[list[str]]:
    """Files whose name holds `name` cannot be written: from byte `at` on, or at "fsync" or
    "rename". Yields what was refused so far."""
    refused: list[str] = []
    real_open, real_fsync, real_replace = io.open, os.fsync, os.replace

    def opened(file: Any, mode: str = "r", *more: Any, **named: Any) -> Any:
        found = real_open(file, mode, *more, **named)
        if isinstance(at, str) or mode.strip("bt") == "r" or isinstance(file, int):
            return found
        if name not in os.path.basename(file):
            return found
        refused.append(str(file))
        return FailingFile(found, at, code)

    def refuse_if(step: str, path: str) -> None:
        if at == step and name in os.path.basename(path):
            refused.append(path)
            raise OSError(code, os.strerror(code))

    def synced(handle: int) -> None:
        refuse_if("fsync", os.readlink(f"/proc/self/fd/{handle}"))
        real_fsync(handle)

    def replaced(source: Any, target: Any) -> None:
        refuse_if("rename", os.fspath(source))
        real_replace(source, target)

    io.open = builtins.open = opened
    os.fsync, os.replace = synced, replaced  # type: ignore[assignment]
    try:
        yield refused
    finally:
        io.open = builtins.open = real_open
        os.fsync, os.replace = real_fsync, real_replace
