"""A headless Chromium that is on the machine, and pages in it that note whatever they should not
do."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.architecture.tree import ROOT

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
# whether neither an element nor anything around it is taken out of the page
SHOWN = """(one) => {
  for (; one; one = one.parentElement) if (getComputedStyle(one).display === "none") return false;
  return true;
}"""
SCREENSHOTS = ROOT / "build" / "screenshots"


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser; skips the tests that ask for it where there is none."""
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine: the page is not tried in a browser")
    with sync_playwright() as driver:
        # containers mostly lack what Chromium's own sandbox needs; these pages are our own
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Opened:
    """A page of a report, and what it printed, asked for and did wrong since."""

    def __init__(self, browser: Browser, path: Path, *, script: bool = True) -> None:
        context = browser.new_context(java_script_enabled=script)
        self.page: Page = context.new_page()
        self.page.set_default_timeout(5000)
        self.said: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.said.append(request.url))
        self.page.on("dialog", lambda dialog: self.said.append(dialog.message))
        self.page.goto(path.as_uri())
        # the page itself is the one thing that is asked for
        assert self.said.pop(0) == path.as_uri()

    def visible(self, selector: str) -> int:
        """How many elements are displayed, lines without any height included."""
        return int(self.page.locator(selector).evaluate_all(f"all => all.filter({SHOWN}).length"))

    def column(self, section: str, number: int) -> list[str]:
        """The texts of one column of the displayed rows of a section."""
        texts = f"(rows, n) => rows.filter({SHOWN}).map((row) => row.cells[n].textContent)"
        return list(self.page.locator(f"{section} tbody tr").evaluate_all(texts, number))

    def keep(self, name: str) -> None:
        """Leave a picture of the page for people to look at."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png")
