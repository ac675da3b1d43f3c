"""World = data_parallel x sequence_parallel ranks; a sequence group is P neighbouring ranks.

Of these, U = P / ring neighbours are a station, which trades heads (`pipeline.parallel.ulysses`);
the ranks at the same place of all stations are a ring (`pipeline.parallel.ring`).

DeepSpeed is not told about the groups: its own wiring scales gradients differently by ZeRO stage
and can let replicas diverge (deepspeedai/DeepSpeed 6868, 6841, 5248). It sees one data-parallel
group, the world, and takes the mean over it.
"""

from dataclasses import dataclass

import torch.distributed as dist

from pipeline.errors import ConfigError
from pipeline.parallel.shard import token_slice


@dataclass(frozen=True)
class Mesh:
    """This rank's place. `station` and `ring` are its groups, None where it is the only member;
    `rings` is the number of stations of a sequence group."""

    world: int = 1
    rank: int = 0
    sequence_parallel: int = 1
    rings: int = 1
    station: dist.ProcessGroup | None = None
    ring: dist.ProcessGroup | None = None

    @property
    def data_parallel(self) -> int:
        """Number of sequence groups."""
        return self.world // self.sequence_parallel

    @property
    def data_rank(self) -> int:
        """Which sequence group this rank is in."""
        return self.rank // self.sequence_parallel

    @property
    def sequence_rank(self) -> int:
        """Which part of every sequence this rank holds."""
        return self.rank % self.sequence_parallel

    def tokens(self, length: int) -> slice:
        """The tokens this rank holds of a sequence of `length`."""
        return token_slice(length, self.sequence_parallel, self.sequence_rank, self.rings)


def build_mesh(sequence_parallel: int, rings: int = 1) -> Mesh:
    """The mesh over all ranks; every rank must call it, after the process group exists.

    Raises:
        ConfigError: the world is not a multiple of `sequence_parallel`, or that of `rings`.
    """
    if not dist.is_initialized():
        world, rank = 1, 0
    else:
        world, rank = dist.get_world_size(), dist.get_rank()
    if world % sequence_parallel:
        raise ConfigError(
            f"trainer.sequence_parallel={sequence_parallel} does not divide the world of {world} "
            "ranks (trainer.nodes x trainer.processes); choose a divisor"
        )
    if sequence_parallel % rings:
        raise ConfigError(
            f"trainer.ring={rings} does not divide trainer.sequence_parallel={sequence_parallel}; "
            "choose a divisor"
        )
    size = sequence_parallel // rings
    stations = [list(range(start, start + size)) for start in range(0, world, size)]
    circles = [
        list(range(start + place, start + sequence_parallel, size))
        for start in range(0, world, sequence_parallel)
        for place in range(size)
    ]
    own = (_own_group(stations, rank), _own_group(circles, rank))
    return Mesh(world, rank, sequence_parallel, rings, *own)


def _own_group(groups: list[list[int]], rank: int) -> dist.ProcessGroup | None:
    """Every rank makes every group of more than one; returns the one `rank` is in."""
    own = None
    for ranks in groups:
        if len(ranks) > 1:
            group = dist.new_group(ranks)
            own = group if rank in ranks else own
    return own
