"""What tests of the page do in a browser: pictures, and the rules for who does not see it.

Pictures of its views are written into `RTOLAP_TEST_PICTURES`, if that names a folder: see
`tests.support.pages.pictures`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.support.pages import pictures
from tests.support.pages.pictures import FOLDER, labels_in, labels_of, svg_of
from tests.support.waiting import until

CHROMIUM = "/usr/bin/chromium"
SHOWN_MS = 30_000.0
WINDOW = {"width": 1024, "height": 768}
MARKUP = "<img src=x onerror=document.title='hurt'>"
COLOUR_SCHEMES: tuple[Literal["dark"], Literal["light"]] = ("dark", "light")
_SERIOUS = ("serious", "critical")


def picture(page: Page, name: str, title: str = "") -> None:
    """Write a picture of the window. One with a title is in the documentation, and has to show what the page
    does."""
    folder = os.environ.get("RTOLAP_TEST_PICTURES")
    if folder:
        page.screenshot(path=Path(folder) / f"{name}.png")
        if title:
            (Path(folder) / f"{name}.svg").write_text(svg_of(page, title))
    elif title:
        kept = labels_in(FOLDER / f"{name}.svg")

        def differs() -> str:
            return f"docs/pictures/{name}.svg has {kept}, the page {labels_of(page)}: see {pictures.__name__}"

        until(lambda: labels_of(page) == kept, differs)


def serious_in(page: Page) -> list[tuple[str, str]]:
    """Return what of the shown view is in the way of a screen reader, by axe's rules."""
    found = Axe().run(page, context="[role=tabpanel]").response["violations"]
    return [(each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in _SERIOUS]


def assert_accessible(page: Page, name: str = "") -> None:
    """Assert that nothing serious is in the way of who reads the shown view, in light and in dark colours.

    `name`: of the pictures of both, if they are wanted.
    """
    for scheme in COLOUR_SCHEMES:
        page.emulate_media(color_scheme=scheme)
        expect(page.locator("html")).to_have_class(re.compile(rf"\b{scheme}\b"))
        assert serious_in(page) == [], scheme
        if name:
            picture(page, f"{name}-{scheme}")


def assert_is_text(page: Page) -> None:
    """Assert that MARKUP, which is somewhere on the page, has become no element."""
    assert page.locator("img[src=x]").count() == 0
    assert page.title() != "hurt"
