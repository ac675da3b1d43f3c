"""World = data_parallel x sequence_parallel ranks; a sequence group is P neighbouring ranks.

DeepSpeed is not told about the groups: its own wiring scales gradients differently by ZeRO stage
and can let replicas diverge (deepspeedai/DeepSpeed 6868, 6841, 5248). It sees one data-parallel
group, the world, and takes the mean over it.
"""

from dataclasses import dataclass

import torch.distributed as dist

from pipeline.errors import ConfigError


@dataclass(frozen=True)
class Mesh:
    """This rank's place. `group` is its sequence group, None when it has the sequence alone."""

    world: int = 1
    rank: int = 0
    sequence_parallel: int = 1
    group: dist.ProcessGroup | None = None

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


def build_mesh(sequence_parallel: int) -> Mesh:
    """The mesh over all ranks; every rank must call it, after the process group exists.

    Raises:
        ConfigError: the world is not a multiple of `sequence_parallel`.
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
    own = None
    if sequence_parallel > 1:
        for start in range(0, world, sequence_parallel):
            group = dist.new_group(list(range(start, start + sequence_parallel)))
            if start <= rank < start + sequence_parallel:
                own = group
    return Mesh(world, rank, sequence_parallel, own)
