"""A label says all settings of an extension, and no two settings have the same one."""

from typing import Any

import pytest

from pipeline.config.label import file_name, label, own_settings, shown


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (4.0, "4"), (4, "4"), (0.5, "0.5"), (1e-05, "1e-05"), (1e30, "1e+30"), (True, "true"),
        (None, "null"), ("code", "code"), ("a b", '"a b"'), ("a=b", '"a=b"'), ("", '""'),
        ([1.0, 2.5], "[1,2.5]"), (-3, "-3"),
    ],
)  # fmt: skip
def test_a_value_is_one_word_or_quoted(value: object, text: str) -> None:
    assert shown(value) == text


def test_a_label_is_the_name_and_every_setting() -> None:
    yarn = {"name": "yarn", "form": "code", "scale": 4.0}
    assert (label(yarn), own_settings(yarn)) == ("yarn form=code scale=4", "form=code scale=4")
    assert (label({"name": "none"}), own_settings({"name": "none"})) == ("none", "")


def test_different_settings_have_different_files() -> None:
    settings: list[dict[str, Any]] = [
        {"a": "b"}, {"a": "b c=d"}, {"a": "b", "c": "d"}, {"a": "b-c=d"}, {"a": "x" * 200},
        {"a": "x" * 201}, {"a": "é"}, {"a": "../b"}, {"a1": 2}, {"a": 12},
    ]  # fmt: skip
    labels = [label({"name": "made", **one}) for one in settings]
    names = [file_name(one) for one in labels]
    assert len(set(labels)) == len(settings)
    assert all(len(name) <= 100 and "/" not in name and " " not in name for name in names)
    assert len(set(names)) == len(settings)
