"""One of two ranks whose training gets signals at random instants, and goes on each time."""

import os
import random
import signal
import sys
import threading
import time
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from pipeline.checkpoint.state import Keeper, TrainingState, find_state, load_state
from pipeline.config.schema import Config
from pipeline.errors import Preempted
from pipeline.parallel.signals import SIGNALS
from pipeline.parallel.stop import StopRequest
from pipeline.training.fit import Fitted, fit
from tests.distributed.toy import ToySequences, toy_config
from tests.evaluate.test_score import toy_documents
from tests.training.resume_worker import TIMES

# who gets a signal: ranks, and how often
WHO = ((0,), (1,), (0, 1), (0, 1, 0, 1))


def configured(steps: int) -> Config:
    config = toy_config("t5", sequence_parallel=2)
    config.trainer.max_steps, config.trainer.save_every = steps, 7
    config.trainer.evaluate_every = min(20, steps)
    config.data.workers = 1
    return config


class Training:
    """One training in parts; `rows` are those that rank 0 wrote, in all parts."""

    def __init__(self, config: Config, keeper: Keeper | None) -> None:
        self.config, self.keeper = config, keeper
        self.rows: list[dict[str, Any]] = []

    def part(self, resumed: TrainingState | None, stop: StopRequest | None) -> Fitted:
        return fit(
            self.config,
            ToySequences(),
            toy_documents(),
            write=lambda row: self.rows.append({k: v for k, v in row.items() if k not in TIMES}),
            name="",
            keeper=self.keeper,
            resumed=resumed,
            stop=stop,
        )


def strike(ranks: tuple[int, ...], number: int) -> None:
    """As SLURM does: the signal goes to a rank and to its loader processes."""
    for _ in range(ranks.count(dist.get_rank())):
        for child in active_children():
            if child.pid:
                os.kill(child.pid, number)
        os.kill(os.getpid(), number)
        time.sleep(0.002)


def broken_off(config: Config, keeper: Keeper, signals: int, latest: float) -> dict[str, Any]:
    """Train to the end under `signals` signals, each up to `latest` seconds after a start; the
    slowest of the parts that were stopped took `slowest` seconds."""
    draw, training, stops, slowest = random.Random(3), Training(config, keeper), 0, 0.0
    state = None
    while True:
        stop = StopRequest()
        stop.listen()
        what = draw.choice(WHO), draw.choice(SIGNALS)
        timer = threading.Timer(draw.uniform(0.0, latest), strike, what)
        if stops < signals:
            timer.start()
        began = time.monotonic()
        try:
            fitted = training.part(state, stop)
            break
        except Preempted:
            stops += 1
            slowest = max(slowest, time.monotonic() - began)
            found = find_state(keeper.checkpoints)
            assert found is not None
            state = load_state(found.folder, found.manifest["seal"])
            dist.barrier()
        finally:
            timer.cancel()
    return {"stops": stops, "slowest": slowest, **left(training, fitted)}


def left(training: Training, fitted: Fitted) -> dict[str, Any]:
    return {"rows": training.rows, "weights": fitted.weights, "tokens": fitted.tokens}


def asked_at_the_last_step() -> dict[str, Any]:
    """Rank 1 has been asked before the only step there is."""
    stop = StopRequest()
    stop.signal = int(signal.SIGUSR1) if dist.get_rank() == 1 else 0
    training = Training(configured(1), None)
    return left(training, training.part(None, stop))


def main() -> None:
    out, signals, steps = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    config = configured(steps)
    keeper = Keeper(out / "checkpoints", 2, {"config_hash": "c"})
    results: dict[str, Any] = {"broken": broken_off(config, keeper, signals, latest=0.4)}
    whole = Training(config, None)
    results["whole"] = left(whole, whole.part(None, None))
    results["last"] = asked_at_the_last_step()
    if dist.get_rank() == 0:
        torch.save(results, out / "results.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
