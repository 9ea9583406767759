"""Raw rows in a MariaDB server: what the same SQL answers there is what ours has to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from math import isclose
from typing import Any

import pyarrow as pa
import pymysql

_KINDS = (
    (pa.types.is_boolean, "BOOLEAN"),
    (pa.types.is_int32, "INT"),
    (pa.types.is_integer, "BIGINT"),
    (pa.types.is_floating, "DOUBLE"),
    (pa.types.is_date, "DATE"),
    (pa.types.is_timestamp, "DATETIME"),
    (pa.types.is_decimal, "DECIMAL({0.precision}, {0.scale})"),
)
_MODE = "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,PIPES_AS_CONCAT"
_DECIMAL_TOLERANCE = 5.1e-5  # MySQL rounds quotients to four more digits
_DOUBLE_TOLERANCE = 1e-9

Row = tuple[object, ...]


class MariaOracle:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def rows(self, sql: str) -> list[Row]:
        """Return the rows. Raises pymysql.MySQLError."""
        with self._connection.cursor() as cursor:
            cursor.execute(sql)
            return [tuple(row) for row in cursor.fetchall()]

    def run(self, sql: str) -> None:
        """Run a statement without rows. Raises pymysql.MySQLError."""
        with self._connection.cursor() as cursor:
            cursor.execute(sql)

    def names(self, sql: str) -> list[str]:
        """Return the names of the columns. Raises pymysql.MySQLError."""
        with self._connection.cursor() as cursor:
            cursor.execute(sql)
            return [str(column[0]) for column in cursor.description]


@contextmanager
def open_maria(
    socket: str, database: str, tables: dict[str, pa.Table], definitions: Sequence[str] = ()
) -> Iterator[MariaOracle]:
    """Yield the tables in a database of their own, which is dropped at the end; strings compare by their
    bytes.

    `definitions`: statements that define what else is in it.
    """
    with pymysql.connect(unix_socket=socket, user="root", charset="utf8mb4", autocommit=True) as connection:
        with connection.cursor() as cursor:
            cursor.execute("SET NAMES utf8mb4 COLLATE utf8mb4_nopad_bin")
            cursor.execute(f"SET sql_mode = '{_MODE}', time_zone = '+00:00'")
            cursor.execute(f"CREATE DATABASE `{database}` CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin")
            cursor.execute(f"USE `{database}`")
            for name, table in tables.items():
                _load(cursor, name, table)
            for definition in definitions:
                cursor.execute(definition)
        try:
            yield MariaOracle(connection)
        finally:
            with connection.cursor() as cursor:
                cursor.execute(f"DROP DATABASE `{database}`")


def differences(ours: Sequence[Row], theirs: Sequence[Row], keys: int) -> str:
    """Return the differences, empty if both are the same rows; `keys` columns say which row one is."""
    mine, other = ({tuple(map(plain, row[:keys])): row[keys:] for row in rows} for rows in (ours, theirs))
    if len(ours) != len(theirs) or set(mine) != set(other):
        return f"rows of ours only: {set(mine) - set(other)}, of theirs only: {set(other) - set(mine)}"
    for key, row in mine.items():
        if not all(alike(one, two) for one, two in zip(row, other[key], strict=True)):
            return f"{key}: ours {row}, theirs {other[key]}"
    return ""


def _load(cursor: Any, name: str, table: pa.Table) -> None:
    columns = [f"`{field.name}` {_kind(field.type)} NULL" for field in table.schema]
    cursor.execute(f"CREATE TABLE `{name}` ({', '.join(columns)})")
    marks = ", ".join(["%s"] * len(columns))
    cursor.executemany(
        f"INSERT INTO `{name}` VALUES ({marks})", [tuple(row.values()) for row in table.to_pylist()]
    )


def _kind(kind: pa.DataType) -> str:
    return next((sql.format(kind) for fits, sql in _KINDS if fits(kind)), "VARCHAR(200)")


def plain(value: object) -> object:
    if isinstance(value, bool | int | Decimal):
        return Decimal(value).normalize() + 0
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    return value.isoformat() if isinstance(value, date) else value


def alike(one: object, two: object) -> bool:
    if isinstance(one, float) or isinstance(two, float):
        if one is None or two is None:
            return one is two
        assert isinstance(one, float | int | Decimal)
        assert isinstance(two, float | int | Decimal)
        rounded = _DECIMAL_TOLERANCE if isinstance(one, Decimal) or isinstance(two, Decimal) else 0.0
        return isclose(float(one), float(two), rel_tol=_DOUBLE_TOLERANCE, abs_tol=rounded)
    return plain(one) == plain(two)
