"""Partitions of one server's tables over its MySQL endpoint, ours or that of Doris.

Statements are Doris': `SHOW PARTITIONS FROM`, `ALTER TABLE … ADD PARTITION IF NOT EXISTS … VALUES […)`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pymysql
from pymysql.cursors import DictCursor

from rtolap.base.addresses import host_port
from rtolap.base.errors import DefinitionError, Refused, RtolapError, Unauthorized, Unavailable
from rtolap.model.stored.partitions import WHOLE, PartitionRange

CONNECT_TIMEOUT_S = 5
ANSWER_TIMEOUT_S = 30  # a server tells every node of the table before it answers

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BOUND = re.compile(r"\d{4}-\d{2}-\d{2}(?: \d{2}:\d{2}:\d{2})?")
_ACCESS_DENIED = (1044, 1045, 1142, 1227)
_AWAY = (1040, 1053, 1205, 3024)  # too many connections, going down, not now, too slow
_CLIENT_CODES = range(2000, 3000)  # the connection, as the client sees it


class KnownPartition(NamedTuple):
    """A partition, as another server states it.

    Attributes:
        bounds: [start, end) in ms since the epoch, UTC; None where the server reports none in time.
    """

    name: str
    bounds: tuple[int, int] | None


class PartitionSession:
    """A connection to the endpoint.

    All calls raise Unavailable, Unauthorized, or Refused with the server's words.
    """

    def __init__(self, connection: pymysql.connections.Connection[DictCursor]) -> None:
        self._connection = connection

    def partitions(self, db: str, table: str) -> tuple[KnownPartition, ...]:
        with self._asking(f"read the partitions of {db}.{table}") as cursor:
            cursor.execute(f"SHOW PARTITIONS FROM {_quoted(db)}.{_quoted(table)}")
            return tuple(_known(row) for row in cursor.fetchall())

    def add_partition(self, db: str, table: str, part: PartitionRange, *, has_time: bool) -> None:
        """Add a partition, unless the table has one of that name.

        `has_time` is True for a column of times, and False for a column of dates.
        """
        with self._asking(f"add partition {part.name} to {db}.{table}") as cursor:
            cursor.execute(
                f"ALTER TABLE {_quoted(db)}.{_quoted(table)} "
                f"ADD PARTITION IF NOT EXISTS {_quoted(part.name)} VALUES [(%s), (%s))",
                (_bound(part.start_ms, has_time), _bound(part.end_ms, has_time)),
            )

    @contextmanager
    def _asking(self, purpose: str) -> Iterator[DictCursor]:
        try:
            with self._connection.cursor() as cursor:
                yield cursor
        except (pymysql.MySQLError, OSError) as error:
            raise _error(purpose, error) from error


class MysqlPartitions:
    """The partitions of a table behind the MySQL protocol. `password` is called for each connection.
    `ca_file` is the PEM that certificates are checked with, and TLS is then required; without it TLS is
    taken unchecked where the server offers it."""

    def __init__(
        self, host: str, port: int, user: str, password: Callable[[], str], *, ca_file: Path | None = None
    ) -> None:
        self._host = host
        self._port = port
        self._user = user
        self._password = password
        self._trust: dict[str, Any] = {}
        if ca_file is not None:
            self._trust = {"ssl_ca": str(ca_file), "ssl_verify_cert": True, "ssl_verify_identity": True}

    @contextmanager
    def session(self) -> Iterator[PartitionSession]:
        """Open a session. Raises Unavailable, Unauthorized, and what `password` raises."""
        password = self._password()
        try:
            connection = pymysql.connections.Connection(
                host=self._host,
                port=self._port,
                user=self._user,
                password=password,
                cursorclass=DictCursor,
                autocommit=True,
                connect_timeout=CONNECT_TIMEOUT_S,
                read_timeout=ANSWER_TIMEOUT_S,
                write_timeout=ANSWER_TIMEOUT_S,
                **self._trust,
            )
        except (pymysql.MySQLError, OSError) as error:
            raise _error(f"reach the MySQL endpoint {host_port(self._host, self._port)}", error) from error
        try:
            yield PartitionSession(connection)
        finally:
            connection.close()


def bounds_of(text: str) -> tuple[int, int] | None:
    """Return the bounds of a range as servers write it: `[types: [DATEV2]; keys: [2026-11-21]; ..types: …;
    keys: […]; )`.
    """
    bounds_ms = [instant_ms for each in _BOUND.findall(text) if (instant_ms := _ms(each)) is not None]
    if len(bounds_ms) == 1 and "MAXVALUE" in text.upper():
        bounds_ms.append(WHOLE.end_ms)
    return (bounds_ms[0], bounds_ms[1]) if len(bounds_ms) == 2 else None


def _ms(text: str) -> int | None:
    if text.startswith("0000-"):
        return WHOLE.start_ms  # as Doris writes the beginning of time
    try:
        return (datetime.fromisoformat(text).replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
    except ValueError:
        return None


def _known(row: dict[str, Any]) -> KnownPartition:
    text = str(row["Range"]) if "Range" in row else f"{row.get('Start')} {row.get('End')}"
    return KnownPartition(str(row["PartitionName"]), bounds_of(text))


def _bound(instant_ms: int, has_time: bool) -> str:
    instant = _EPOCH + timedelta(milliseconds=instant_ms)
    return f"{instant:%Y-%m-%d %H:%M:%S}" if has_time else f"{instant:%Y-%m-%d}"


def _quoted(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise DefinitionError("not a name", expected="letters, digits and _", found=repr(name))
    return f"`{name}`"


def _error(purpose: str, error: Exception) -> RtolapError:
    code = error.args[0] if error.args else None
    words = str(error.args[1]) if len(error.args) > 1 else str(error) or type(error).__name__
    if code in _ACCESS_DENIED:
        return Unauthorized(f"cannot {purpose}", found=words)
    is_away = code in _AWAY or code in _CLIENT_CODES
    if is_away or isinstance(error, (pymysql.err.InterfaceError, OSError)):
        return Unavailable(f"cannot {purpose}", found=words)
    return Refused(f"cannot {purpose}", found=words)
