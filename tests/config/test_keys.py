"""Every key is listed, commented and protected against typing errors."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from pipeline.config import Config, load, public
from pipeline.config.dotted import dotted
from pipeline.config.groups import GROUPS, configs_folder
from pipeline.config.layers import override_entries
from pipeline.config.schema import NAMED_GROUPS
from pipeline.config.values import settings
from pipeline.errors import ConfigError
from tests.config.conftest import Write

CONFIGS = configs_folder()
BASE = CONFIGS / "base.yaml"
SECTIONS = ["model", "data", "optimizer", "trainer", "evaluate", "wandb"]
KEYS = [*settings(), *dict.fromkeys([*SECTIONS, *GROUPS, "sweep"])]


def typos(key: str) -> list[str]:
    """A deletion, a swap, a doubling and a substitution at each place, and one capital letter."""
    parent, dot, leaf = key.rpartition(".")
    spots = range(len(leaf))
    found = [leaf[:i] + leaf[i + 1 :] for i in spots]
    found += [leaf[:i] + leaf[i : i + 2][::-1] + leaf[i + 2 :] for i in spots]
    found += [leaf[:i] + leaf[i] + leaf[i:] for i in spots]
    found += [leaf[:i] + "x" + leaf[i + 1 :] for i in spots]
    found.append(leaf.capitalize())
    if dot:
        found += [f"{name}.{leaf}" for name in typos(parent)]
        return [name if "." in name else f"{parent}.{name}" for name in found]
    return found


def cases() -> Iterator[tuple[str, str]]:
    for key in KEYS:
        for typo in dict.fromkeys(typos(key)):
            if typo not in KEYS and typo.strip("."):
                yield key, typo


def test_every_one_edit_typo_is_refused_with_the_right_suggestion() -> None:
    count = 0
    for key, typo in cases():
        with pytest.raises(ConfigError, match="is not a setting") as caught:
            override_entries([f"{typo}=1"], CONFIGS)
        hint = str(caught.value).partition("Did you mean")[2]
        assert f"`{key}`" in hint, f"{typo}: {caught.value}"
        count += 1
    assert count > 2000


@pytest.mark.parametrize("key", sorted(settings()))
def test_a_typo_in_a_file_is_refused_with_file_and_line(key: str, write: Write) -> None:
    *parents, leaf = key.split(".")
    text = "".join(f"{'  ' * i}{name}:\n" for i, name in enumerate([*parents, leaf + "x"]))
    path = write(f"# first line\n{text.rstrip()} 1\n")
    with pytest.raises(ConfigError, match=f"Did you mean .*`{key}`") as caught:
        load(path, [])
    assert str(caught.value).startswith(f"{path}:{2 + len(parents)}: `{key}x` is not a setting")


@pytest.mark.parametrize(
    ("position", "key"), [("rope", "base"), ("t5", "buckets"), ("t5", "max_distance")]
)
def test_a_typo_of_a_position_setting_is_refused(position: str, key: str) -> None:
    for typo in dict.fromkeys(typos(key)[: 2 * len(key) - 1]):
        with pytest.raises(
            ConfigError, match=f"is not used by position '{position}'; it takes"
        ) as e:
            load(BASE, [f"position={position}", f"position.{typo}=1"])
        assert f"Did you mean `{key}`" in str(e.value)


def test_the_error_of_an_unknown_key_never_shows_the_value() -> None:
    with pytest.raises(ConfigError, match="run folders are shared") as caught:
        load(BASE, ["wandb.api_key=hunter2hunter2"])
    assert "hunter2" not in str(caught.value)


def test_base_yaml_holds_every_key_with_the_default_of_the_schema() -> None:
    assert load(BASE, []) == [Config()]
    listed = yaml.safe_load(BASE.read_text())
    assert listed.pop("sweep") == {}
    assert set(dotted(listed)) == {*settings(), *NAMED_GROUPS}


def test_every_line_of_base_yaml_is_commented() -> None:
    lines = [line for line in BASE.read_text().splitlines() if line.strip()]
    assert [line for line in lines if "#" not in line and line.strip(" :") not in SECTIONS] == []


@pytest.mark.parametrize("path", sorted((CONFIGS / "model").glob("*.yaml")), ids=lambda p: p.stem)
def test_a_model_file_replaces_every_key_of_the_model(path: Path) -> None:
    assert list(yaml.safe_load(path.read_text())) == list(public(Config())["model"])


@pytest.mark.parametrize("path", sorted((CONFIGS / "data").glob("*.yaml")), ids=lambda p: p.stem)
def test_a_data_file_replaces_every_key_of_the_text(path: Path) -> None:
    text = [key for key in public(Config())["data"] if key != "mix"]
    assert list(yaml.safe_load(path.read_text())) == text
