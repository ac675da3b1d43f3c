"""A trained decoder under an extension: what is tested, and how attention computes it."""

import torch

from pipeline.config.schema import Config
from pipeline.errors import ConfigError
from pipeline.model.decoder import Decoder
from pipeline.model.plan import attention_path, path_of
from pipeline.positions import registry


def extend_decoder(decoder: Decoder, config: Config) -> None:
    """Put the encoding of a trained decoder under the configured extension; "none" leaves it.

    Layers that go without an encoding are changed too if the extension fits "none", as a window or
    a temperature does. If training dropped the encoding, they are all layers.

    Raises:
        ConfigError: the extension does not fit the encoding or its position ids, or refuses a
            value.
    """
    kind, settings = config.extension["name"], config.extension
    if kind == registry.NO_EXTENSION:
        return
    counts = registry.extension_class(kind).about.counts_tokens
    if counts and not decoder.position_ids.tests_consecutive:
        raise ConfigError(
            f"extension={kind} does not fit position_ids={config.position_ids['name']}: it counts "
            "tokens by their position ids, and these number something else"
        )
    if registry.extension_class(kind).has("allowed") and config.model.attention_mask != "none":
        raise ConfigError(
            f"extension={kind} does not fit model.attention_mask={config.model.attention_mask}: "
            "the trained model has a mask of its own"
        )
    if decoder.dropped and not registry.extension_fits(kind, decoder.bare):
        raise ConfigError(
            f"extension={kind} does not fit a model whose training dropped its encoding, "
            f"position={config.position['name']}: there is none left that it could change"
        )
    if not decoder.dropped:
        decoder.position = registry.extended(decoder.position, config.position["name"], settings)
    some_bare = decoder.bare_every is not None
    if decoder.dropped or (some_bare and registry.extension_fits(kind, decoder.bare)):
        decoder.bare = registry.extended(decoder.bare, "none", settings)


def tested_path(config: Config, device: str, length: int) -> str:
    """The path by which sequences of `length` tokens are tested on a device type (`cpu`, `cuda`),
    found without computing anything.

    Raises:
        ConfigError: the configured path does not serve the encoding at this length.
    """
    if config.extension["name"] == registry.NO_EXTENSION:
        return attention_path(config, device, length)
    with torch.device("meta"):
        decoder = Decoder(config)
        extend_decoder(decoder, config)
    used = decoder.bare if decoder.dropped else decoder.position
    return path_of(config, used, device, length)
