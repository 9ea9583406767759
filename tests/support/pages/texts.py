"""Texts of the pages: a page `docs/NAME.md` and those of its folder `docs/NAME/` belong together."""

from __future__ import annotations

from pathlib import Path

from tests.support.paths import PROJECT

DOCS = PROJECT / "docs"
ALL_PAGES = (
    *sorted(PROJECT.glob("*.md")),
    *sorted(DOCS.rglob("*.md")),
    *sorted((PROJECT / ".github").rglob("*.md")),
)


def pages_of(name: str) -> tuple[Path, ...]:
    """Return the page of that name, if there is one, and the pages of its folder."""
    page = DOCS / f"{name}.md"
    found = (*([page] if page.exists() else []), *sorted((DOCS / name).glob("*.md")))
    assert found, f"docs has no page {name}"
    return found


def text_of(name: str) -> str:
    """Return the texts of `pages_of` that page, one after the other."""
    return "\n".join(page.read_text() for page in pages_of(name))
