"""Which attention path a configuration takes, found without computing anything."""

from dataclasses import replace

import torch

from pipeline.config.schema import Config
from pipeline.model.attention import AUTO, choose
from pipeline.model.decoder import shape_of
from pipeline.positions import registry
from pipeline.positions.base import Site

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}


def attention_path(config: Config, device: str, length: int) -> str:
    """The path for sequences of `length` tokens on a device type (`cpu`, `cuda`)."""
    model, ring = config.model, config.trainer.ring
    if model.attention_path != AUTO:
        return model.attention_path
    with torch.device("meta"):
        position = registry.build(config.position, shape_of(config))
        size = (1, model.heads, length, model.head_width)
        q = torch.empty(size, dtype=PRECISIONS[config.trainer.precision])
        ids = torch.arange(length)[None]
    site = Site(0, range(model.heads), length)
    scores = position.scores(q, q, ids, site, model.attention_window)
    if ring > 1:
        scores = replace(scores, folded=None)
    return choose(scores, -(-length // ring), device)
