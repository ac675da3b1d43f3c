"""Ends a job in which one rank hangs, and names that rank, long before the process group gives up.

Ranks wait for each other in collectives, so when one hangs all stand still. What tells it from
those that wait is that it has entered fewer collectives: every rank enters the same ones in the
same order. Each rank counts its own on a thread and shares the count through the store of the
process group, which no waiting collective blocks. That works however the ranks were started, and
also where a rank has died and the others are not told.
"""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist

EXIT_CODE = 1
LONGEST_PAUSE = 5.0
# exchanges with the store until what it said is surely newer than their start
NEWER = 3


class HangWatch:
    """From the first `beat` to `stop`, ends this process if no rank moves for `timeout` seconds.

    Every rank must call `beat` and `stop` at the same points. A rank moves when it enters a
    collective and when it beats; the timeout, 0 = never, must be longer than any computation
    without either. What comes before the first beat, such as a compilation, may take any time.
    A rank without others is not watched: nobody waits for it.
    """

    def __init__(self, timeout: float, name: str) -> None:
        self.timeout, self.name = timeout, name
        self.beats, self.where, self.resting = 0, "the start", False
        self._over = threading.Event()
        self._wanted = timeout > 0.0 and dist.is_initialized() and dist.get_world_size() > 1

    def beat(self, where: str) -> None:
        """This rank goes on, and is now at `where`."""
        self.beats += 1
        self.where = where
        if self._wanted:
            self._wanted = False
            self._start()

    @contextmanager
    def rest(self) -> Iterator[None]:
        """While one rank does long work alone and the others wait, all of them in here, none counts
        as hanging."""
        self.resting = True
        try:
            yield
        finally:
            self.resting = False

    def stop(self) -> None:
        """Watch no more."""
        self._over.set()

    def entered(self) -> int:
        """Collectives entered so far on all groups of this rank, and beats."""
        groups: tuple[Any, ...] = tuple(dist.distributed_c10d._world.pg_map)
        return self.beats + sum(group._get_sequence_number_for_group() for group in groups)

    def _start(self) -> None:
        # a connection of its own: one that waits for a key serves nobody else
        store: Any = dist.distributed_c10d._get_default_store()
        judge = _Judge(self, store.clone(), self._over)
        for work in (judge.share, judge.judge):
            threading.Thread(target=work, name="hang watch", daemon=True).start()


def _kept_by_launcher() -> bool:
    """Whether the store lies in the launcher, as with torchrun, and not in rank 0."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


class _Judge:
    """What this rank knows of all ranks. Time is counted in own wakings, so that a job which the
    system suspends as a whole, and wakes, is not taken for one that hangs."""

    def __init__(self, watch: HangWatch, store: Any, over: threading.Event) -> None:
        self.watch, self.store, self.over = watch, store, over
        self.pause = min(LONGEST_PAUSE, watch.timeout / 20)
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.keys = [f"farsight/{watch.name}/{rank}" for rank in range(self.world)]
        # of each rank: its sign of life, its count, where it is; wakings since it gave a new sign
        self.known = [(0, -1, "the start")] * self.world
        self.silent = [0] * self.world
        # wakings in which no rank moved, and exchanges with the store since then
        self.still, self.asked = 0, 0

    def share(self) -> None:
        """Tell the store of this rank, and ask it of the others.

        This may block, where the process that holds the store was stopped: so it has a thread of
        its own.
        """
        sign = 0
        while not self.over.wait(self.pause):
            sign += 1
            own = f"{sign}|{self.watch.entered()}|{self.watch.where}"
            try:
                self.store.set(self.keys[self.rank], own)
                heard = [
                    self.store.get(key).decode() if self.store.check([key]) else None
                    for key in self.keys
                ]
            except RuntimeError:
                continue  # the process that held the store is gone: nobody is seen to move
            for rank, said in enumerate(heard):
                if said is not None:
                    self._hear(rank, said)
            self.asked += 1

    def _hear(self, rank: int, said: str) -> None:
        sign, count, where = said.split("|", 2)
        before = self.known[rank]
        if int(sign) != before[0]:
            self.silent[rank] = 0
        if int(count) != before[1]:
            self.still = self.asked = 0
        self.known[rank] = int(sign), int(count), where

    def judge(self) -> None:
        """End this process when nobody moves; first the lowest of the ranks that wait, so that
        under a launcher which then stops the others the reason is said once."""
        last = -1
        while not self.over.wait(self.pause):
            self.still += 1
            self.silent = [wakings + 1 for wakings in self.silent]
            count = self.watch.entered()
            if count != last or self.watch.resting:
                last, self.still, self.asked = count, 0, 0
            # what is known must be newer than the last move, if the store answers at all
            waited = self.still * self.pause / self.watch.timeout
            if waited < (1.0 if self.asked >= NEWER else 1.5):
                continue
            behind = self.behind()
            waiting = [rank for rank in range(self.world) if rank not in behind]
            if self.rank != min(waiting, default=0) and self.over.wait(4 * self.pause):
                return
            print(f"error: {self.words(behind)}", file=sys.stderr, flush=True)
            os._exit(EXIT_CODE)

    def behind(self) -> list[int]:
        """The ranks that the others wait for: those of the lowest count; of equal counts, those
        that give no sign of life; none if all wait in one collective and live. Where the store
        gave no answer, nothing newer is known of anybody: its holder, rank 0, is the one."""
        if self.rank != 0 and self.asked < NEWER and not _kept_by_launcher():
            return [0]
        counts = [count for _, count, _ in self.known]
        behind = [rank for rank, count in enumerate(counts) if count == min(counts)]
        if len(behind) == self.world:
            behind = [rank for rank in behind if self.silent[rank] > 4]
        return behind

    def words(self, behind: list[int]) -> str:
        """What is said of it."""
        seconds = f"for {self.watch.timeout:g} s (trainer.hang_timeout)"
        if len(behind) in (0, self.world):
            return f"no rank moved {seconds}, at {self.watch.where}: all wait in one exchange"
        named = f"rank {behind[0]}" if len(behind) == 1 else f"ranks {behind}"
        return (
            f"{named} did not move {seconds}, at {self.known[behind[0]][2]}, and the others wait; "
            "all stop"
        )
