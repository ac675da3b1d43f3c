"""What the command line asks of a plan, and the configurations that it asks about."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.config.compose import load
from pipeline.config.schema import Config
from pipeline.config.values import settings
from pipeline.errors import ConfigError
from pipeline.parallel.device import device_type

GIB = 2**30
# a mebibyte to a pebibyte in a GPU, and up to more FLOP per second than all computers have: beyond
# them figures overflow
_LEAST_MEMORY, _MOST_MEMORY = 2.0**-10, 2.0**20
_LEAST_FLOPS, _MOST_FLOPS = 1.0, 1e24


@dataclass(frozen=True)
class Asked:
    """Options of the command line; `gpu_memory` in GiB, `flops` in FLOP per second of one rank."""

    gpus: int | None = None
    gpu_memory: float | None = None
    flops: float | None = None
    bench: Path | None = None

    def check(self) -> None:
        """Raises ConfigError: a value is not allowed."""
        if self.gpus is not None:
            _split(self.gpus)
        _within("--gpu-memory", self.gpu_memory, _LEAST_MEMORY, _MOST_MEMORY, "GiB")
        _within("--flops", self.flops, _LEAST_FLOPS, _MOST_FLOPS, "FLOP per second of one rank")
        if self.flops is not None and self.bench is not None:
            raise ConfigError("--flops and --bench both name a rate: give one of them")

    def device(self, config: Config) -> str:
        """`cuda` if GPUs are asked for in any way, else what the run would use here."""
        gpu = self.gpus is not None or self.gpu_memory is not None
        return "cuda" if gpu or config.trainer.accelerator == "cuda" else device_type(config)

    def configs(self, path: Path, overrides: Sequence[str]) -> list[Config]:
        """The runs of a file and overrides, with as many ranks as there are GPUs asked for.

        The ranks are set before anything is checked, or groups that fit them would be refused for
        the ranks of the file.

        Raises:
            ConfigError: an option, or a run with so many ranks, is not allowed.
        """
        self.check()
        if self.gpus is None:
            return load(path, overrides)
        processes, nodes = _split(self.gpus)
        ranks = [f"trainer.nodes={nodes}", f"trainer.processes={processes}"]
        try:
            return load(path, [*overrides, *ranks])
        except ConfigError as error:
            raise ConfigError(f"with --gpus={self.gpus} ({', '.join(ranks)}): {error}") from error


def _split(gpus: int) -> tuple[int, int]:
    """So many ranks as ranks of a node and nodes, as few nodes as a configuration may have."""
    table = settings()
    most, nodes = (table[f"trainer.{key}"].allowed.high for key in ("processes", "nodes"))
    assert most is not None and nodes is not None
    if gpus >= 1:
        processes = max(n for n in range(1, int(most) + 1) if gpus % n == 0)
        if gpus // processes <= nodes:
            return processes, gpus // processes
    raise ConfigError(
        f"--gpus={gpus} is not allowed: it takes a whole number above 0 that is trainer.processes, "
        f"1 to {most}, times trainer.nodes, 1 to {nodes}. Use another number, 8 for example"
    )


def _within(option: str, value: float | None, low: float, high: float, unit: str) -> None:
    if value is not None and (math.isnan(value) or not low <= value <= high):
        raise ConfigError(
            f"{option}={value} is not allowed: it takes a number of {low:.7g} to {high:.7g} "
            f"{unit}. Use one, or leave the option out"
        )
