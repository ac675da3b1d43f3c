"""Names become folders, addresses and words of a shell: only harmless ones are taken, and nothing
is written where a name leads."""

import os
import re
from pathlib import Path

import pytest

from pipeline.config import load
from pipeline.config.groups import GROUPS, Step, configs_folder
from pipeline.config.layers import override_entries
from pipeline.config.schema import NAME, Config
from pipeline.config.values import convert, settings
from pipeline.data.sources import find_source
from pipeline.errors import ConfigError
from pipeline.launch.cli import main
from pipeline.record.folder import NAME as RUN_NAME
from pipeline.record.folder import RunFolder, run_name

BASE = configs_folder() / "base.yaml"
HOSTILE = {
    "climbing": "../outside",
    "climbing within": "a/../../outside",
    "absolute": "/tmp/outside",
    "of a home": "~/outside",
    "a folder": "a/b",
    "the parent": "..",
    "here": ".",
    "hidden": ".hidden",
    "an option": "-rf",
    "NUL": "a\0b",
    "a line more": "a\nb",
    "a line's end": "rope\n",
    "a tab": "a\tb",
    "a command": "$(touch outside)",
    "a command in ticks": "`touch outside`",
    "two commands": "a;touch outside",
    "a pipe": "a|tee outside",
    "a variable": "$HOME",
    "a pattern": "*",
    "a space": "a b",
    "quotes": "a'b",
    "a backslash": "a\\b",
    "a drive": "c:outside",
    "long": "a" * 300,
    "nothing": "",
    "Cyrillic rope": "\u0433\u043e\u0440\u0435",
    "Cyrillic o in rope": "r\u043epe",
    "full width": "\uff52ope",
    "an accent": "ropé",
    "invisible": "ro\u200bpe",
    "from right to left": "\u202eepor",
    "a dot that is none": "\u2024\u2024/outside",
    "a digit that is none": "\u0661",
    "a surrogate": "a\udc80",
}
KEYS = ("experiment", "wandb.project", "wandb.entity", *GROUPS)


def quoted(name: str) -> str:
    """A name as YAML that stands for it exactly."""
    escaped = "".join(
        c if c.isascii() and c.isprintable() and c not in '"\\' else f"\\u{ord(c):04x}"
        for c in name
    )
    return f'"{escaped}"'


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An own folder in an own folder: what is written beside it is seen."""
    own = tmp_path / "parent" / "own"
    own.mkdir(parents=True)
    monkeypatch.chdir(own)
    return own


@pytest.mark.parametrize("key", KEYS)
def test_a_setting_that_is_a_name_takes_no_hostile_one(key: str) -> None:
    for name in HOSTILE.values():
        with pytest.raises(ConfigError, match=f"`{key}`"):
            for entry in override_entries([f"{key}={quoted(name)}"], configs_folder()):
                # what is not the name of a file is checked where the setting is
                assert isinstance(entry, Step) and key in settings()
                convert(settings()[key], entry.value)


def test_a_run_of_a_hostile_name_is_not_made(here: Path) -> None:
    config = load(BASE, ["runs=runs"])[0]
    for name in HOSTILE.values():
        with pytest.raises(ConfigError, match="run name"):
            RunFolder.create(config, name=name)
    assert listing(here.parent) == ["own"]


@pytest.mark.parametrize("what", HOSTILE)
def test_no_hostile_name_matches_the_patterns(what: str) -> None:
    assert not re.fullmatch(NAME, HOSTILE[what])
    assert not RUN_NAME.fullmatch(HOSTILE[what])


@pytest.mark.parametrize("name", ["a", "0", "rope", "a.b-c_d", "0.5", "a" * 64])
def test_harmless_names_are_taken(name: str) -> None:
    assert re.fullmatch(NAME, name) and RUN_NAME.fullmatch(name)


@pytest.mark.parametrize("what", ["climbing", "absolute", "a command", "a line more", "long"])
def test_a_command_with_a_hostile_name_writes_nothing(
    what: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for key in ("experiment", "position"):
        assert main(["train", str(BASE), f"{key}={quoted(HOSTILE[what])}"]) == 2
        assert "Traceback" not in capsys.readouterr().err
    assert listing(here.parent) == ["own"]
    assert not Path("/tmp/outside").exists()


SWEPT = ("data.source", "runs", "data.prepared", "data.text_key", "init_from")


@pytest.mark.parametrize("axis", SWEPT)
def test_a_path_that_is_swept_over_makes_a_harmless_name(axis: str) -> None:
    """Such values are paths, and part of the name of a run all the same."""
    names = set()
    paths = ["../outside", "/tmp/outside", "$(touch outside)", "a b", "x" * 300, "..", "é", "a'b"]
    for path in paths:
        config = Config()
        section, dot, leaf = axis.partition(".")
        setattr(getattr(config, section) if dot else config, leaf if dot else section, path)
        name = run_name(config, [axis])
        assert RUN_NAME.fullmatch(name) and name not in (".", "..") and os.sep not in name
        names.add(name)
    assert len(names) == len(paths)


def test_the_folder_of_what_is_prepared_is_named_harmlessly(here: Path) -> None:
    for name in ("$(id)", "a b", "-rf", "..x", "é", "a\nb", "x" * 200):
        path = here / f"{name}.txt"
        path.write_text("text")
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", find_source(str(path)).name)
