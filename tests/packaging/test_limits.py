"""Every limit and every other promise of the pages on security has tests that show it."""

from __future__ import annotations

import re

import pytest

from tests.support.paths import PROJECT

DOCS = PROJECT / "docs"
_TABLE = re.compile(r"(?:^\|.*\n)+", re.M)
_LIMITS = ("limit", "budget", "limit of a statement")
_TEST = re.compile(r"`([\w/]+\.py)::(\w+|\*)`")


def _first_cells(page: str) -> list[str]:
    """Return the first cell of each row of the page's tables of limits."""
    cells = []
    for table in _TABLE.findall((DOCS / page).read_text()):
        first, _, *rows = (line.strip("|\n").split("|")[0].strip() for line in table.splitlines())
        if first in _LIMITS:
            cells += rows
    return cells


def test_each_limit_names_what_shows_it() -> None:
    promised = _first_cells("security.md") + _first_cells("security/limits.md")
    assert _first_cells("security/shown_by.md") == promised
    assert len(promised) > 60


@pytest.mark.parametrize(
    "line", [x for x in (DOCS / "security/shown_by.md").read_text().splitlines() if "::" in x]
)
def test_what_shows_it_is_a_test(line: str) -> None:
    named = _TEST.findall(line)
    assert named
    for file, test in named:
        text = (PROJECT / "tests" / file).read_text()
        assert test == "*" or re.search(rf"^ *(async )?def {test}\(", text, re.M), (file, test)


def _promises() -> list[str]:
    """Return the quoted words of the page on security that tests are named for."""
    section = (DOCS / "security/shown_by.md").read_text().partition("## Promises of the page on security")[2]
    return [line.strip("|").split(" | ")[0].strip() for line in section.splitlines() if "::" in line]


_NO_PROMISES = {"Each page of each HTTP server", "What is not defended", "How to report a hole"}
_ADVICE = ("The token opens no shell",)


def _promising() -> list[str]:
    """Return the paragraphs and lines of the first table of the page that promise something.

    Pages, statements and limits have tables of their own, which other tests compare with the code.
    """
    sections = re.split(r"^## (.+)\n", (DOCS / "security.md").read_text(), flags=re.M)[1:]
    found: list[str] = []
    for title, text in zip(sections[::2], sections[1::2], strict=True):
        if title in _NO_PROMISES:
            continue
        for block in text.strip().split("\n\n"):
            if not block.startswith("|"):
                found.append(" ".join(block.split()))
            elif title == "Who there is":
                found += block.splitlines()[2:]
    return [block for block in found if not block.startswith(_ADVICE)]


def test_each_promise_in_prose_is_quoted_with_what_shows_it() -> None:
    promises, blocks = _promises(), _promising()
    assert len(blocks) > 10
    for promise in promises:
        assert any(promise in block for block in blocks), promise
    for block in blocks:
        assert any(promise in block for promise in promises), block
