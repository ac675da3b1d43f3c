"""Starts the ranks of one run on this machine, or recognises that this process is one of them.

Three ways in, one way on: our own start (torch's elastic launcher), `torchrun`, and `srun` (one
task per rank). All end in torchrun's variables, RANK, WORLD_SIZE, LOCAL_RANK and MASTER_*.
"""

import contextlib
import logging
import os
import signal
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from pipeline.config.schema import Config
from pipeline.errors import ConfigError, FarsightError, Preempted
from pipeline.parallel.parent import PARENT, child_sessions
from pipeline.parallel.signals import SIGNALS

_SLURM = {
    "RANK": "SLURM_PROCID",
    "LOCAL_RANK": "SLURM_LOCALID",
    "WORLD_SIZE": "SLURM_NTASKS",
}


def is_rank() -> bool:
    """Whether this process was started as one rank of several, by torchrun or srun."""
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        return True
    # srun sets SLURM_STEP_ID; the batch script itself, step-less, is no rank
    return "SLURM_STEP_ID" in os.environ and "SLURM_PROCID" in os.environ


def adopt_slurm_variables() -> None:
    """Give a task that srun started torchrun's variables, where they are not set; check them all.

    Raises:
        ConfigError: one is missing, or is none that a rank can have.
    """
    fix = "unset RANK WORLD_SIZE to start the ranks from here, or let torchrun set all of them"
    if "RANK" not in os.environ:
        fix = (
            "export MASTER_ADDR and MASTER_PORT in the batch script before srun, which sets the "
            "others, as slurm/train.sbatch does; or unset SLURM_STEP_ID to start the ranks here"
        )
        for name, source in _SLURM.items():
            os.environ[name] = _variable(source, fix)
    _variable("MASTER_ADDR", fix)
    _whole_number("MASTER_PORT", 1, 65535, fix)
    world = _whole_number("WORLD_SIZE", 1, None, fix)
    for name in ("RANK", "LOCAL_RANK"):
        _whole_number(name, 0, world - 1, fix)


def _variable(name: str, fix: str) -> str:
    if not os.environ.get(name):
        raise ConfigError(f"{name} is not set in the environment of this rank: {fix}")
    return os.environ[name]


def _whole_number(name: str, least: int, most: int | None, fix: str) -> int:
    text = _variable(name, fix)
    number = int(text) if text.isascii() and text.isdecimal() else -1
    if number < least or (most is not None and number > most):
        allowed = f"{least} or more" if most is None else f"from {least} to {most}"
        raise ConfigError(
            f"{name}={text} in the environment of this rank: a whole number, {allowed}, is "
            f"expected; {fix}"
        )
    return number


def check_world(config: Config) -> None:
    """Refuse to run with another number of ranks than the configuration names.

    Raises:
        ConfigError: trainer.nodes x trainer.processes is not the number of ranks started.
    """
    started = int(os.environ["WORLD_SIZE"])
    trainer = config.trainer
    if started != trainer.world:
        raise ConfigError(
            f"{started} ranks were started, but trainer.nodes={trainer.nodes} x "
            f"trainer.processes={trainer.processes} = {trainer.world}; make them equal"
        )


def threads_per_rank(config: Config) -> int:
    """CPU threads of one rank: `trainer.threads`, or the usable cores shared evenly."""
    if config.trainer.threads is not None:
        return config.trainer.threads
    return max(1, len(os.sched_getaffinity(0)) // config.trainer.processes)


def check_one_node(config: Config) -> None:
    """Refuse, before anything is written, what `start_ranks` cannot reach.

    Raises:
        ConfigError: the configuration spans several nodes.
    """
    if config.trainer.nodes > 1:
        raise ConfigError(
            f"trainer.nodes={config.trainer.nodes}: several nodes are started by srun "
            "(slurm/train.sbatch) or torchrun on each node, not by this command"
        )


def start_ranks(config: Config, module: str, arguments: Sequence[str]) -> None:
    """Run `python -m module arguments` as trainer.processes ranks here, and wait for them.

    If one fails, the others are stopped. SIGUSR1 and SIGTERM are passed on to them; see
    `_passing_on`.

    Raises:
        Preempted: they were asked to stop, and did.
        FarsightError: a rank failed; `exit_code` is that rank's.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    # its reports of a failed rank say less than the rank and we do
    for name in ("", ".agent.server.api"):
        logging.getLogger(f"torch.distributed.elastic{name}").setLevel(logging.CRITICAL)
    os.environ[PARENT] = str(os.getpid())
    os.environ["OMP_NUM_THREADS"] = str(threads_per_rank(config))
    launch = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=config.trainer.processes,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        # the name of this machine may not resolve, as in a container or far from its network
        local_addr="127.0.0.1",
        max_restarts=0,
        monitor_interval=0.1,
        # what `nohup` or a shell told this process to ignore stays ignored
        signals_to_handle=",".join(
            number.name
            for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
            if signal.getsignal(number) is not signal.SIG_IGN
        ),
    )
    # so that `-m` finds the package wherever the command was given
    root = str(Path(__file__).parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.getenv("PYTHONPATH")]))
    command = ("-u", "-m", "pipeline.launch.begin", module, *arguments)
    with _passing_on() as asked:
        try:
            elastic_launch(launch, sys.executable)(*command)
        except SignalException as error:
            if error.sigval == signal.SIGINT:
                raise KeyboardInterrupt from None
            if error.sigval == signal.SIGUSR1:
                raise _stopped() from None
            number = signal.SIGTERM if error.sigval == signal.SIGKILL else error.sigval
            stopped = FarsightError(f"stopped by signal {int(number)}, and all ranks with it")
            stopped.exit_code = 128 + int(number)
            raise stopped from None
        except ChildFailedError as error:
            raise _failed(error.failures, bool(asked)) from None
        if asked:
            raise _stopped()


@contextlib.contextmanager
def _passing_on() -> Iterator[list[int]]:
    """While ranks run, pass SIGUSR1 and SIGTERM on to them as SIGUSR1; yields those that came.

    The second SIGTERM ends all at once, the ranks by SIGKILL. A request that comes before there are
    ranks ends this process as one that they have followed.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException

    asked: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        again = number == signal.SIGTERM and number in asked
        asked.append(number)
        ranks = child_sessions()
        if again or not ranks:
            end = signal.SIGKILL if again else signal.SIGUSR1
            raise SignalException(f"asked to stop by signal {number}", end)
        for rank in ranks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank, signal.SIGUSR1)

    before = {number: signal.signal(number, pass_on) for number in SIGNALS}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stopped() -> Preempted:
    return Preempted("the step or row that it was at")


def _failed(failures: dict[int, Any], asked: bool) -> FarsightError:
    """What is said of ranks that failed, by rank; or, if they were asked to, stopped."""
    # a rank that was killed comes first: those that lost it fail in the same moment
    rank, failure = min(
        failures.items(),
        key=lambda one: (one[1].exitcode != -signal.SIGKILL, one[1].timestamp),
    )
    # one that did not listen yet had nothing to save
    if asked and failure.exitcode in (Preempted.exit_code, -signal.SIGUSR1):
        return _stopped()
    how = f"stopped with exit code {failure.exitcode}; see above"
    if failure.exitcode < 0:
        how = f"was killed by signal {-failure.exitcode} (9 is often a lack of memory)"
    stopped = FarsightError(f"rank {rank} {how}")
    stopped.exit_code = failure.exitcode if failure.exitcode > 0 else 1
    return stopped
