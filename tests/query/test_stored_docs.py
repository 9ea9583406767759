"""The statements and definitions that the documentation shows are sound."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rtolap.model.validation.stored_table import validate_stored_table
from rtolap.model.yaml_files import read_definitions
from rtolap.query.stored.ddl import (
    AddTablePartitionStatement,
    AlterTableStatement,
    CreateTableStatement,
    DropTablePartitionStatement,
    DropTableStatement,
    TruncateTableStatement,
    parse_ddl,
)

DOCS = Path(__file__).parents[2] / "docs"


def fenced(page: str, language: str, word: str) -> str:
    """The one block of the page with this word in it."""
    blocks = re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    (found,) = [block for block in blocks if word in block]
    return str(found)


def test_the_definition_is_sound(tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text(fenced("definitions/others.md", "yaml", "kind: stored_table"))
    assert list(read_definitions(file).stored_tables) == ["shop.orders"]


STATEMENTS = (
    CreateTableStatement,
    AlterTableStatement,
    AddTablePartitionStatement,
    DropTablePartitionStatement,
    TruncateTableStatement,
    DropTableStatement,
)


@pytest.mark.parametrize(("at", "kind"), enumerate(STATEMENTS))
def test_the_statements_are_understood(at: int, kind: type) -> None:
    sql = fenced("sql/stored_tables.md", "sql", "CREATE TABLE").split(";")[at]
    statement = parse_ddl(sql, None)
    assert isinstance(statement, kind)
    if isinstance(statement, CreateTableStatement):
        validate_stored_table(statement.definition)
