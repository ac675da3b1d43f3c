"""RoPE: pair t of q_i and of k_j is rotated by the angle i w_t and j w_t, w_t = base^(-2t/d), so
S_ij = Re sum_t (q_t k_t*) exp(i (i - j) w_t) / sqrt(d), t = 0 .. d/2 - 1.

Su, Lu, Pan, Murtadha, Wen, Liu 2021, arXiv 2104.09864, equation 34. Values are not rotated; every
layer rotates. Pairs are (2t, 2t+1) as in the paper and in Meta's LLaMA (interleaved), or
(t, t + d/2) as in GPT-NeoX and Hugging Face (halves): the same encoding up to one permutation of
the rows of both projections, so a checkpoint is read with the layout that it was trained in.

Encodings made of this one change `speeds`, `magnitude` or `angles`; extensions do so when testing.
"""

import torch
from torch import Tensor

from pipeline.errors import ConfigError
from pipeline.positions.base import Facts, Position, Shape, Site

INTERLEAVED, HALVES = LAYOUTS = ("interleaved", "halves")


class RotaryPosition(Position):
    """Rotary position embedding of queries and keys."""

    facts = Facts(
        source="Su et al. 2021, arXiv 2104.09864",
        formula="S_ij = Re sum_t (q_t k_t*) e^{i(i-j)w_t}/sqrt(d), w_t = base^(-2t/d)",
        family="rotation",
        shift_invariant=True,
        attention_paths=("sdpa", "tile", "flex"),
        real_positions=True,
    )

    def __init__(self, shape: Shape, *, base: float = 10000.0, layout: str = INTERLEAVED) -> None:
        super().__init__(shape)
        if self.turned % 2:
            raise ConfigError(
                f"model.width / model.heads = {shape.head_width}: rope rotates pairs, so the head "
                "width must be even"
            )
        check_base("position", base)
        if layout not in LAYOUTS:
            raise ConfigError(f"position.layout={layout!r}: must be one of {', '.join(LAYOUTS)}")
        self.base, self.layout = base, layout

    @property
    def turned(self) -> int:
        """Dimensions that turn, two of them at each speed; what d stands for in w_t."""
        return self.shape.head_width

    def speeds(self, device: torch.device, length: int) -> Tensor:
        """w_t [turned/2] fp64, in radians per token, for a sequence of `length` tokens."""
        pairs = torch.arange(self.turned // 2, device=device, dtype=torch.float64)
        return torch.pow(self.base, -2.0 * pairs / self.turned)

    def magnitude(self, length: int) -> float:
        """What q and k are multiplied by besides, each, in a sequence of `length` tokens."""
        return 1.0

    def angles(self, ids: Tensor, site: Site) -> Tensor:
        """ids [B,S] or [1,S], whole or not -> i w_t [B,1,S,turned/2] fp64."""
        return ids[:, None, :, None].double() * self.speeds(ids.device, site.length)

    def rotate(self, q: Tensor, k: Tensor, ids: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        """q, k [B,h,S,d], ids [B,S] or [1,S] -> rotated q, k. Angles fp64, products fp32."""
        angles = self.angles(ids, site)
        size = torch.full_like(angles, self.magnitude(site.length))
        turn = torch.polar(size, angles).to(torch.complex64)
        if self.layout == HALVES:
            q, k = _pairs(q), _pairs(k)
        q, k = _turned(q, turn), _turned(k, turn)
        return (q, k) if self.layout == INTERLEAVED else (_halves(q), _halves(k))


def _turned(x: Tensor, turn: Tensor) -> Tensor:
    """x [B,h,S,d], turn [B,1,S,d/2] -> x with every pair (2t, 2t+1) turned, as the
    complex number x_2t + i x_2t+1. The backward pass keeps `turn` alone."""
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turn).flatten(-2).to(x.dtype)


def _pairs(x: Tensor) -> Tensor:
    """x [...,d], pairs (t, t + d/2) -> the same with pairs (2t, 2t+1)."""
    return x.unflatten(-1, (2, -1)).mT.flatten(-2)


def _halves(x: Tensor) -> Tensor:
    """x [...,d], pairs (2t, 2t+1) -> the same with pairs (t, t + d/2)."""
    return x.unflatten(-1, (-1, 2)).mT.flatten(-2)


def check_base(group: str, base: float) -> None:
    """Refuse a base with which no wavelength grows.

    Raises:
        ConfigError: `base` is not a number above 1.
    """
    if not 1.0 < base <= 1e15:
        raise ConfigError(f"{group}.base={base}: must be above 1, at most 1e15; the paper: 10000")


def check_scale(key: str, scale: float) -> None:
    """Refuse a factor by which the context does not grow.

    Raises:
        ConfigError: `scale` is not a number of at least 1.
    """
    if not 1.0 <= scale <= 1e6:
        raise ConfigError(
            f"extension.{key}={scale}: must be 1 to 1e6, the length to reach over train_length; 1 "
            "changes nothing"
        )


def without_speeds(position: Position, pairs: int = 1) -> str | None:
    """Why the speeds of a trained encoding cannot be rescaled, as the end of a sentence; None if
    they can. At least `pairs` of them are needed."""
    if not isinstance(position, RotaryPosition):
        return (
            "it has no speeds of rotation to rescale; this is for rope and the encodings made of "
            "it: partial_rope, xpos, giraffe, pope"
        )
    if position.turned < 2 * pairs:
        return f"it turns {position.turned} dimensions, and at least {2 * pairs} must turn"
    return None
