"""Every promise of the README names tests that are there."""

import re

from tests.distributed.ranks import ROOT


def promises() -> dict[str, list[str]]:
    """The tests that hold each promise, as the README names them."""
    table = (ROOT / "README.md").read_text().partition("## What we promise\n")[2]
    rows = re.findall(
        r"^\| (P\d+) \| [^|]+ \| ([^|]+) \|$", table.partition("\n## ")[0], re.MULTILINE
    )
    return {name: re.findall(r"`([^`]+)`", tests) for name, tests in rows}


def test_every_promise_names_tests_that_are_there() -> None:
    assert list(promises()) == [f"P{number}" for number in range(1, 13)]
    for name, tests in promises().items():
        assert tests, name
        for test in tests:
            path, _, function = test.partition("::")
            text = (ROOT / "tests" / path).read_text()
            assert re.search(rf"^def {function}\(", text, re.MULTILINE), f"{name}: {test}"
