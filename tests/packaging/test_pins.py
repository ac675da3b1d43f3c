"""The installed libraries are the pinned ones."""

import tomllib
from importlib.metadata import version

from tests.architecture.tree import ROOT


def test_every_requirement_is_pinned_exactly_and_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    pairs = [pin.split("==") for pin in pins]
    assert all(len(pair) == 2 for pair in pairs), pins
    # A build may add its own mark, as in 2.13.0+cpu.
    installed = {name: version(name).partition("+")[0] for name, _ in pairs}
    assert installed == dict(pairs)
