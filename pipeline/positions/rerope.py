"""ReRoPE: RoPE with the distance capped at a window w: pair t of q_i and of k_j meets at the angle
min(i - j, w) w_t, w_t = base^(-2t/d), t = 0 .. d/2 - 1.

Su 2023, kexue.fm/archives/9708, without the factor log(i) / log(train_length) on q of the code
bojone/rerope. Two rotations: below the window RoPE's, from it on q turned by w and k as it is. The
post takes windows of a quarter to a half of the training length. The functions are shared with the
extensions that put other distances into a trained rotary encoding.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from pipeline.positions.base import Facts, Position, Shape, Site
from pipeline.positions.facts import share_of
from pipeline.positions.rope import RotaryPosition

Rotate = Callable[[Tensor, Tensor, Tensor, Site], tuple[Tensor, Tensor]]


class RectifiedRotaryPosition(Position):
    """Rotary position embedding that knows no distance beyond its window."""

    facts = Facts(
        source="Su 2023, kexue.fm/archives/9708",
        formula="S_ij = Re sum_t (q_t k_t*) e^{i min(i-j, w) w_t}/sqrt(d), w_t = base^(-2t/d)",
        family="rotation",
        shift_invariant=True,
        attention_paths=("tile",),
    )

    def __init__(self, shape: Shape, *, window_share: float = 0.5, base: float = 10000.0) -> None:
        super().__init__(shape)
        self.window = share_of(
            "position.window_share", window_share, shape.train_length, "the author: 0.25 to 0.5"
        )
        self.rope = RotaryPosition(shape, base=base)

    def branches(
        self, q: Tensor, k: Tensor, ids: Tensor, site: Site
    ) -> tuple[tuple[Tensor, Tensor], ...]:
        """q, k [B,h,S,d], ids [B,S] or [1,S] -> (q, k) below the window, and from it on."""
        near = self.rope.rotate(q, k, ids, site)
        far, _ = self.rope.rotate(q, k, torch.full_like(ids, self.window), site)
        return near, (far, k)

    def select(self, ids_q: Tensor, ids_k: Tensor) -> Tensor:
        """ids_q [I], ids_k [J] -> [I,J]: 0 where i - j < w, else 1."""
        return from_window(ids_q, ids_k, self.window)


def from_window(ids_q: Tensor, ids_k: Tensor, window: int) -> Tensor:
    """ids_q [I], ids_k [J] -> [I,J]: 0 where i - j < w, else 1."""
    return (ids_q[:, None] - ids_k >= window).long()


def placed(
    rotate: Rotate, q: Tensor, k: Tensor, ids_q: Tensor, ids_k: Tensor, site: Site
) -> tuple[Tensor, Tensor]:
    """q, k [B,h,S,d] rotated as if at ids_q and ids_k, [B,S] or [1,S]: they meet at a distance of
    ids_q - ids_k."""
    return rotate(q, k, ids_q, site)[0], rotate(q, k, ids_k, site)[1]


def rotary_refusal(position: Position) -> str | None:
    """Why other distances cannot be put into this encoding; None if they can."""
    if not isinstance(position, RotaryPosition):
        return "it changes the distances of rotations; use it with rope or another rotary encoding"
    if position.has("branches"):
        return "the encoding chooses between rotations already; use it with rope"
    return None
