"""A request to stop: signals that only set a flag, and all ranks agreeing on it.

SLURM sends SIGUSR1 before the time limit and SIGTERM when it takes the nodes away, at any instant
and to some ranks earlier than to others. What is done about it must not be done in a handler, which
may run inside a collective, and must be done by all ranks at the same place
(Lightning-AI/pytorch-lightning 21406).
"""

import os
import signal
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from pipeline.parallel.signals import SIGNALS


class StopRequest:
    """The signals that this process got since `listen`; its children do not count."""

    def __init__(self, signals: Sequence[signal.Signals] = SIGNALS) -> None:
        self.signal = 0
        self._signals = signals
        self._process = os.getpid()
        self._group: Any = None
        self._alone: int | None = None

    def listen(self) -> None:
        """Take the signals, also from whoever has taken them since."""
        for number in self._signals:
            signal.signal(number, self._note)

    def end_alone(self, end: Callable[[], None]) -> None:
        """Until `join`, call `end` at a signal: there is nobody to agree with, and nothing to keep.

        On a thread, told by the system: this process may wait for others in foreign code, and
        handlers of Python would not run before that returns.
        """
        told, self._alone = os.pipe()
        os.set_blocking(self._alone, False)
        signal.set_wakeup_fd(self._alone)

        def watch() -> None:
            while number := os.read(told, 1):
                if number[0] in self._signals and self._alone is not None:
                    end()
            os.close(told)

        threading.Thread(target=watch, name="stop before the start", daemon=True).start()

    def end_alone_no_more(self) -> None:
        """Take back `end_alone`, if that was asked for."""
        if self._alone is not None:
            alone, self._alone = self._alone, None
            signal.set_wakeup_fd(-1)
            os.close(alone)

    def join(self) -> None:
        """The process group stands: from here on all ranks stop together; every rank must call it.

        What they agree over is made now: torchrun, which it needs for that, may be gone later.
        """
        # imported late, so that a rank can listen long before this is loaded
        import torch.distributed as dist

        self.end_alone_no_more()
        if dist.is_initialized() and dist.get_world_size() > 1:
            self._group = dist.new_group(backend="gloo")

    def _note(self, number: int, frame: FrameType | None) -> None:
        # a loader process that was just forked is here as well
        if os.getpid() == self._process:
            self.signal = number

    def agreed(self) -> int:
        """The signal that any rank has got, 0 = none, on all of them; every rank must call it.

        Over a group of its own on CPUs, so that no GPU is waited for.
        """
        import torch
        import torch.distributed as dist

        told = torch.tensor([self.signal])
        if self._group is None:
            self.join()
        if self._group is not None:
            dist.all_reduce(told, op=dist.ReduceOp.MAX, group=self._group)
        return int(told)
