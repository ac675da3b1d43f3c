"""Facts are read from the files of encodings as the classes have them, and hold."""

import subprocess
import sys

import pytest

from pipeline.positions.base import Shape
from pipeline.positions.declared import declared
from pipeline.positions.facts import FAMILIES
from pipeline.positions.registry import build, names, position_class
from tests.architecture.tree import ROOT

LENGTHS = (16, 48)


@pytest.mark.parametrize("name", names())
def test_every_encoding_has_facts_that_can_be_read_and_a_family(name: str) -> None:
    assert declared(name) == position_class(name).facts
    assert position_class(name).facts.family in FAMILIES


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("length", LENGTHS)
def test_an_encoding_is_defined_as_far_as_it_declares(name: str, length: int) -> None:
    shape = Shape(width=64, layers=1, heads=2, train_length=length, vocab=16)
    stated = position_class(name).facts.max_length
    expected = {"unbounded": None, "train_length": length}.get(str(stated), stated)
    assert build({"name": name}, shape).max_length == expected


@pytest.mark.parametrize("name", ["base", "registry", "nothing", "../positions/rope", "", "a b"])
def test_what_is_no_encoding_declares_nothing(name: str) -> None:
    assert declared(name) is None


def test_facts_are_read_without_torch() -> None:
    code = (
        "import sys; from pipeline.positions.declared import declared\n"
        "assert declared('rope').family == 'rotation'; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
