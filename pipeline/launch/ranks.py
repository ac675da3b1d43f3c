"""Starts the ranks of one run on this machine, or recognises that this process is one of them.

Three ways in, one way on: our own start (torch's elastic launcher), `torchrun`, and `srun` (one
task per rank). All end in torchrun's variables, RANK, WORLD_SIZE, LOCAL_RANK and MASTER_*.
"""

import logging
import os
import signal
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

from pipeline.config.schema import Config
from pipeline.errors import ConfigError, FarsightError
from pipeline.parallel.parent import PARENT

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
    """Give a task that srun started torchrun's variables, where they are not set.

    Raises:
        ConfigError: MASTER_ADDR or MASTER_PORT is missing, which no rank can know by itself.
    """
    if "RANK" in os.environ:
        return
    for name, source in _SLURM.items():
        os.environ[name] = os.environ[source]
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if name not in os.environ:
            raise ConfigError(
                f"{name} is not set: export it in the batch script before srun, as "
                "slurm/train.sbatch does"
            )


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

    If one fails, the others are stopped.

    Raises:
        FarsightError: a rank failed; `exit_code` is that rank's.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    # its reports of a failed rank say less than the rank and we do
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    os.environ[PARENT] = str(os.getpid())
    os.environ["OMP_NUM_THREADS"] = str(threads_per_rank(config))
    launch = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=config.trainer.processes,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        max_restarts=0,
        monitor_interval=0.1,
    )
    # so that `-m` finds the package wherever the command was given
    root = str(Path(__file__).parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.getenv("PYTHONPATH")]))
    try:
        elastic_launch(launch, sys.executable)("-u", "-m", module, *arguments)
    except SignalException as error:
        if error.sigval == signal.SIGINT:
            raise KeyboardInterrupt from None
        stopped = FarsightError(f"stopped by signal {int(error.sigval)}, and all ranks with it")
        stopped.exit_code = 128 + int(error.sigval)
        raise stopped from None
    except ChildFailedError as error:
        # a rank that was killed comes first: those that lost it fail in the same moment
        rank, failure = min(
            error.failures.items(),
            key=lambda one: (one[1].exitcode != -signal.SIGKILL, one[1].timestamp),
        )
        how = f"stopped with exit code {failure.exitcode}; see above"
        if failure.exitcode < 0:
            how = f"was killed by signal {-failure.exitcode} (9 is often a lack of memory)"
        stopped = FarsightError(f"rank {rank} {how}")
        stopped.exit_code = failure.exitcode if failure.exitcode > 0 else 1
        raise stopped from None
