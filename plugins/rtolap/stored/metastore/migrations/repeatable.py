"""Operations that do nothing where they are done already.

MySQL commits each definition by itself. A revision that was cut short has left some of its definitions and no
note; it is run again from its first. MySQL itself, other than MariaDB, has no `IF NOT EXISTS` for indexes and
columns, so the catalogue is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.sql.schema import SchemaItem


def create_table(name: str, *columns_and_keys: SchemaItem) -> None:
    op.create_table(
        name, *columns_and_keys, if_not_exists=True, mysql_engine="InnoDB", sqlite_autoincrement=True
    )


def create_index(name: str, table: str, columns: Sequence[str], *, unique: bool = False) -> None:
    if name not in {present["name"] for present in sa.inspect(op.get_bind()).get_indexes(table)}:
        op.create_index(name, table, list(columns), unique=unique)


def add_column(table: str, column: sa.Column[Any]) -> None:
    """Add a column. Existing rows get NULL or the column's server default."""
    if column.name not in {present["name"] for present in sa.inspect(op.get_bind()).get_columns(table)}:
        op.add_column(table, column)
