"""The reading of statements: texts, and statements whose values are there or are still to come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rtolap.query.approval.bound_lists import shortest, written_out
from rtolap.query.approval.bounds import STATEMENT_BYTES_MAX
from rtolap.query.catalogue import DATABASE
from rtolap.query.engine_session import EngineSession
from rtolap.query.sql.statement import Parameters, SqlStatement, positional_names
from rtolap.query.statement_cache import StatementCache


class StatementReader:
    """Reads statements in a worker's session, unless they are cached. Raises QueryError for what is not one
    query.

    `database` is that of the tables that a text names without one; cubes and lookups are in DATABASE.
    """

    def __init__(self, cache: StatementCache) -> None:
        self._cache = cache

    def bound(
        self, sql: str | SqlStatement, parameters: Parameters, database: str | None, session: EngineSession
    ) -> tuple[SqlStatement, Parameters]:
        """Return the statement with its long lists written out, and the parameters that are left."""
        text = sql if isinstance(sql, str) else sql.text
        is_named = isinstance(parameters, Mapping)
        written = None if is_named else written_out(text, list(parameters), STATEMENT_BYTES_MAX)
        if written is None:
            return self._statement(sql, database, session), parameters
        of_text = database if isinstance(sql, str) else sql.database
        return self._statement(written.text, of_text, session), written.values

    def unbound(
        self, sql: str | SqlStatement, database: str | None, session: EngineSession
    ) -> tuple[SqlStatement, SqlStatement]:
        """Return a statement that has the columns of this one, and this one: the first is quickly read where
        the lists of question marks are long."""
        short = shortest(sql) if isinstance(sql, str) else None
        if short is None or not isinstance(sql, str):
            read = self._statement(sql, database, session)
            return read, read
        read = self._statement(short.text, database, session)
        return read, replace(read, text=sql, parameters=positional_names(short.count))

    def _statement(
        self, sql: str | SqlStatement, database: str | None, session: EngineSession
    ) -> SqlStatement:
        if not isinstance(sql, str):
            return sql
        of_tables = None if database in (None, DATABASE) else database
        return self._cache.statement(sql, of_tables, session.read_statement)
