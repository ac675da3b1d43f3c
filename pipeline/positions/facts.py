"""What an encoding is told, and what it declares.

Legend: d head width, D model width, H heads.
"""

import math
from dataclasses import dataclass, field

from pipeline.errors import ConfigError

MOST_TOKENS = 2**40
# "contextual": how far a token is, or what distance does, depends on what the tokens say
FAMILIES = ("none", "input embedding", "bias", "relative vectors", "rotation", "contextual")


@dataclass(frozen=True)
class Shape:
    """The sizes an encoding may depend on; every one is a count, `train_length` in tokens.

    The `train_length` of an encoding whose training is continued at another length stays the first.
    """

    width: int
    layers: int
    heads: int
    train_length: int
    vocab: int = 0

    @property
    def head_width(self) -> int:
        """Width of one head, d = D / H."""
        return self.width // self.heads


@dataclass(frozen=True)
class Site:
    """Where a hook is called: all of it is global, whatever this rank holds.

    `layer` counts blocks from 0; `heads` are the global indices of the heads at hand (all H before
    the sequence exchange, h of them after it); `length` is the whole sequence in tokens, of which
    the queries and keys at hand are `tokens`. `consecutive`: ids rise by one from token to token.
    """

    layer: int
    heads: range
    length: int
    tokens: slice = field(default_factory=lambda: slice(None))
    consecutive: bool = True

    @property
    def held(self) -> slice:
        """The heads at hand, as a slice of all heads."""
        return slice(self.heads.start, self.heads.stop)


@dataclass(frozen=True)
class Facts:
    """What an encoding declares; `python -m pipeline positions` prints it and tests hold it to it.

    `family` is one of FAMILIES: by what position enters the model. `max_length`, in tokens, is what
    the encoding is defined up to with its default settings: a number, "train_length" or
    "unbounded". `extra_parameters` is a formula over the fields of `Shape` and the encoding's
    settings.
    `attention_paths` names the paths of `pipeline.model.attention` that serve it with its default
    settings, on some device and in some precision; the first is taken for short sequences on CPU.
    `head_shardable`: a rank may hold some of the heads; `ring_shardable`: some of the tokens.
    `real_positions`: it is defined for positions that are not integers.
    """

    source: str
    formula: str
    family: str
    shift_invariant: bool
    attention_paths: tuple[str, ...]
    extra_parameters: str = "0"
    max_length: str | int = "unbounded"
    length_dependent: bool = False
    head_shardable: bool = True
    ring_shardable: bool = True
    real_positions: bool = False


def share_of(key: str, share: float, train_length: int, usual: str) -> int:
    """A share of the training length, in whole tokens.

    Raises:
        ConfigError: it is less than a token, or no number.
    """
    tokens = round(share * train_length) if math.isfinite(share) else 0
    if not 1 <= tokens <= MOST_TOKENS:
        raise ConfigError(
            f"{key}={share}: {tokens} tokens of train_length={train_length}; must give 1 to "
            f"{MOST_TOKENS} ({usual})"
        )
    return tokens
