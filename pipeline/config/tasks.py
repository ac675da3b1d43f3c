"""Settings about what is mixed into training and what is tested: tasks and protocols.

The names of the tasks are the fields of `MixConfig`.
"""

from dataclasses import asdict
from fractions import Fraction

from pipeline.config.schema import Config, MixConfig
from pipeline.config.values import show, suggestion
from pipeline.errors import ConfigError

# Tasks with one needle that is asked for: they are tested at every depth.
NEEDLE_TASKS = ("passkey", "multi_key")


def mixed_shares(mix: MixConfig) -> dict[str, Fraction]:
    """The share of each task that is mixed in, exactly as it is written in decimal digits."""
    return {name: Fraction(repr(share)) for name, share in asdict(mix).items() if share}


def check_tasks(config: Config) -> None:
    """Raise ConfigError for shares above 1, unknown or repeated tasks, protocols that stand twice,
    or depths that do not ascend."""
    _check_shares(config.data.mix)
    _check_names(config.evaluate.tasks)
    _check_depths(config.evaluate.needle_depths)
    protocols = config.evaluate.protocols
    if len(set(protocols)) < len(protocols):
        raise ConfigError(
            f"`evaluate.protocols` = {show(protocols)} is not allowed: each must stand once. Write "
            f"{show(list(dict.fromkeys(protocols)))}."
        )


def _check_shares(mix: MixConfig) -> None:
    shares = mixed_shares(mix)
    total = sum(shares.values())
    if total > 1:
        given = ", ".join(f"{name} {show(getattr(mix, name))}" for name in shares)
        raise ConfigError(
            f"`data.mix` ({given}) is not allowed: the shares add up to {float(total):.12g}, and "
            "can be at most 1, which leaves no text. Lower some of them."
        )


def _check_names(tasks: list[str]) -> None:
    known = asdict(MixConfig())
    for number, name in enumerate(tasks):
        if name not in known:
            raise ConfigError(
                f"`evaluate.tasks` = {show(tasks)} is not allowed: {show(name)} is not a task."
                f"{suggestion(name, known)} Allowed: {', '.join(known)}."
            )
        if name in tasks[:number]:
            raise ConfigError(
                f"`evaluate.tasks` = {show(tasks)} is not allowed: each task must stand once. "
                f"Write {show(list(dict.fromkeys(tasks)))}."
            )


def _check_depths(depths: list[float]) -> None:
    if depths != sorted(set(depths)):
        raise ConfigError(
            f"`evaluate.needle_depths` = {show(depths)} is not allowed: depths must ascend and "
            f"stand once each. Write {show(sorted(set(depths)))}."
        )
