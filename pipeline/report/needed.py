"""What a report needs of each file of a run folder, and of which types."""

import json
from collections.abc import Mapping
from types import NoneType
from typing import Any

from pipeline.errors import DataError

Kinds = Mapping[str, tuple[type, ...]]

NUMBER = (int, float)
LOSS = (int, float, NoneType)
# What the report takes from each file; a dot leads into a mapping.
CONFIG: Kinds = {"position.name": (str,), "train_length": (int,), "seed": (int,)}
PLACE: Kinds = {
    "wandb.entity": (str, NoneType), "wandb.project": (str,), "experiment": (str,),
}  # fmt: skip
SUMMARY: Kinds = {
    "parameters": (int,), "position_parameters": (int,), "attention_path": (str,),
    "tokens_per_second": NUMBER,
    "peak_memory_bytes": NUMBER, "train_seconds": NUMBER, "evaluate_seconds": LOSS,
    "final_loss": NUMBER, "corpus_sha256": (str,), "tokenizer_sha256": (str,),
}  # fmt: skip
ANCESTOR: Kinds = {
    "run": (str,), "config_hash": (str,), "step": (int,), "tokens": (int,), "train_length": (int,),
    "extension": (str,), "weights_sha256": (str,),
}  # fmt: skip
ENVIRONMENT: Kinds = {
    "python": (str,), "packages": (dict,), "platform": (str,), "cpu": (str, NoneType),
    "cores": (int, NoneType), "git": (dict, NoneType),
}  # fmt: skip
ROW: Kinds = {
    "protocol": (str,), "length": (int,), "defined": (bool,), "loss": LOSS, "documents": (int,),
    "scored_tokens": (int,), "split": (str,), "text_sha256": (str,), "seed": (int,),
    "train_length": (int,), "tokens": (int,), "precision": (str,), "corpus_sha256": (str,),
    "tokenizer_sha256": (str,), "code_sha256": (str,),
}  # fmt: skip
ROW_OF_EXTENSION: Kinds = {"extension": (str,), "extension_settings": (str,)}
ROW_OF_PROTOCOL: Mapping[str, Kinds] = {
    "suffix": {"suffix_tokens": (int,)},
    "window control": {"suffix_tokens": (int,)},
    "sliding": {"stride": (int,)},
    "per-position": {"bin": (int,), "losses": (list,)},
    "task": {
        "task": (str,), "depth": LOSS, "exact_match": LOSS, "rank": LOSS, "choices": (int,),
        "chance": NUMBER, "chance_exact_match": LOSS, "examples": (int,), "real_length": LOSS,
        "real_depth": LOSS,
    },
}  # fmt: skip
# what a row that is defined must have a number under
DEFINED: Kinds = {"loss": NUMBER}
DEFINED_TASK: Kinds = {
    "exact_match": NUMBER, "rank": NUMBER, "chance_exact_match": NUMBER, "real_length": NUMBER,
}  # fmt: skip
SHOWN: Kinds = {"shown": (int, NoneType)}
OF_LATER_VERSIONS: Kinds = {"lineage": (list,), "training_sha256": (list,)}
PROBE_ROW: Kinds = {
    "probe": (str,), "run": (str,), "seed": (int,), "length": (int,), "layer": (int,),
    "defined": (bool,), "reason": (str, NoneType), "documents": (int,), "queries": (int,),
    "split": (str,), "text_sha256": (str,), "precision": (str,), "code_sha256": (str,),
    **ROW_OF_EXTENSION,
}  # fmt: skip
PROBE_ROW_OF_KIND: Mapping[str, Kinds] = {
    "attention": {
        "head": (int,), "edges": (list,), "mass": (list, NoneType), "distance": LOSS,
        "beyond": LOSS,
    },
    "resolution": {"head": (int,), "resolution": LOSS},
    "decodability": {"target": (str,), "r2": LOSS, "control_r2": LOSS},
}  # fmt: skip
METRICS_ROW: Kinds = {"kind": (str,)}
METRICS_ROW_OF_KIND: Mapping[str, Kinds] = {
    "train": {"tokens": (int,), "loss": LOSS},
    "evaluation": {"protocol": (str,), "length": (int,), "tokens": (int,), "loss": LOSS},
    "spike": {"step": (int,), "loss": NUMBER},
}


def later(found: Mapping[str, Any]) -> Kinds:
    """What is needed of the keys that files written by older versions do without."""
    return {key: kind for key, kind in OF_LATER_VERSIONS.items() if key in found}


def need(found: Mapping[str, Any], needed: Kinds, where: str) -> None:
    """Refuse a mapping that lacks a needed key or holds another type under it.

    Raises:
        DataError: names `where`, the key, and what it must hold.
    """
    for key, kinds in needed.items():
        value: Any = found
        for name in key.split("."):
            if not isinstance(value, Mapping) or name not in value:
                raise DataError(
                    f"{where}: has no `{key}`; the run folder is damaged. Restore the file, or "
                    "delete the folder and run again"
                )
            value = value[name]
        if not isinstance(value, kinds):
            allowed = " or ".join("null" if kind is NoneType else kind.__name__ for kind in kinds)
            raise DataError(
                f"{where}: `{key}` = {json.dumps(value, default=str)[:80]} must be {allowed}; the "
                "run folder is damaged. Restore the file, or delete the folder and run again"
            )
