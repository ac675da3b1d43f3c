"""Files that are not what they seem are refused, with file and line."""

import os
from pathlib import Path

import pytest
import yaml

from pipeline.config import load
from pipeline.config.strict_yaml import dump, read, scalar
from pipeline.errors import ConfigError
from tests.config.conftest import Write


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("seed: 1\nruns: a\nseed: 2\n", 3, "`seed` is given twice .*:1"),
        ("model:\n  width: 64\n  width: 128\n", 3, "`width` is given twice .*:2"),
        ("sweep: {seed: [1], seed: [2]}\n", 1, "`seed` is given twice"),
        ("model:\n\twidth: 64\n", 2, "Indent with spaces"),
        ("- seed\n- 1\n", 1, "must be a mapping of settings .* not a list"),
        ("just text\n", 1, "must be a mapping of settings .* not a text"),
        ("seed: !!int 5\n", 1, "the tag .* is not supported"),
        ("seed: !!python/object/apply:os.system ['echo']\n", 1, "the tag .* is not supported"),
        ("seed: 1\nmodel: &m\n  width: 64\n", 2, "anchors"),
        ("seed: *m\n", 1, "anchors"),
        ("seed: 1\n---\nseed: 2\n", 2, "another document"),
        ("seed: 1\nruns: 'open\n", 3, "not valid YAML"),
        ("seed: 1\nruns: @a\n", 2, "not valid YAML"),
        ("? [a, b]\n: 1\n", 1, "a key must be a name"),
        ("seed: 1\nruns: a\x07b\n", 2, "#x0007 is not allowed"),
        (b"\xef\xbb\xbfseed: 1\n", 1, "byte order mark"),
        ("seed: 1\n".encode("utf-16"), 1, "byte order mark"),
        (b"seed: 1\nruns: caf\xe9\n", 2, "byte 0xe9 is not UTF-8"),
    ],
)
def test_a_malformed_file_is_refused_with_its_line(
    text: str | bytes, line: int, words: str, write: Write
) -> None:
    path = write(text)
    with pytest.raises(ConfigError, match=words) as caught:
        load(path, [])
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("text", ["", "# only a comment\n", "{}\n", "---\n"])
def test_a_file_without_settings_is_refused(text: str, write: Write) -> None:
    with pytest.raises(ConfigError, match="holds no settings"):
        load(write(text), [])


def test_deep_nesting_is_refused(write: Write) -> None:
    with pytest.raises(ConfigError, match="run.yaml:1: .*nested too deeply"):
        load(write("seed: " + "[" * 20_000), [])


def test_what_is_no_small_regular_file_is_refused(write: Write, tmp_path: Path) -> None:
    write("seed: 1", "other.yaml")
    with pytest.raises(ConfigError, match="does not exist. In that folder: other.yaml"):
        load(tmp_path / "missing.yaml", [])
    with pytest.raises(ConfigError, match="is not a regular file"):
        load(tmp_path, [])
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(ConfigError, match="is not a regular file"):
        load(tmp_path / "pipe.yaml", [])
    with pytest.raises(ConfigError, match="2000005 bytes is too large"):
        load(write("runs:" + "a" * 2_000_000), [])
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / ("x" * 300), [])


@pytest.mark.parametrize(
    ("text", "value", "ambiguous"),
    [
        ("1e-3", 1e-3, False),
        ("1E5", 1e5, False),
        (".5", 0.5, False),
        ("-.5e+2", -50.0, False),
        ("5", 5, False),
        ("+5", 5, False),
        ("0", 0, False),
        ("true", True, False),
        ("null", None, False),
        ("~", None, False),
        ("none", "none", False),
        ("None", "None", False),
        ("nan", "nan", False),
        ("no", "no", True),
        ("Yes", "Yes", True),
        ("on", "on", True),
        ("off", "off", True),
        ("010", "010", True),
        ("-07", "-07", True),
        ("1_000", "1_000", True),
        ("0x1F", "0x1F", True),
        ("0b1", "0b1", True),
        ("1:30", "1:30", True),
        ("2024-01-01", "2024-01-01", True),
    ],
)
def test_a_scalar_has_one_meaning(text: str, value: object, ambiguous: bool) -> None:
    found = scalar(text)
    assert found == (value, ambiguous)
    assert type(found[0]) is type(value)


NASTY = [
    "no", "off", "010", "1e-3", "1_000", "0x1F", "1:30", "2024-01-01", "null", "~", "true", "7",
    ".nan", "-", "a: b", "a #b", "'", '"', "@x", "%", "[a", "{a}", " a", "a ", "é ü", "\u2028",
    "😀", "${oc.env:HOME}", "<<", "=", "!!str", "*a", "&a", "?", "a\\b", "\ufeff", "x" * 300, "",
]  # fmt: skip


def test_every_text_survives_being_written_for_either_generation_of_readers(write: Write) -> None:
    values = {f"k{i}": text for i, text in enumerate(NASTY)} | {"list": NASTY, "f": 1e-8, "n": None}
    written = dump(values)
    assert read(write(written)).plain() == values
    assert yaml.safe_load(written) == values
