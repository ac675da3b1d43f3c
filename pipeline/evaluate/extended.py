"""A trained decoder under an extension: what is tested, and how attention computes it."""

from pipeline.config.schema import Config
from pipeline.model.decoder import Decoder
from pipeline.model.plan import attention_path, path_of
from pipeline.positions import registry


def extend_decoder(decoder: Decoder, config: Config) -> None:
    """Put the trained encoding of a decoder under the configured extension; "none" leaves it.

    Raises:
        ConfigError: the extension does not fit the encoding, or refuses a value.
    """
    name = config.position["name"]
    decoder.position = registry.extended(decoder.position, name, config.extension)


def tested_path(config: Config, decoder: Decoder, device: str, length: int) -> str:
    """The path by which sequences of `length` tokens are tested on a device type (`cpu`, `cuda`).

    Raises:
        ConfigError: the configured path does not serve the encoding at this length.
    """
    if config.extension["name"] == registry.NO_EXTENSION:
        return attention_path(config, device, length)
    return path_of(config, decoder.position, device, length)
