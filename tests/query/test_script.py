"""Scripts are parted at `;` outside of quotes and comments, as MySQL writes them."""

from __future__ import annotations

import pytest
from rtolap.cli.sql import read_script


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("select 1; select 2", ("select 1", "select 2")),
        ("select 'a;b'; select \"c;d\"; select `e;f`;", ("select 'a;b'", 'select "c;d"', "select `e;f`")),
        ("select 'it''s; fine', 'a\\'; b';", ("select 'it''s; fine', 'a\\'; b'",)),
        ("select 1 -- one; and more\n, 2;", ("select 1 -- one; and more\n, 2",)),
        (
            "# first; of all\nselect 1; /* a;\nb */ select 2",
            ("# first; of all\nselect 1", "/* a;\nb */ select 2"),
        ),
        (";; select 1 ;;\n-- the end;\n", ("select 1",)),
        ("select ';' '\"', \"';\";", ("select ';' '\"', \"';\"",)),
        ("  \n", ()),
    ],
)
def test_statements_of_a_script(text: str, statements: tuple[str, ...]) -> None:
    assert read_script(text).statements == statements


@pytest.mark.parametrize(
    ("text", "is_complete"),
    [
        ("select 1;", True),
        ("select 1; -- done", True),
        ("select 1", False),
        ("select 1; select", False),
        ("select 'a;", False),
        ("select /* ;", False),
        ("", True),
        ("-- nothing", True),
    ],
)
def test_a_statement_is_complete_at_its_semicolon(text: str, is_complete: bool) -> None:
    assert read_script(text).is_complete is is_complete


def test_an_open_quote_is_told_from_a_missing_semicolon() -> None:
    assert read_script("select 'a;").unfinished == "select 'a;"
    assert read_script("select 1").unfinished is None
