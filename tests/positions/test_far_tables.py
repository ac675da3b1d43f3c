"""What a bf16 model reads of far positions, against the papers' waves in fp64.

The model is made and read in a process that makes bf16 of what has no precision of its own, and is
cast to bf16, as DeepSpeed does both. What is rotated is fp32, so that its rounding hides nothing.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pipeline.model.decoder import Decoder
from pipeline.positions import registry
from pipeline.positions.base import Position, Site
from tests.distributed.toy import LENGTH, toy_config
from tests.positions.cases import LAYER, named

POSITIONS = 65_537
# of a sine or cosine: fp64 angles leave the rounding of the result, fp32 ones 4e-4 so far away
LIMIT = 1e-6
WIDTH, HEADS, HEAD = 32, 4, 8


@pytest.fixture
def process_of_bf16() -> Iterator[None]:
    torch.set_default_dtype(torch.bfloat16)
    yield
    torch.set_default_dtype(torch.float32)


def powers(width: int, base: float = 10000.0) -> Tensor:
    """w_t = base^(-2t/width) [width/2] fp64."""
    speeds = [base ** (-2.0 * t / width) for t in range(width // 2)]
    return torch.tensor(speeds, dtype=torch.float64)


def turns(speeds: Tensor) -> Tensor:
    """cos and sin at every position, [POSITIONS,2,len(speeds)] fp64."""
    angles = torch.arange(POSITIONS).double()[:, None] * speeds
    return torch.stack([angles.cos(), angles.sin()], dim=1)


def giraffe_speeds(width: int) -> Tensor:
    """Pal et al. 2023, truncated: below an eighth of a turn in training nothing turns, below one
    whole turn all at a sixteenth."""
    speeds, turn = powers(width), 2.0 * math.pi / LENGTH
    slow = torch.full_like(speeds, turn / 16).where(speeds > turn / 8, 0.0)
    return speeds.where(speeds >= turn, slow)


def rotated(position: Position, x: Tensor) -> tuple[Tensor, Tensor]:
    """q, k [S,E] of one head, both x [d] at all positions."""
    whole, ids = x.float().expand(1, 1, POSITIONS, -1), torch.arange(POSITIONS)[None]
    q, k = position("branches", whole, whole, ids, Site(LAYER, range(3, 4), POSITIONS))[0]
    return q[0, 0], k[0, 0]


def real_first(width: int) -> Tensor:
    """1 and 0 in turn: the pairs (2t, 2t+1) are the number 1."""
    return torch.tensor([1.0, 0.0]).repeat(width // 2)


def of_pairs(position: Position) -> Tensor:
    """Rotations of pairs (2t, 2t+1)."""
    q, k = rotated(position, real_first(HEAD))
    assert torch.equal(q, k)
    return q.unflatten(-1, (-1, 2)).mT


def of_halves(position: Position) -> Tensor:
    """Rotations of pairs (t, t + d/2)."""
    q, _ = rotated(position, torch.tensor([1.0, 0.0]).repeat_interleave(HEAD // 2))
    return q.unflatten(-1, (2, -1))


def of_magnitudes(position: Position) -> Tensor:
    """pope: softplus of this is 1, and phases start at 0."""
    one = torch.full((HEAD,), math.log(math.e - 1.0), dtype=torch.float32)
    q, k = rotated(position, one)
    assert torch.equal(q, k)
    return q.unflatten(-1, (-1, 2)).mT


def of_fading(position: Position) -> Tensor:
    """xpos: what q has too much of, k has too little of; of q, less its size in fp64."""
    q, _ = rotated(position, real_first(HEAD))
    shares = torch.arange(HEAD // 2).double() * 2.0 / HEAD
    steps = (torch.arange(POSITIONS).double()[:, None, None] - POSITIONS // 2) / 2048.0
    return q.unflatten(-1, (-1, 2)).mT / ((shares + 0.4) / 1.4) ** steps


def of_columns(position: Position) -> Tensor:
    """Keys end with [cos | sin]."""
    _, k = rotated(position, torch.zeros(HEAD))
    return k[:, HEAD:].unflatten(-1, (2, -1))


def of_table(position: Position) -> Tensor:
    """The table by distance, [sin | cos], each wave by a projection of 1."""
    own = dict(position.named_parameters())["projection"]
    own.data[LAYER] = torch.eye(WIDTH).view(HEADS, HEAD, WIDTH)
    site = Site(LAYER, range(HEADS), POSITIONS)
    _, table = position("relative_keys", torch.zeros(1, HEADS, 1, HEAD).float(), site)
    return table.transpose(0, 1).flatten(1).unflatten(-1, (2, -1)).flip(1)


def embedded(position: Position, x: Tensor) -> Tensor:
    """x [D] at all positions, [S,D]."""
    ids = torch.arange(POSITIONS)[None]
    found: Tensor = position(
        "embed", x.float().expand(1, POSITIONS, -1), ids, torch.zeros_like(ids)
    )[0]
    return found


def of_added(position: Position) -> Tensor:
    """(sin, cos) in turn."""
    return embedded(position, torch.zeros(WIDTH)).unflatten(-1, (-1, 2)).mT.flip(1)


def of_phases(position: Position) -> Tensor:
    """Two speeds of its own in each pair of channels; W takes the cosines, then the sines."""
    own, parts = dict(position.named_parameters())["projection"], []
    for half in (0, 1):
        own.data = torch.eye(2 * WIDTH)[half * WIDTH : (half + 1) * WIDTH].bfloat16()
        parts.append(embedded(position, torch.ones(WIDTH)))
    return torch.stack(parts, dim=1)


Read = Callable[[Position], Tensor]
CASES: list[tuple[str, dict[str, Any], Read, Tensor | None]] = [
    ("rope", {}, of_pairs, powers(HEAD)),
    ("rope", {"layout": "halves"}, of_halves, powers(HEAD)),
    ("rerope", {}, of_pairs, powers(HEAD)),
    ("partial_rope", {}, of_pairs, powers(HEAD).where(torch.arange(4) < 3, 0.0)),
    ("partial_rope", {"form": "partial", "share": 1.0}, of_pairs, powers(HEAD)),
    ("giraffe", {}, of_pairs, powers(HEAD) * (1.0 - torch.arange(4).double() / 4) ** 0.5),
    ("giraffe", {"basis": "truncated"}, of_pairs, giraffe_speeds(HEAD)),
    # whose scale_base is raised, for it is not defined so far away otherwise
    ("xpos", {"scale_base": 2048.0}, of_fading, powers(HEAD)),
    ("pope", {}, of_magnitudes, powers(2 * HEAD)),
    ("tener", {}, of_columns, powers(HEAD)),
    ("transformer_xl", {"relative_width": "head"}, of_columns, powers(HEAD)),
    ("transformer_xl", {}, of_table, powers(WIDTH)),
    ("xlnet", {}, of_table, powers(WIDTH)),
    ("sinusoidal", {}, of_added, powers(WIDTH)),
    # learned, and so those of the model
    ("complex", {}, of_phases, None),
]


def test_every_rotation_and_sinusoid_is_here() -> None:
    rotations = {n for n in registry.names() if registry.facts_of(n)["family"] == "rotation"}
    assert rotations | {"tener", "transformer_xl", "xlnet", "sinusoidal", "complex"} == {
        name for name, *_ in CASES
    }


@pytest.mark.usefixtures("process_of_bf16")
@pytest.mark.parametrize(("name", "settings", "read", "speeds"), CASES, ids=named)
def test_far_positions_of_a_bf16_model_are_those_of_the_paper(
    name: str, settings: dict[str, Any], read: Read, speeds: Tensor | None
) -> None:
    config = toy_config(name)
    config.position |= settings
    position = Decoder(config).bfloat16().position
    with torch.no_grad():
        found = read(position)
    if speeds is None:
        own = dict(position.named_parameters())["frequencies"]
        assert own.dtype == torch.bfloat16
        speeds = own[0].detach().double()
    assert (found.double() - turns(speeds)).abs().max() <= LIMIT
    assert len(np.unique(found.flatten(1).float().numpy(), axis=0)) == POSITIONS
