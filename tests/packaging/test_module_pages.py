"""Where to find what: pages written out of the docstrings, which name what a room holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.pages.modules import FOLDER, ROOT, docstring, first_line, modules, packages, pages

TOLD = "write it again with `make reference`"


def test_the_pages_are_those_of_the_docstrings() -> None:
    written = pages()
    assert set(FOLDER.glob("*.md")) == set(written), TOLD
    for file, text in written.items():
        assert file.read_text() == text, f"{file.name}: {TOLD}"


def test_every_module_says_what_it_is_in_a_line() -> None:
    silent = [file for package in packages() for file in modules(package) if not first_line(file)]
    assert silent == []


@pytest.mark.parametrize("package", packages(), ids=lambda it: it.relative_to(ROOT).as_posix())
def test_the_page_of_a_room_names_every_room_in_it(package: Path) -> None:
    below = [each.parent.name for each in package.glob("*/__init__.py")]
    page = docstring(package)
    assert [name for name in below if not re.search(rf"\b{name}\b", page)] == []
