"""One layer's attention, without its projections, under an encoding."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from pipeline.config.schema import Config
from pipeline.model.attention import attention
from pipeline.model.decoder import shape_of
from pipeline.positions import registry
from pipeline.positions.base import Site

Mix = Callable[[Tensor, Tensor, Tensor], Tensor]


def attention_case(config: Config, length: int, device: torch.device) -> tuple[nn.Module, Mix]:
    """The configured encoding, and a function q, k, v [1,H,S,d] -> [1,H,S,d] that attends with it.

    The whole cost of the encoding in a layer is in the function: turns, tables and attention.
    """
    position = registry.build(config.position, shape_of(config)).to(device)
    ids = torch.arange(length, device=device)[None]
    model = config.model
    site = Site(0, range(model.heads), length)
    attend = partial(attention, path=model.attention_path)

    def mix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        mixed: Tensor = position("attend", attend, q, k, v, ids, site, model.attention_window)
        return mixed

    return position, mix
