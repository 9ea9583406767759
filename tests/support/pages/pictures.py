"""The documentation's pictures of the page: SVG, which is text, and held to what the page shows.

    RTOLAP_TEST_PICTURES=docs/pictures pytest tests/integration/airflow -k "page or fleet or subscriptions"

writes them anew. Each carries the labels of its view: tabs, headings of columns, buttons outside of tables.
"""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from playwright.sync_api import Page

from tests.support.paths import PROJECT

FOLDER = PROJECT / "docs" / "pictures"
_SVG = "{http://www.w3.org/2000/svg}"
_SEPARATOR = "; "
_UNIQUE = re.compile(r"(?<=[a-z])_[0-9a-f]{6}\b")  # what tests make names unique by
_AS_SVG = Path(__file__).with_name("picture.js").read_text()
_LABELS = """
() => [...document.querySelectorAll("[role=tab], [role=tabpanel] :is(th, button:not(table button))")]
  .filter((each) => each.closest("[hidden]") === null)
  .map((each) => each.textContent.trim().replace(/\\s+/g, " "))
  .filter((text) => text !== "")
"""


def labels_of(page: Page) -> tuple[str, ...]:
    """Return the labels that the page shows, in their order."""
    found: list[str] = page.evaluate(_LABELS)
    return tuple(_UNIQUE.sub("", each) for each in found)


def svg_of(page: Page, title: str) -> str:
    """Return what the window shows as an SVG with the title and the labels."""
    drawn: str = page.evaluate(_AS_SVG, [title, _SEPARATOR.join(labels_of(page))])
    return _UNIQUE.sub("", drawn)


def labels_in(picture: Path) -> tuple[str, ...]:
    """Return the labels that a picture carries; none where there is no picture."""
    if not picture.exists():
        return ()
    described = ElementTree.parse(picture).getroot().findtext(f"{_SVG}desc") or ""
    return tuple(described.split(_SEPARATOR))
