"""The decoder that training starts from: fresh of the seed, or with weights that were trained."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline.config.schema import Config
from pipeline.evaluate.extended import extend_decoder
from pipeline.model.decoder import Decoder, load_weights


@dataclass(frozen=True)
class Start:
    """What training goes on from: weights by name, and the optimizer steps that made them.

    The order of the data goes on after these steps too, so that a run that continues another of the
    same seed, lengths and batch does not read the same text again.
    """

    weights: Mapping[str, Tensor]
    steps: int


def build_decoder(config: Config, start: Start | None = None) -> Decoder:
    """A fresh decoder, whose weights depend on the seed alone, and on no other random state; or one
    with the weights of `start`, under the configured extension.

    Raises:
        CheckpointError: the weights are of another model.
        ConfigError: the extension does not fit.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        decoder = Decoder(config)
    if start is not None:
        load_weights(decoder, start.weights)
        extend_decoder(decoder, config)
    return decoder
