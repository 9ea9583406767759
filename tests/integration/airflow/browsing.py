"""What tests of the page do in a browser: pictures, and the rules for who does not see it.

Pictures of its views are kept in `RTOLAP_TEST_PICTURES`, if that names a folder.
"""

from __future__ import annotations

import os
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

CHROMIUM = "/usr/bin/chromium"
SHOWN_MS = 30_000.0
WINDOW = {"width": 1024, "height": 768}
MARKUP = "<img src=x onerror=document.title='hurt'>"
_SERIOUS = ("serious", "critical")


def picture(page: Page, name: str) -> None:
    folder = os.environ.get("RTOLAP_TEST_PICTURES")
    if folder:
        page.screenshot(path=Path(folder) / f"{name}.png")


def serious_in(page: Page) -> list[tuple[str, str]]:
    """Return what of the shown view is in the way of a screen reader, by axe's rules."""
    found = Axe().run(page, context="[role=tabpanel]").response["violations"]
    return [(each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in _SERIOUS]


def assert_is_text(page: Page) -> None:
    """Assert that MARKUP, which is somewhere on the page, has become no element."""
    assert page.locator("img[src=x]").count() == 0
    assert page.title() != "hurt"
