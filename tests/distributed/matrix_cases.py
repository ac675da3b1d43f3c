"""What the matrix of real processes trains: encodings, and how their work is shared."""

from itertools import product
from typing import Any

from pipeline.positions import registry
from tests.distributed.toy import POSITIONS

Case = dict[str, Any]
# in fewer combinations of the matrix
FEWER = ("fire", "shaw", "transformer_xl", "rerope")
# in one combination, and two more of the slow tests
OTHERS = tuple(name for name in registry.names() if name not in (*POSITIONS, *FEWER))
# gradients that are sums over all pairs which cancel, to a hundredth or to nothing: what rounding
# leaves in them is on the scale of the encoding's whole gradient
CANCELLED = {
    ("fire", "fp32"): ("position.c",),
    ("fire", "bf16"): ("position.c",),
    ("dape", "bf16"): ("position.w1", "position.b1", "position.b2"),
}


def cases() -> list[Case]:
    """Every combination of the two-rank matrix; of some encodings one accumulation of each."""
    chosen = [
        *product(POSITIONS, (1, 2, 3), (1, 2), (1, 2)),
        *((p, stage, n, 1 + (stage + n) % 2) for p, stage, n in product(FEWER, (1, 2, 3), (1, 2))),
        # read in the backward pass of attention: sharded, with and without checkpointing
        *(("fire", 3, n, 2 - (3 + n) % 2) for n in (1, 2)),
    ]
    return [
        {"position": position, "zero_stage": stage, "sequence_parallel": parts, "accumulate": k}
        for position, stage, parts, k in chosen
    ]


def ring_cases() -> list[Case]:
    """One sequence on a ring of two: what is by distance, by position, by content, or in parts."""
    shared = {"sequence_parallel": 2, "ring": 2}
    chosen = product(("learned", "rope", "t5", *FEWER), ((1, 1), (2, 2), (3, 1)))
    return [
        {"position": position, "zero_stage": stage, "accumulate": k, **shared}
        for position, (stage, k) in chosen
    ]


def other_cases(accumulate: int) -> list[Case]:
    """Every other encoding, one sequence on two ranks, every weight in parts."""
    return [
        {"position": name, "zero_stage": 3, "accumulate": accumulate, **halved(name)}
        for name in OTHERS
    ]


def bf16_cases() -> list[Case]:
    """bf16 on two ranks, sharded weights or not."""
    shared = {"sequence_parallel": 2, "accumulate": 2, "precision": "bf16"}
    chosen = [*product(POSITIONS, (1, 2, 3)), *product(FEWER, (3,))]
    return [{"position": position, "zero_stage": stage, **shared} for position, stage in chosen]


def other_bf16_cases() -> list[Case]:
    """Every other encoding in bf16."""
    return [case | {"precision": "bf16"} for case in other_cases(2)]


def four_rank_cases() -> list[Case]:
    """Four whole sequences, one sequence in four parts, two sequences in two."""
    chosen = [("t5", 1, 1, 1), ("rope", 1, 4, 4), ("t5", 2, 2, 2), ("learned", 3, 4, 2)]
    return [
        {
            "position": position,
            "zero_stage": stage,
            "sequence_parallel": parts,
            "accumulate": k,
            "processes": 4,
        }
        for position, stage, parts, k in chosen
    ]


def halved(position: str) -> dict[str, int]:
    """One sequence on two ranks: by heads, or by tokens where all heads must be together."""
    shardable = registry.position_class(position).facts.head_shardable
    return {"sequence_parallel": 2} if shardable else {"sequence_parallel": 2, "ring": 2}


def precision_of(case: Case) -> str:
    return str(case.get("precision", "fp32"))


def case_name(case: Case) -> str:
    name = "{position}-zero{zero_stage}-sp{sequence_parallel}-accumulate{accumulate}".format(**case)
    name += "-ring" if "ring" in case else ""
    name += "-bf16" if "precision" in case else ""
    return name + (f"-ranks{case['processes']}" if "processes" in case else "")
