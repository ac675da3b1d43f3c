"""One value at a time: it is held exactly as written, or refused by name."""

import math
from dataclasses import replace
from typing import Any

import pytest

from pipeline.config import Config, load, validate
from pipeline.config.groups import configs_folder
from pipeline.config.strict_yaml import read_value
from pipeline.config.values import convert, settings
from pipeline.errors import ConfigError
from tests.config.conftest import Write

BASE = configs_folder() / "base.yaml"
TABLE = settings()
NUMBERS = [key for key, setting in TABLE.items() if setting.kind in (int, float)]
INTEGERS = [key for key in NUMBERS if TABLE[key].kind is int]
TEXTS = [key for key, setting in TABLE.items() if setting.kind is str]


def refuse(key: str, text: str) -> str:
    """Return the error that one value on the command line gives."""
    with pytest.raises(ConfigError) as caught:
        convert(TABLE[key], read_value(text, key, "command line"))
    return str(caught.value)


def refused(overrides: list[str], *words: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(BASE, overrides)
    for word in words:
        assert word in str(caught.value)
    return str(caught.value)


NO_NUMBERS = [
    ".nan", "nan", "NaN", ".inf", "-.inf", "inf", "1e999", "-1", "1e30", "9" * 40, "true", "no",
    "010", "0x10", "1_0", "1:30", "2024-01-01", "x", "'7'", "[1]", "{a: 1}",
]  # fmt: skip


@pytest.mark.parametrize("key", NUMBERS)
def test_a_number_is_finite_in_range_and_nothing_else(key: str) -> None:
    for text in NO_NUMBERS:
        message = refuse(key, text)
        assert message.startswith(f"command line: `{key}` = ")
        assert "takes" in message


@pytest.mark.parametrize("key", INTEGERS)
def test_an_integer_is_not_given_as_a_float(key: str) -> None:
    assert "without decimal point" in refuse(key, "2.0")


@pytest.mark.parametrize("key", [key for key in NUMBERS if TABLE[key].allowed.low not in (0, None)])
def test_zero_is_refused_where_it_means_nothing(key: str) -> None:
    assert f"`{key}` = 0 is not allowed" in refuse(key, "0")


@pytest.mark.parametrize("key", [key for key in TABLE if not TABLE[key].optional])
def test_null_is_refused_where_it_means_nothing(key: str) -> None:
    assert f"`{key}` = null is not allowed" in refuse(key, "null")


@pytest.mark.parametrize("key", TEXTS)
def test_text_that_reads_as_something_else_needs_quotes(key: str) -> None:
    for text in ["7", "1e-3", "true", "no", "on", "010", "1:30", "[a]", "''"]:
        message = refuse(key, text)
        assert message.startswith(f"command line: `{key}` = ")
        assert "takes" in message


def test_quoted_text_is_exact() -> None:
    for text in ("no", "010", "1e-3", "7", "null"):
        assert load(BASE, [f"data.source='{text}'"])[0].data.source == text
    assert load(BASE, ["wandb.mode=off"])[0].wandb.mode == "off"


@pytest.mark.parametrize("text", ["no", "off", "1", "0", "yes", "'true'", "null"])
def test_true_and_false_are_the_only_booleans(text: str) -> None:
    refused([f"model.tied_embeddings={text}"], "`model.tied_embeddings` = ", "true or false")


def test_the_trap_is_refused_in_a_file_too(write: Write) -> None:
    path = write("seed: 1\nexperiment: no\n")
    with pytest.raises(ConfigError, match="`experiment` = 'no' is ambiguous") as caught:
        load(path, [])
    assert str(caught.value).startswith(f"{path}:2: ")


def test_a_number_may_be_written_as_an_integer_and_is_a_float() -> None:
    rate = load(BASE, ["optimizer.gradient_clip=2"])[0].optimizer.gradient_clip
    assert (rate, type(rate)) == (2.0, float)
    assert load(BASE, ["optimizer.learning_rate=3e-4"])[0].optimizer.learning_rate == 3e-4


@pytest.mark.parametrize(
    "text", ["64", "[]", "[64.0]", "[true]", "['64']", "[064]", "[0]", "[-1]", "[.nan]", "[[64]]"]
)
def test_eval_lengths_are_a_list_of_positive_integers(text: str) -> None:
    refused([f"eval_lengths={text}"], "`eval_lengths` = ", "takes a list, each item an integer")


@pytest.mark.parametrize(
    "name", ["../x", "/x", "a/b", "A", "-a", ".a", "a b", "a$b", "a" * 65, "é", "a\u200b", "а"]
)
@pytest.mark.parametrize("key", ["experiment", "position"])
def test_a_name_cannot_leave_its_folder(key: str, name: str) -> None:
    refused([f"{key}='{name}'"], f"`{key}` = ")


def test_control_characters_are_refused_in_paths() -> None:
    refused(['runs="a\\nb"'], "`runs` = 'a\\nb' is not allowed", "no control characters")
    refused(['runs="a\\0b"'], "`runs` = ")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("seed", True), ("seed", "7"), ("seed", 7.0), ("seed", math.nan), ("seed", None),
        ("train_length", 0), ("experiment", "No"), ("experiment", 7), ("runs", ""),
        ("eval_lengths", []), ("eval_lengths", (64,)), ("eval_lengths", [64.0]),
        ("position", {"name": "../x"}), ("position", {}), ("position", {"name": None}),
        ("position", {"name": "rope", "base": math.nan}),
        ("position", {"name": "rope", "base": None}),
    ],
)  # fmt: skip
def test_validate_checks_a_config_that_was_made_in_code(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=key):
        validate(replace(Config(), **{key: value}))


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 0.0, 10**400, "1e-3", True])
def test_validate_checks_nested_values(value: Any) -> None:
    config = Config()
    config.optimizer.learning_rate = value
    with pytest.raises(ConfigError, match="`optimizer.learning_rate` = .* above 0 to 10"):
        validate(config)
