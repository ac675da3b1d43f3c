"""Which attention path a configuration takes, found without computing anything."""

from dataclasses import replace

import torch

from pipeline.config.schema import Config
from pipeline.model.attention import AUTO, PARTIAL, check_path, choose
from pipeline.model.decoder import shape_of
from pipeline.positions import registry
from pipeline.positions.base import Site

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}


def as_tested(config: Config) -> Config:
    """The configuration of the tests after training: they compute in fp32, by any path."""
    model = replace(config.model, attention_path=AUTO)
    return replace(config, model=model, trainer=replace(config.trainer, precision="fp32"))


def attention_path(config: Config, device: str, length: int) -> str:
    """The path for sequences of `length` tokens on a device type (`cpu`, `cuda`).

    Raises:
        ConfigError: the configured path does not serve the encoding at this length.
    """
    model, ring = config.model, config.trainer.ring > 1
    with torch.device("meta"):
        position = registry.build(config.position, shape_of(config))
        size = (1, model.heads, length, model.head_width)
        q = torch.empty(size, dtype=PRECISIONS[config.trainer.precision])
        ids = torch.arange(length)[None]
        gates = torch.empty(size[:3]) if position.has("gate_logits") else None
    site = Site(0, range(model.heads), length)
    scores = position.scores(q, q, ids, site, model.attention_window, None, gates)
    check_path(model.attention_path, scores, device, ring)
    if model.attention_path != AUTO:
        return model.attention_path
    found = choose(scores, length, device)
    return found if not ring or found in PARTIAL else "tile"
