"""The memory of one rank: what ZeRO keeps, and the most that a step needs beside it."""

from dataclasses import dataclass, replace
from typing import Any

from pipeline.config.schema import Config
from pipeline.launch.planning.trace import Place, line, trace
from pipeline.launch.planning.zero import Zero
from pipeline.positions.base import Facts

# the longest sequence is looked for up to here, and rounded down to a multiple of STEP a rank
MOST, STEP = 2**24, 64
SIZES = {"fp32": 4, "bf16": 2}


@dataclass(frozen=True)
class Ranks:
    """The ranks planned for: `world` of them, of a device type `cpu` or `cuda`."""

    world: int
    device: str

    def zero(self, config: Config, parameters: int, stage: int) -> Zero:
        """What a ZeRO stage keeps of a decoder with so many parameters."""
        trainer = config.trainer
        size = SIZES[trainer.precision]
        return Zero(stage, parameters, self.world, size, trainer.accumulate, self.device)

    def sharings(self, config: Config, facts: Facts) -> list[tuple[int, int]]:
        """(sequence_parallel, ring): every number of ranks among which all heads can be shared, and
        what is configured."""
        trainer, heads = config.trainer, config.model.heads
        own = (trainer.sequence_parallel, trainer.ring)
        most = min(heads, self.world) if facts.head_shardable else 1
        fit = [n for n in range(1, most + 1) if self.world % n == 0 and heads % n == 0]
        return sorted({*((n, 1) for n in fit), own})

    def sequences(self, config: Config, parts: int) -> int | None:
        """Sequences of a micro-batch if `parts` ranks share each; None if they do not come out
        even."""
        trainer = config.trainer
        count, left = divmod(trainer.batch_sequences * parts, self.world * trainer.accumulate)
        return None if left or not count else count


def rank_memory(config: Config, zero: Zero, place: Place) -> dict[str, Any]:
    """Bytes of one rank, at the most of a step: `backward` and `reduction` are two moments of it,
    of which the larger is the `peak`."""
    traced = trace(config, _as_kept(place, zero))
    kept = sum(zero.kept.values())
    backward = kept + zero.during_backward + traced.peak
    reduction = kept + zero.during_reduction
    return {
        "kept": kept,
        "backward": backward,
        "reduction": reduction,
        "peak": max(backward, reduction),
        "activations": traced.activations,
        "sent": {"all_to_all": traced.all_to_all, "ring": traced.ring},
    }


def longest(config: Config, zero: Zero, place: Place, limit: int, most: int | None) -> int:
    """The longest sequence, in tokens, of which a rank trains one at a time within `limit` bytes;
    0 if not even weights and gradients fit. At most `most`, where the encoding ends."""
    kept = sum(zero.kept.values())
    if kept + zero.during_reduction > limit:
        return 0
    room, unit, end = (
        limit - kept - zero.during_backward,
        STEP * place.parts,
        min(most or MOST, MOST),
    )
    one = _as_kept(replace(place, sequences=1, length=end), zero)
    if most is not None and trace(config, one).peak <= room:
        return end
    follows = line(config, one)
    aimed = min(follows.reaching(room), end)
    if aimed >= follows.start:
        return aimed // unit * unit
    # nearer than the line begins, what is needed grows more slowly: less is sure to fit in the end
    aimed = min(follows.start, end)
    while aimed >= unit and (needed := trace(config, replace(one, length=aimed)).peak) > room:
        aimed = min(aimed * 7 // 8, int(aimed * room / needed)) // unit * unit
    return max(0, aimed) // unit * unit


def _as_kept(place: Place, zero: Zero) -> Place:
    return replace(
        place,
        gradients=zero.gradients,
        micro_batches=zero.micro_batches,
        device=zero.device,
    )
