"""What an encoding multiplies beyond the model, counted and not described a second time.

The decoder itself runs, forward and backward, on tensors without memory while torch's
`FlopCounterMode` adds up every matrix product; what `pipeline.model.flops` says of the same decoder
is taken away. The rest is the products of the encoding, of wider queries and keys, and of its path:
tiles compute scores again in the backward pass, and whole tiles at the diagonal. Fused kernels
count as the model does, the causal half and nothing again, so that the rest is 0 for RoPE.

Long sequences follow the parabola through three shorter ones. It is exact: the shorter ones end in
the same place of a tile, so that only how many whole tiles there are differs.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from pipeline.config.schema import Config
from pipeline.evaluate.extended import extend_decoder, tested_path
from pipeline.launch.planning.fused import fused
from pipeline.launch.planning.trace import META, by_path
from pipeline.model.attention import AUTO
from pipeline.model.decoder import Decoder
from pipeline.model.flops import step_flops
from pipeline.model.plan import PRECISIONS
from pipeline.positions.base import Position
from pipeline.positions.registry import NO_EXTENSION

# tokens after which the edges of tiles, of any path, come again
PERIOD = 1024
# longer sequences are not counted themselves; without tiles there is no need to count even these
MOST_TILED, MOST_FUSED = 4 * PERIOD, 64
_FUSED = ("sdpa", "fold")


def added_flops(config: Config, device: str, dropped: bool = False) -> int:
    """Forward and backward of one sequence at the train length, on a device type (`cpu`, `cuda`):
    all products of the decoder but those that the model has under any encoding.

    `dropped`: after the step at which training drops the encoding.
    """
    length = config.train_length
    config = by_path(config, tested_path(config, device, length))
    # a path that was not set is chosen without memory as on a CPU
    path = tested_path(config, "cpu" if config.model.attention_path == AUTO else device, length)
    lengths = _shorter(config, path, length)
    if not lengths:
        return _added(config, length, dropped)
    return parabola([(n, _added(config, n, dropped)) for n in lengths], length)


def at_most(position: Position, config: Config, path: str) -> bool:
    """Whether a run may multiply less: tiles or parts of them are left out by the values in them,
    and tensors without memory have none."""
    asked = any(map(position.has, ("bias", "select", "allowed")))
    masked = config.model.attention_mask != "none"
    return path == "contextual" or (path not in _FUSED and (asked or masked))


def parabola(points: Sequence[tuple[int, int]], length: int) -> int:
    """The value at `length` of the parabola through three (length, FLOPs)."""
    total = Fraction(0)
    for n, value in points:
        others = [m for m, _ in points if m != n]
        total += value * Fraction(
            math.prod(length - m for m in others), math.prod(n - m for m in others)
        )
    return round(total)


def _shorter(config: Config, path: str, length: int) -> list[int]:
    """Three lengths to learn that of `length` from; none if it has to be counted itself."""
    if path in _FUSED:
        step = MOST_FUSED // 4
        return [step, 2 * step, 3 * step] if length > MOST_FUSED else []
    changes = path == "far_near" and config.model.attention_path == AUTO
    if changes or config.extension["name"] != NO_EXTENSION:
        return []  # shorter ones would take another path, or know nothing of an extension's window
    # within a window the parabola is another one than beyond it
    window = config.model.attention_window or 0
    if path == "far_near":
        with META:
            window = Decoder(config).position.constant_from or 0
    # one that ends in the last tiles is nearly as one that never does
    least = PERIOD + (window if window < length - PERIOD else 0)
    start = least + (length - least) % PERIOD
    found = [start + n * PERIOD for n in range(3)]
    return found if length > max(MOST_TILED, found[-1]) else []


def _added(config: Config, length: int, dropped: bool) -> int:
    """Of all layers, from one and two: they have the same work, unless some are without the
    encoding."""
    layers = config.model.layers
    if config.model.no_position_every is not None or layers == 1:
        return _counted(config, length, layers, dropped)
    one, two = (_counted(config, length, n, dropped) for n in (1, 2))
    return one + (layers - 1) * (two - one)


def _counted(config: Config, length: int, layers: int, dropped: bool) -> int:
    # nothing but attention is computed again, whatever the run does to save memory
    model = replace(config.model, layers=layers, activation_checkpointing=False, tiled_mlp=False)
    config = replace(config, model=model)
    counter = FlopCounterMode(display=False, custom_mapping=_UNKNOWN)
    with META:
        decoder = Decoder(config)
        extend_decoder(decoder, config)
        decoder.to(PRECISIONS[config.trainer.precision])
        decoder.at_step((model.drop_position_after or 0) if dropped else 0)
        tokens = torch.zeros(1, length, dtype=torch.int64)
        ids = torch.arange(length)[None]
        consecutive = decoder.position_ids.facts.consecutive
        with fused(), counter:
            decoder(tokens, tokens, ids, None, consecutive).sum().backward()
    return int(counter.get_total_flops()) - step_flops(model, config.data.vocab, length)


def _in_place(into: Any, left: Any, right: Any, **_: Any) -> int:
    """Shapes of into += left @ right."""
    return 2 * math.prod(left) * int(right[-1])


def _attended(q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
    """Shapes [B,h,S,E] of causal attention, q k^T and p v: the half that it needs."""
    return math.prod(q[:3]) * int(q[2]) * (int(q[3]) + int(v[3]))


def _attended_back(slope: Any, q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
    """Twice the forward pass."""
    return 2 * _attended(q, k, v)


_aten = torch.ops.aten
# torch's counter knows neither products added in place nor the fused kernel of CPUs
_UNKNOWN = {
    _aten.addmm_: _in_place,
    _aten.baddbmm_: _in_place,
    _aten._scaled_dot_product_flash_attention_for_cpu: _attended,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: _attended_back,
}
