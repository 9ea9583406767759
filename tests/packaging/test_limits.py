"""Every limit that the pages on security promise has tests that show it."""

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
        assert test == "*" or re.search(rf"^(async )?def {test}\(", text, re.M), (file, test)
