"""The documentation's pictures of the page are text, need nothing else, and stand where a reader looks."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.pages.pictures import FOLDER, labels_in
from tests.support.paths import PROJECT

PICTURES = sorted(FOLDER.glob("*.svg"))
BYTES_MAX = 120_000


@pytest.mark.parametrize("picture", PICTURES, ids=[picture.stem for picture in PICTURES])
def test_a_picture_is_small_well_formed_and_leads_nowhere(picture: Path) -> None:
    text = picture.read_text()
    assert len(text) < BYTES_MAX
    for element in ElementTree.fromstring(text).iter():
        assert element.tag.rpartition("}")[2] not in ("script", "img", "link", "iframe")
        assert not any(name.startswith("on") or name.endswith("href") for name in element.attrib)
    assert not re.search(r"url\((?!['\"]?(#|data:))|@import|/tmp/|/work/", text)
    assert {"Overview", "Cubes", "Receivers", "Ask"} <= set(labels_in(picture))


def test_every_picture_is_shown_in_the_documentation() -> None:
    pages = [PROJECT / "README.md", *(PROJECT / "docs").rglob("*.md")]
    shown = {
        (page.parent / path).resolve()
        for page in pages
        for path in re.findall(r"!\[[^\]]+\]\(([^)]+\.svg)\)", page.read_text())
    }
    assert PICTURES
    assert set(PICTURES) <= shown
    assert {path for path in shown if not path.exists()} == set()
