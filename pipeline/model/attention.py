"""Causal attention under any scores, in memory linear in the length; never an S x S matrix.

| path         | serves                                                                    |
|--------------|---------------------------------------------------------------------------|
| `sdpa`       | plain products of q and k: torch's fused kernel                           |
| `fold`       | scores that an encoding rewrites as plain products of wider q and k       |
| `far_near`   | tables by distance that end in a constant: fused kernel plus a near band  |
| `contextual` | positions counted along a row by gates of its scores; nothing else        |
| `tile`       | everything else                                                           |
| `flex`       | plain products, biases by distance and windows, compiled; not on CPU      |

All are exact and tested against the same slow loops. (torch leaves its fused kernel for a
quadratic one at odd head widths: keep the head width a multiple of 8.)
"""

from functools import partial

import torch.nn.functional as F
from torch import Tensor

from pipeline.errors import ConfigError
from pipeline.model.contextual import ContextualKernel
from pipeline.model.exchange import Exchange
from pipeline.model.far_near import FarNearKernel, serves_far_near
from pipeline.model.flash import FlashKernel
from pipeline.model.flex import compiled, flex
from pipeline.model.kernel import Kernel, run
from pipeline.model.tile import TileKernel
from pipeline.positions.scores import Scores

AUTO = "auto"
PARTIAL = ("sdpa", "tile")  # paths that need not have all keys of a row
# sequences at least this many times as long as the near band are faster by far_near (measured)
FAR_PER_NEAR = 64
_OWN_KERNELS: dict[str, type[Kernel]] = {"far_near": FarNearKernel, "contextual": ContextualKernel}


def paths(scores: Scores, device: str) -> list[str]:
    """The paths that compute these scores on a device type (`cpu`, `cuda`)."""
    if scores.context is not None:
        return ["contextual"]
    found = ["tile"]
    if scores.plain:
        found.append("sdpa")
    if scores.folded is not None:
        found.append("fold")
    if serves_far_near(scores):
        found.append("far_near")
    if scores.tabular and device != "cpu":
        found.append("flex")
    return found


def choose(scores: Scores, length: int, device: str) -> str:
    """The path taken for `length` tokens when none is asked for."""
    possible = paths(scores, device)
    for only in ("contextual", "sdpa"):
        if only in possible:
            return only
    if "fold" in possible and device == "cuda":
        return "fold"
    if "far_near" in possible:
        assert scores.constant_from is not None
        if device == "cuda" or length >= FAR_PER_NEAR * scores.constant_from:
            return "far_near"
    return "tile"


def attention(
    scores: Scores, v: Tensor, path: str = AUTO, exchange: Exchange | None = None
) -> Tensor:
    """Causal attention: v [B,h,A,d] of the tokens at hand -> [B,h,A,d] in the precision of v.

    `exchange` reaches the keys of other ranks; None = this rank has them all.

    Raises:
        ConfigError: `path` does not serve these scores.
    """
    device, length = v.device.type, v.shape[2]
    ring = (exchange or Exchange()).kernel(partial(part_kernel, path=path))
    check_path(path, scores, device, ring is not None)
    if ring is not None:
        return run(ring, scores, v)
    if path == AUTO:
        path = choose(scores, length, device)
    if path == "flex" and not v.is_meta:
        return flex(scores, v, compiled())
    if path == "fold":
        assert scores.folded is not None
        return sdpa(*scores.folded(), v, scores.scale)
    if path == "sdpa":
        return sdpa(*scores.pairs[0], v, scores.scale)
    return run(_OWN_KERNELS.get(path, TileKernel)(), scores, v)


def check_path(path: str, scores: Scores, device: str, ring: bool) -> None:
    """Refuse a path that cannot compute these scores.

    Raises:
        ConfigError: `path` is neither `auto` nor among `paths`; of a ring, among PARTIAL too.
    """
    possible = [name for name in paths(scores, device) if not ring or name in PARTIAL]
    if path not in (AUTO, *possible):
        window = f" with a window of {scores.window} tokens" if scores.window else ""
        precision = str(scores.pairs[0][0].dtype).removeprefix("torch.")
        raise ConfigError(
            f"model.attention_path={path!r} does not serve this position encoding{window} in "
            f"{precision} on {device}{' in a ring' if ring else ''}; use "
            f"{', '.join((AUTO, *possible))}"
        )


def part_kernel(scores: Scores, path: str = AUTO) -> Kernel:
    """The kernel for the part of the keys that one station of a ring has."""
    assert scores.context is None, "a part of the keys cannot count what the whole row lets through"
    return FlashKernel() if scores.plain and path != "tile" else TileKernel()


def sdpa(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """torch's kernel, q, k [B,h,S,E], v [B,h,S,d]; it is fused only if E = d, so v is padded."""
    wide, width = q.shape[-1], v.shape[-1]
    padded = F.pad(v, (0, wide - width)) if wide != width else v
    out = F.scaled_dot_product_attention(q, k, padded, is_causal=True, scale=scale)
    return out[..., :width]
