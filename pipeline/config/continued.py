"""Continued runs, which train the weights of a finished run on: where these are, and which settings
must be those that they were trained with."""

import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline.config.dotted import dotted
from pipeline.config.schema import Config
from pipeline.config.values import show
from pipeline.errors import ConfigError

# Keys, or their beginnings, that may differ from those of the run that is continued. Of the corpus
# itself the tokenizer decides, which is known once it is prepared.
FREE = (
    "experiment", "seed", "runs", "init_from", "encoding_length", "train_length", "eval_lengths",
    "position_ids.", "extension.", "model.attention_path", "model.activation_checkpointing",
    "model.tiled_mlp", "data.source", "data.text_key", "data.prepared", "data.tokenizer_bytes",
    "data.workers", "data.mix.", "optimizer.", "trainer.", "evaluate.", "wandb.",
)  # fmt: skip
_ABSENT = object()


def check_continued(config: Config) -> None:
    """Refuse settings of a continued run in one that is none, and a path that means nothing.

    Raises:
        ConfigError: naming the setting, what is allowed and how to fix it.
    """
    if config.init_from is None:
        if config.encoding_length is not None:
            raise ConfigError(
                f"`encoding_length` = {config.encoding_length} is not allowed: only a run that "
                "continues another (`init_from`) has an encoding scaled to other lengths than it "
                "is trained at. Leave it out."
            )
        return
    unknown = set(re.findall(r"\{(.*?)\}", config.init_from)) - {"seed", "position"}
    rest = config.init_from.replace("{seed}", "").replace("{position}", "")
    if unknown or "{" in rest or "}" in rest:
        raise ConfigError(
            f"`init_from` = {show(config.init_from)} is not allowed: in braces it takes {{seed}} "
            "and {position} only, which stand for those of this run. Write the path of a run "
            "folder, such as runs/demo/rope-L128-s{seed}."
        )


def origin_path(config: Config) -> Path:
    """The folder of the run that `config`, which has an `init_from`, continues."""
    assert config.init_from is not None
    path = config.init_from.replace("{seed}", str(config.seed))
    return Path(path.replace("{position}", config.position["name"]))


def check_origin(config: Config, origin: Config, folder: Path) -> None:
    """Refuse to continue `origin`, the run in `folder`, as another model than it was trained as.

    What only training has is free, such as the mask `shifted_groups`. The fractions of the splits
    are not: text that the weights were trained on would be tested.

    Raises:
        ConfigError: naming every key that differs, both values and the folder.
    """
    if origin.model.drop_position_after is not None:
        raise ConfigError(
            f"`init_from` = {show(config.init_from)} is not allowed: {folder} dropped its encoding "
            f"in training (`model.drop_position_after` = {origin.model.drop_position_after}), and "
            "such a run cannot be continued. Continue a run without."
        )
    own, there = _decisive(config), _decisive(origin)
    if config.encoding_length is not None:
        own["encoding_length"] = config.encoding_length
        there["encoding_length"] = origin.scale_length
    wrong = [
        f"`{key}` = {_shown(own, key)} here, {_shown(there, key)} there"
        for key in dict.fromkeys([*own, *there])
        if own.get(key, _ABSENT) != there.get(key, _ABSENT)
    ]
    if wrong:
        raise ConfigError(
            f"{'; '.join(wrong)}: these weights are of {folder} (`init_from`), and such settings "
            "of theirs cannot be changed. Use those of that run, or train without init_from."
        )


def _decisive(config: Config) -> dict[str, Any]:
    """What a continued run must have in common with its origin, by dotted key."""
    flat = dotted(asdict(config))
    if config.model.attention_mask == "shifted_groups":
        flat |= {"model.attention_mask": "none", "model.mask_tokens": None}
    return {key: value for key, value in flat.items() if not key.startswith(FREE)}


def _shown(flat: Mapping[str, Any], key: str) -> str:
    return show(flat[key]) if key in flat else "absent"
