"""What a bench is asked for, checked before anything is written, and the subjects it comes to."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.bench.rivals import check_rivals, encodings
from pipeline.config.compose import load
from pipeline.config.groups import configs_folder
from pipeline.config.schema import Config, ModelConfig
from pipeline.errors import ConfigError

MEASURES = ("attention", "step")
# The settings that a bench reads; any other would have no effect.
READ = (
    "model", "model.", "position.", "data.vocab", "seed", "runs", "trainer.threads",
    "trainer.precision", "trainer.accelerator",
)  # fmt: skip


# settings of `model` that rivals do not have, and those that only a whole block has
OURS = ("activation_checkpointing", "tiled_mlp", "attention_window")
OF_BLOCKS = (
    "score_scale", "qk_norm", "qk_bias", "attention_mask", "no_position_every",
    "drop_position_after",
)  # fmt: skip


@dataclass(frozen=True)
class Subject:
    """One thing measured at one length; `maker` is farsight, sdpa (torch's kernel) or a rival."""

    measure: str
    maker: str
    position: str
    length: int
    yardstick: str

    @property
    def name(self) -> str:
        """How it is called in the table."""
        own = {"farsight": self.position, "sdpa": "sdpa"}
        return own.get(self.maker, f"{self.maker} {self.position}")


@dataclass(frozen=True)
class Options:
    """A bench: one configuration for each encoding, lengths in tokens, rounds, where it goes."""

    configs: dict[str, Config]
    lengths: list[int]
    measures: list[str]
    against: list[str]
    repeats: int
    out: Path

    @property
    def config(self) -> Config:
        """The settings that all encodings share."""
        return next(iter(self.configs.values()))

    def config_of(self, subject: Subject) -> Config:
        """The settings of a subject; torch's kernel has no encoding of its own."""
        return self.configs.get(subject.position, self.config)

    def subjects(self, length: int) -> list[Subject]:
        """Everything measured at one length.

        The yardstick of attention is torch's causal kernel on the same shape; of a rival's step our
        step under the same encoding; of our steps the one of the first encoding.
        """
        found = []
        if "attention" in self.measures:
            found = [Subject("attention", "sdpa", "none", length, "sdpa")]
            found += [Subject("attention", "farsight", p, length, "sdpa") for p in self.configs]
        if "step" in self.measures:
            first = next(iter(self.configs))
            found += [Subject("step", "farsight", p, length, first) for p in self.configs]
            for rival in self.against:
                shared = [p for p in self.configs if p in encodings(rival)]
                found += [Subject("step", rival, p, length, p) for p in shared]
        return found


def read_options(
    overrides: Sequence[str],
    *,
    positions: str,
    lengths: str,
    measure: str,
    against: str,
    repeats: int,
    out: Path | None,
) -> Options:
    """The bench that a command line asks for; lists are texts with commas.

    Raises:
        ConfigError: a value is not allowed, a rival is not installed, or `out` holds a bench.
    """
    measures = _one_of("--measure", measure, MEASURES)
    numbers = _lengths(lengths)
    names = _list("--positions", positions)
    rivals = _one_of("--against", against, encodings()) if against else []
    configs = {name: _config(name, overrides, max(numbers)) for name in names}
    if repeats < 1:
        raise ConfigError(f"--repeats={repeats} is not allowed: it takes 1 or more rounds")
    options = Options(configs, numbers, measures, rivals, repeats, Path())
    if "attention" in measures:
        _refuse_settings(options, OF_BLOCKS, "attention is measured by itself, without it")
    if rivals:
        _check_against(options)
    out = out or Path(options.config.runs) / "bench" / time.strftime("%Y%m%d-%H%M%S")
    if (out / "bench.json").exists():
        raise ConfigError(f"--out={out} already holds a bench.json: name another folder")
    return replace(options, out=out)


def _config(position: str, overrides: Sequence[str], longest: int) -> Config:
    """The configuration of one encoding; a learned table gets rows for the longest length."""
    for override in overrides:
        key = override.partition("=")[0]
        if key == "position":
            raise ConfigError(f"{override}: name encodings with --positions")
        if key not in READ and not key.startswith(tuple(one for one in READ if one[-1] == ".")):
            raise ConfigError(
                f"{override}: `{key}` has no effect on a bench, which reads: {', '.join(READ)}"
            )
    lengths = [f"train_length={longest}", f"eval_lengths=[{longest}]"]
    path = configs_folder() / "bench.yaml"
    return load(path, [f"position={position}", *lengths, *overrides])[0]


def _check_against(options: Options) -> None:
    if "step" not in options.measures:
        raise ConfigError("--against compares whole steps: add step to --measure")
    _refuse_settings(
        options, (*OURS, *OF_BLOCKS), "the rivals of --against are measured without it"
    )
    for rival in options.against:
        if not set(encodings(rival)) & set(options.configs):
            raise ConfigError(
                f"--against={rival}: it is measured under {', '.join(encodings(rival))}, and "
                f"--positions={','.join(options.configs)} names none of them; add one"
            )
    check_rivals(options.against)


def _refuse_settings(options: Options, keys: Sequence[str], reason: str) -> None:
    """Refuse settings of the model that are not what they are by default.

    Raises:
        ConfigError: one of `keys` is not.
    """
    for key in keys:
        value = getattr(options.config.model, key)
        if value != getattr(ModelConfig(), key):
            raise ConfigError(
                f"`model.{key}` = {value} is not allowed here: {reason}. Leave out one of the two"
            )


def _list(option: str, text: str) -> list[str]:
    items = [item.strip() for item in text.split(",")]
    if "" in items or len(set(items)) < len(items):
        raise ConfigError(
            f"{option}={text!r} is not allowed: it takes names with commas between, each once"
        )
    return items


def _one_of(option: str, text: str, allowed: Sequence[str]) -> list[str]:
    items = _list(option, text)
    for item in items:
        if item not in allowed:
            raise ConfigError(
                f"{option}={item!r} is not allowed: it takes {', '.join(allowed)}, with commas "
                "between"
            )
    return items


def _lengths(text: str) -> list[int]:
    items = _list("--lengths", text)
    if not all(item.isdecimal() and 2 <= int(item) <= 2**26 for item in items):
        raise ConfigError(
            f"--lengths={text!r} is not allowed: it takes integers from 2 to {2**26} with commas "
            "between"
        )
    return sorted(map(int, items))
