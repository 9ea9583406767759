"""Statements of the page: which are allowed, and how answers of the query service become a view."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from rtolap.base.errors import TooManyAtOnce
from rtolap.protocols.query.async_client import Bounds
from rtolap.protocols.query.messages import QueryAnswer, QueryColumn, QueryWarning

ROWS_MAX: Final = 10_000  # rows of an answer that are shown and downloaded
ANSWER_BYTES_MAX: Final = 16 << 20
STATEMENT_S_MAX: Final = 60
AT_ONCE_MAX: Final = 2  # statements of a person in this process of the API server
BODY_BYTES_MAX: Final = 2 << 20  # of a request; the service takes statements of 1 MiB
COLUMNS_MAX: Final = 20_000  # columns of the catalogue that names are completed from
HISTORY_MAX: Final = 100
HELP_S_MAX: Final = 10  # for the catalogue and the history

_EXACT_IN_A_BROWSER: Final = 2**53 - 1

SHOWN = Bounds(STATEMENT_S_MAX * 1000, ROWS_MAX + 1, ANSWER_BYTES_MAX)  # one more says that there are more
DOWNLOADED = SHOWN._replace(rows_max=ROWS_MAX)
CATALOGUE = Bounds(HELP_S_MAX * 1000, COLUMNS_MAX + 1, ANSWER_BYTES_MAX)
HISTORY = Bounds(HELP_S_MAX * 1000, HISTORY_MAX, ANSWER_BYTES_MAX)

CATALOGUE_SQL: Final = """
    SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, DATA_TYPE FROM information_schema.columns
    ORDER BY TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION"""
HISTORY_SQL: Final = """
    SELECT STARTED_AT, STATEMENT, OUTCOME, ERROR, ELAPSED_MS, ROWS_RETURNED
    FROM information_schema.query_log WHERE USER_NAME = ? ORDER BY STARTED_AT DESC"""


class AskRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A statement. session_token: of an earlier answer, behind which this one is not."""

    sql: str
    session_token: str = ""


class AskAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer as the view shows it.

    Attributes:
        rows: ROWS_MAX at most. Whole numbers that a browser would round are texts.
        cut: there are more rows.
        rows_max: ROWS_MAX.
    """

    columns: tuple[QueryColumn, ...]
    rows: list[list[Any]]
    cut: bool
    rows_max: int
    warnings: tuple[QueryWarning, ...]
    session_token: str


class KnownColumn(msgspec.Struct, frozen=True):
    name: str
    type: str


class KnownTable(msgspec.Struct, frozen=True):
    db: str
    name: str
    columns: list[KnownColumn]


class KnownTables(msgspec.Struct, frozen=True):
    """The catalogue. cut: it has more columns than COLUMNS_MAX."""

    tables: list[KnownTable]
    cut: bool


class PastStatement(msgspec.Struct, frozen=True):
    """A statement of the person who asks, from the query log."""

    started_at: str
    sql: str
    outcome: str
    error: str
    elapsed_ms: float
    rows: int


class PastStatements(msgspec.Struct, frozen=True):
    statements: list[PastStatement]


def asking_as(person: str) -> str:
    """Return the name under which the query service knows a person of Airflow."""
    return f"airflow:{person}"


def shown(answer: QueryAnswer, session_token: str) -> AskAnswer:
    return AskAnswer(
        columns=answer.columns,
        rows=[[_whole(value) for value in row] for row in answer.rows[:ROWS_MAX]],
        cut=len(answer.rows) > ROWS_MAX,
        rows_max=ROWS_MAX,
        warnings=answer.warnings,
        session_token=session_token,
    )


def known_tables(answer: QueryAnswer) -> KnownTables:
    """Return the tables of an answer to CATALOGUE_SQL."""
    tables: dict[tuple[str, str], KnownTable] = {}
    for db, name, column, kind in answer.rows[:COLUMNS_MAX]:
        table = tables.setdefault((db, name), KnownTable(db, name, []))
        table.columns.append(KnownColumn(column, kind))
    return KnownTables(list(tables.values()), len(answer.rows) > COLUMNS_MAX)


def past_statements(answer: QueryAnswer) -> PastStatements:
    """Return the statements of an answer to HISTORY_SQL."""
    return PastStatements([PastStatement(*row) for row in answer.rows])


class Turns:
    """Counts what each person runs at the same time, on one event loop."""

    def __init__(self, at_once_max: int = AT_ONCE_MAX) -> None:
        self._at_once_max = at_once_max
        self._running: dict[str, int] = {}

    @contextmanager
    def taken(self, person: str) -> Iterator[None]:
        """Hold a turn. Raises TooManyAtOnce."""
        running = self._running.get(person, 0)
        if running >= self._at_once_max:
            raise TooManyAtOnce(
                f"{running} statements of yours are running",
                expected=f"at most {self._at_once_max} at once",
                action="wait for one, or cancel it",
            )
        self._running[person] = running + 1
        try:
            yield
        finally:
            self._running[person] -= 1
            if not self._running[person]:
                del self._running[person]

    def running(self) -> Sequence[str]:
        """Return the persons who have a turn."""
        return tuple(self._running)


def _whole(value: Any) -> Any:
    """Return the value as a browser reads it without a change."""
    if type(value) is int and abs(value) > _EXACT_IN_A_BROWSER:
        return str(value)
    return value
