"""A cache of parsed and planned statements: live views of a cube send the same text again and again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

import pyarrow as pa
from cachetools import LRUCache

from rtolap.query.catalogue import QueryCatalogue
from rtolap.query.plan import Planned, Rewritten
from rtolap.query.sql.statement import SqlStatement
from rtolap.query.workers.packing import value_size

STATEMENTS_CACHED_MAX = 256
TEXT_CHARACTERS_MAX = 8_192  # characters, with its values; longer texts are written by programs, mostly once
SQL_CHARACTERS_MAX = 65_536  # characters of what the engine runs for one

ANSWER_BYTES_MAX = 4_096  # of a constant statement: pools send SELECT 1 before each of their own

V = TypeVar("V")


class StatementCache:
    """A cache of statements, plans and constant answers, bounded in number and in size. Thread-safe.

    The least recently used entries are dropped first. A plan is cached for one text under one catalogue,
    which is compared by identity, and for the values of the session and the parameters, because its filter
    contains them. A plan into which the clock was folded is not cached. Statements with parameters do not
    displace those without.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read: LRUCache[Hashable, SqlStatement] = _recent()
        self._fixed: LRUCache[Hashable, tuple[QueryCatalogue, Rewritten]] = _recent()
        self._bound: LRUCache[Hashable, tuple[QueryCatalogue, Rewritten]] = _recent()
        self._answers: LRUCache[Hashable, pa.Table] = _recent()
        self.rewrites = 0  # that were not found here

    def statement(
        self, text: str, database: str | None, read: Callable[[str, str | None], SqlStatement]
    ) -> SqlStatement:
        """Return the parsed statement. `read` parses a text that is not cached; its errors are raised."""
        with self._lock:
            known = self._read.get((database, text))
        if known is not None:
            return known
        statement = read(text, database)
        if len(text) <= TEXT_CHARACTERS_MAX:
            with self._lock:
                self._read[database, text] = statement
        return statement

    def rewritten(
        self,
        statement: SqlStatement,
        catalogue: QueryCatalogue,
        values: Mapping[str, object],
        plan: Callable[[], Planned],
    ) -> Rewritten:
        """Return the cached plan, or the one that `plan` makes.

        Args:
            values: parameter → value, of the parameters that have values already.

        Raises the error that `plan` raises.
        """
        cache = self._bound if statement.parameters else self._fixed
        key = _key(statement, values)
        with self._lock:
            entry = None if key is None else cache.get(key)
            if entry is not None and entry[0] is catalogue:
                return entry[1]
            self.rewrites += 1
        planned = plan()
        if key is not None and not planned.varies and len(planned.rewritten.sql) <= SQL_CHARACTERS_MAX:
            with self._lock:
                cache[key] = (catalogue, planned.rewritten)
        return planned.rewritten

    def constant_answer(self, rewritten: Rewritten) -> pa.Table | None:
        """Return what `keep_constant_answer` was given for a constant statement."""
        if not rewritten.is_constant:
            return None
        with self._lock:
            return self._answers.get(rewritten.sql)

    def keep_constant_answer(self, rewritten: Rewritten, answer: pa.Table) -> None:
        if answer.nbytes <= ANSWER_BYTES_MAX and len(rewritten.sql) <= TEXT_CHARACTERS_MAX:
            with self._lock:
                self._answers[rewritten.sql] = answer


def _recent() -> LRUCache[Hashable, V]:
    """Return a cache of the STATEMENTS_CACHED_MAX most recently used."""
    return LRUCache(STATEMENTS_CACHED_MAX)


def _key(statement: SqlStatement, values: Mapping[str, object]) -> Hashable | None:
    """Return the key of a bound statement; None if it has no values yet, or large or incomparable ones.

    The keys of 1, 1.0 and TRUE differ.
    """
    if not statement.parameters and not statement.given:
        is_short = len(statement.text) <= TEXT_CHARACTERS_MAX
        return (statement.database, statement.text, statement.zone, ()) if is_short else None
    if any(name not in values for name in statement.parameters):
        return None
    given = [*statement.given.items(), *((name, values[name]) for name in statement.parameters)]
    if len(statement.text) + sum(value_size(value) for _, value in given) > TEXT_CHARACTERS_MAX:
        return None
    bound = tuple((name, type(value), value) for name, value in given)
    if not all(isinstance(value, Hashable) for _, _, value in bound):
        return None
    return (statement.database, statement.text, statement.zone, bound)
