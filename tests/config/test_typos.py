"""Names with one wrong letter: of every key and name that a user writes, and of every key that
DeepSpeed is told, which would ignore one that it does not know."""

import random
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.config.dotted import dotted
from pipeline.config.groups import GROUPS, configs_folder, names, own_settings
from pipeline.config.layers import file_entries, override_entries
from pipeline.config.schema import NAMED_GROUPS, TrainerConfig
from pipeline.config.strict_yaml import Located
from pipeline.errors import ConfigError
from tests.config.conftest import Write

CONFIGS = configs_folder()
LISTED = list(dotted(yaml.safe_load((CONFIGS / "base.yaml").read_text())))
LETTERS = string.ascii_lowercase + string.digits + "_"
KINDS = ("deletion", "insertion", "substitution", "transposition")


def edited(name: str, kind: str, draw: random.Random) -> str:
    """`name` with one letter wrong, at a place that is drawn."""
    place = draw.randrange(len(name) - (kind == "transposition"))
    before, letter, after = name[:place], name[place], name[place + 1 :]
    if kind == "deletion":
        return before + after
    if kind == "transposition":
        return before + after[0] + letter + after[1:]
    other = draw.choice([x for x in LETTERS if x != letter])
    return before + other + (letter if kind == "insertion" else "") + after


def typos_of(name: str, number: int = 2) -> Iterator[str]:
    """Some of every kind, the same each time; none is the name itself."""
    draw = random.Random(name)
    for kind in KINDS:
        for _ in range(number):
            found = edited(name, kind, draw)
            if found.strip(".") and found != name:
                yield found


CASES = [
    (key, typo) for key in LISTED for typo in dict.fromkeys(typos_of(key)) if typo not in LISTED
]


def refusal(error: ConfigError, *right: str) -> str:
    """The place that an error names, once it is clear that it suggests one of what is right."""
    assert error.exit_code == 2
    place, found, hint = str(error).partition("Did you mean ")
    assert found and any(f"`{key}`" in hint for key in right), str(error)
    return place


def parts_meant(key: str, typo: str) -> list[str]:
    """What a file should have said where it first goes wrong: a section of the key, or all."""
    meant = key.split(".")
    same = [a == b for a, b in zip(meant, typo.split("."), strict=False)]
    return [".".join(meant[:end]) for end in range(same.index(False) + 1, len(meant) + 1)]


def test_there_are_typos_of_every_kind_of_every_key() -> None:
    assert len(CASES) > 300
    assert {key for key, _ in CASES} == set(LISTED) - {"sweep"}


def test_a_typo_of_any_key_typed_is_refused_with_the_right_one() -> None:
    for key, typo in CASES:
        with pytest.raises(ConfigError) as caught:
            override_entries([f"{typo}=1"], CONFIGS)
        place = refusal(caught.value, key)
        assert place.startswith("command line: `"), typo


def test_a_typo_of_any_key_in_a_file_is_refused_with_its_line(write: Write) -> None:
    for key, typo in CASES:
        *parents, leaf = typo.split(".")
        if not all((*parents, leaf)):
            continue
        lines = [f"{'  ' * depth}{name}:\n" for depth, name in enumerate(parents)]
        path = write(f"# one\n{''.join(lines)}{'  ' * len(parents)}{leaf}: 1\n")
        with pytest.raises(ConfigError) as caught:
            file_entries(path, CONFIGS)
        place = refusal(caught.value, *parts_meant(key, typo))
        within = range(2, 3 + len(parents))
        assert place.startswith(tuple(f"{path}:{line}: `" for line in within)), place


@pytest.mark.parametrize("group", GROUPS)
def test_a_typo_of_any_name_is_refused_with_the_right_one(group: str) -> None:
    known = names(CONFIGS, group)
    for name in known:
        for typo in typos_of(name, number=1):
            if typo in known or not typo.strip("_.-"):
                continue
            with pytest.raises(ConfigError) as caught:
                override_entries([f"{group}='{typo}'"], CONFIGS)
                own_settings(CONFIGS, group, Located(typo, "command line"))
            assert str(caught.value).startswith(f"command line: `{group}` = '{typo}'")
            # of two letters one is too little to guess by; all names are listed
            assert name in str(caught.value).partition("Allowed: ")[2]
            if len(name) > 2:
                refusal(caught.value, name)


def deepspeed_configs() -> Iterator[dict[str, Any]]:
    from pipeline.training.strategy import deepspeed_config

    for precision in ("fp32", "bf16"):
        for stage in (1, 2, 3):
            yield deepspeed_config(TrainerConfig(precision=precision, zero_stage=stage))


class Noting(dict[str, Any]):
    """Settings that note which of their keys are asked for."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return super().__getitem__(key)

    def __copy__(self) -> "Noting":
        return self


def unread(config: dict[str, Any]) -> set[str]:
    """The dotted keys that DeepSpeed never looks at; it refuses some unknown ones by itself."""
    from deepspeed.runtime.config import DeepSpeedConfig

    inner = {k: Noting(v) for k, v in config.items() if isinstance(v, dict)}
    outer = Noting({**config, **inner})
    DeepSpeedConfig(outer)
    found = {key for key in outer if key not in outer.asked}
    for key, part in inner.items():
        # those of ZeRO go to a model that takes no other: it would have raised
        if key != "zero_optimization":
            found |= {f"{key}.{name}" for name in part if name not in part.asked}
    return found


def misspelt(config: dict[str, Any], key: str, typo: str) -> dict[str, Any]:
    """A copy with a dotted key under another name."""
    top, dot, leaf = key.partition(".")
    if not dot:
        return {typo if name == top else name: value for name, value in config.items()}
    return {**config, top: misspelt(config[top], leaf, typo.partition(".")[2])}


def test_deepspeed_reads_every_key_that_it_is_told() -> None:
    told = list(deepspeed_configs())
    assert len(told) == 6
    for config in told:
        assert unread(config) == set()


def test_a_typo_of_a_key_for_deepspeed_would_be_noticed() -> None:
    """One that it would ignore is unread, and one in a part that it checks is refused by it."""
    config = list(deepspeed_configs())[-1]
    for key in dotted(config):
        typo = f"{key}x"
        if key == "train_micro_batch_size_per_gpu" or key.startswith("zero_optimization."):
            with pytest.raises(Exception, match="batch|zero_optimization|stagex"):
                unread(misspelt(config, key, typo))
        else:
            assert unread(misspelt(config, key, typo)) == {typo}


def test_every_file_that_names_settings_is_tried() -> None:
    tried = {path.parent.name for path in Path(CONFIGS).glob("*/*.yaml")}
    assert set(NAMED_GROUPS) < set(GROUPS) <= tried
