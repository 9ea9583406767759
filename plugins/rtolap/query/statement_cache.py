"""A cache of parsed and planned statements: live views of a cube send the same text again and again.

A text that differs from another only in what it compares columns with is neither parsed nor planned, where
`plan_templates` has proven that its plan differs in nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Final, Literal, TypeVar

import pyarrow as pa
from cachetools import LRUCache

from rtolap.base.errors import QueryError, QueryInterrupted, QueryTimeout, Unavailable
from rtolap.query.catalogue import QueryCatalogue
from rtolap.query.plan import Planned, Rewritten
from rtolap.query.shapes.plan_templates import PlanTemplate, template_of
from rtolap.query.shapes.shaped import ShapedStatement, shaped, text_key
from rtolap.query.shapes.value_keys import value_key
from rtolap.query.sql.statement import SqlStatement
from rtolap.query.workers.packing import value_size

STATEMENTS_CACHED_MAX = 256
TEXT_CHARACTERS_MAX = 8_192  # characters, with its values; longer texts are written by programs, mostly once
SQL_CHARACTERS_MAX = 65_536  # characters of what the engine runs for one

ANSWER_BYTES_MAX = 4_096  # of a constant statement: pools send SELECT 1 before each of their own

SEEN: Final = "seen"  # of a shape: one statement of it was planned
NO_TEMPLATE: Final = "none"  # its plans depend on the literals otherwise, or one is being made
_Known = Literal["seen", "none"]

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
        self._alike: LRUCache[Hashable, SqlStatement] = _recent()  # one statement of each shape
        self._templates: LRUCache[Hashable, tuple[QueryCatalogue, PlanTemplate | _Known]] = _recent()
        self.rewrites = 0  # that were not found here

    def statement(
        self, text: str, database: str | None, read: Callable[[str, str | None], SqlStatement]
    ) -> SqlStatement:
        """Return the parsed statement. `read` parses a text that is not cached; its errors are raised."""
        with self._lock:
            known = self._read.get((database, text))
        if known is not None:
            return known
        key = text_key(text, database)
        if key is not None:
            with self._lock:
                alike = self._alike.get(key)
            if alike is not None:
                return replace(alike, text=text)
        statement = read(text, database)
        if len(text) <= TEXT_CHARACTERS_MAX:
            with self._lock:
                self._read[database, text] = statement
                if key is not None and not (statement.parameters or statement.session_names):
                    self._alike[key] = statement
        return statement

    def rewritten(
        self,
        statement: SqlStatement,
        catalogue: QueryCatalogue,
        values: Mapping[str, object],
        plan: Callable[[SqlStatement, Mapping[str, object]], Planned],
    ) -> Rewritten:
        """Return the cached plan, one out of the template of the statement's shape, or the one that `plan`
        makes.

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
        alike = None if key is None else shaped(statement, values)
        filled = None if alike is None else self._filled(alike, catalogue)
        if filled is not None:
            return filled
        with self._lock:
            self.rewrites += 1
        planned = plan(statement, values)
        if alike is not None:
            self._learn(alike, catalogue, planned, plan)
        if key is not None and not planned.varies and len(planned.rewritten.sql) <= SQL_CHARACTERS_MAX:
            with self._lock:
                cache[key] = (catalogue, planned.rewritten)
        return planned.rewritten

    def _filled(self, statement: ShapedStatement, catalogue: QueryCatalogue) -> Rewritten | None:
        with self._lock:
            known = self._templates.get(statement.key)
        if known is None or known[0] is not catalogue or not isinstance(known[1], PlanTemplate):
            return None
        return known[1].filled(statement.literals)

    def _learn(
        self,
        statement: ShapedStatement,
        catalogue: QueryCatalogue,
        planned: Planned,
        plan: Callable[[SqlStatement, Mapping[str, object]], Planned],
    ) -> None:
        """Make the template of a shape that is planned for the second time: many statements come once."""
        key = statement.key
        with self._lock:
            known = self._templates.get(key)
            is_new = known is None or known[0] is not catalogue
            if not is_new and known != (catalogue, SEEN):
                return
            self._templates[key] = (catalogue, SEEN if is_new else NO_TEMPLATE)
        if is_new:
            return
        try:
            template = template_of(
                statement.literals, planned, lambda markers: plan(*statement.with_literals(markers))
            )
        except (QueryInterrupted, QueryTimeout, Unavailable):  # which says nothing about the shape
            with self._lock:
                self._templates[key] = (catalogue, SEEN)
            raise
        except QueryError:  # of the markers: a literal is read as something else, a moment maybe
            return
        if template is not None:
            with self._lock:
                self._templates[key] = (catalogue, template)

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

    The keys of 1, 1.0 and TRUE differ, and those of 1.0 and 1.00: see `value_key`.
    """
    if not statement.parameters and not statement.given:
        is_short = len(statement.text) <= TEXT_CHARACTERS_MAX
        return (statement.database, statement.text, statement.zone, ()) if is_short else None
    if any(name not in values for name in statement.parameters):
        return None
    given = [*statement.given.items(), *((name, values[name]) for name in statement.parameters)]
    if len(statement.text) + sum(value_size(value) for _, value in given) > TEXT_CHARACTERS_MAX:
        return None
    bound = tuple((name, value_key(value)) for name, value in given)
    if any(key is None for _, key in bound):
        return None
    return (statement.database, statement.text, statement.zone, bound)
