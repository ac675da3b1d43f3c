"""Which attention path a configuration takes, found without computing anything."""

from dataclasses import replace

import torch

from pipeline.config.schema import Config
from pipeline.model.attention import AUTO, PARTIAL, check_path, choose
from pipeline.model.decoder import shape_of
from pipeline.model.modifiers import attention_mask
from pipeline.positions import registry
from pipeline.positions.base import Position, Site
from pipeline.positions.none import NoPosition

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}


def as_tested(config: Config) -> Config:
    """The configuration of the tests after training: they compute in fp32 and by any path, without
    an encoding that training dropped, and without a mask of training alone."""
    dropped = None if config.model.drop_position_after is None else 0
    model = replace(config.model, attention_path=AUTO, drop_position_after=dropped)
    if model.attention_mask == "shifted_groups":
        model = replace(model, attention_mask="none", mask_tokens=None)
    return replace(config, model=model, trainer=replace(config.trainer, precision="fp32"))


def attention_path(config: Config, device: str, length: int) -> str:
    """The path for sequences of `length` tokens on a device type (`cpu`, `cuda`); where some layers
    or steps go without the encoding, that of the encoding.

    Raises:
        ConfigError: the configured path does not serve the encoding at this length, or not the
            layers or steps without it.
    """
    model, shape = config.model, shape_of(config)
    with torch.device("meta"):
        used = [] if model.drop_position_after == 0 else [registry.build(config.position, shape)]
        if model.no_position_every is not None or model.drop_position_after is not None:
            used.append(NoPosition(shape))
    paths = [path_of(config, position, device, length) for position in used]
    return paths[0]


def path_of(config: Config, position: Position, device: str, length: int) -> str:
    """As `attention_path`, for an encoding at hand."""
    model, ring = config.model, config.trainer.ring > 1
    with torch.device("meta"):
        size = (1, model.heads, length, model.head_width)
        q = torch.empty(size, dtype=PRECISIONS[config.trainer.precision])
        ids = torch.arange(length)[None]
        gates = torch.empty(size[:3]) if position.has("gate_logits") else None
    consecutive = registry.ids_class(config.position_ids["name"]).facts.consecutive
    site = Site(0, range(model.heads), length, consecutive=consecutive)
    mask = attention_mask(model, site.heads, training=True)
    scores = position.scores(q, q, ids, site, model.attention_window, mask, gates)
    check_path(model.attention_path, scores, device, ring)
    if model.attention_path != AUTO:
        return model.attention_path
    found = choose(scores, length, device)
    return found if not ring or found in PARTIAL else "tile"
