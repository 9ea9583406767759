"""A cache of parsed and planned statements: live views of a cube send the same text again and again.

A text that differs from another only in what it compares columns with is neither parsed nor planned, where
`plan_templates` has proven that its plan differs in nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final, Literal, TypeVar

import pyarrow as pa
from cachetools import LRUCache

from rtolap.base.errors import QueryError
from rtolap.query.catalogue import QueryCatalogue
from rtolap.query.plan import Planned, Rewritten
from rtolap.query.shapes.plan_templates import PlanTemplate, template_of
from rtolap.query.shapes.statement_shape import StatementShape, shape_of
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
        self._shape_of = lru_cache(STATEMENTS_CACHED_MAX)(shape_of)
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
        shape = self._shape_of(text)
        if shape is not None:
            with self._lock:
                alike = self._alike.get((database, shape.pieces))
            if alike is not None:
                return replace(alike, text=text)
        statement = read(text, database)
        if len(text) <= TEXT_CHARACTERS_MAX:
            with self._lock:
                self._read[database, text] = statement
                if shape is not None and not (statement.parameters or statement.session_names):
                    self._alike[database, shape.pieces] = statement
        return statement

    def rewritten(
        self,
        statement: SqlStatement,
        catalogue: QueryCatalogue,
        values: Mapping[str, object],
        plan: Callable[[SqlStatement], Planned],
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
        shape = None if statement.parameters or statement.given else self._shape_of(statement.text)
        filled = None if shape is None else self._filled(statement, shape, catalogue)
        if filled is not None:
            return filled
        with self._lock:
            self.rewrites += 1
        planned = plan(statement)
        if shape is not None:
            self._learn(statement, shape, catalogue, planned, plan)
        if key is not None and not planned.varies and len(planned.rewritten.sql) <= SQL_CHARACTERS_MAX:
            with self._lock:
                cache[key] = (catalogue, planned.rewritten)
        return planned.rewritten

    def _filled(
        self, statement: SqlStatement, shape: StatementShape, catalogue: QueryCatalogue
    ) -> Rewritten | None:
        with self._lock:
            known = self._templates.get(_of_shape(statement, shape))
        if known is None or known[0] is not catalogue or not isinstance(known[1], PlanTemplate):
            return None
        return known[1].filled(shape.literals)

    def _learn(
        self,
        statement: SqlStatement,
        shape: StatementShape,
        catalogue: QueryCatalogue,
        planned: Planned,
        plan: Callable[[SqlStatement], Planned],
    ) -> None:
        """Make the template of a shape that is planned for the second time: many statements come once."""
        key = _of_shape(statement, shape)
        with self._lock:
            known = self._templates.get(key)
            is_new = known is None or known[0] is not catalogue
            if not is_new and known != (catalogue, SEEN):
                return
            self._templates[key] = (catalogue, SEEN if is_new else NO_TEMPLATE)
        if is_new:
            return
        try:
            template = template_of(shape, planned, lambda text: plan(replace(statement, text=text)))
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


def _of_shape(statement: SqlStatement, shape: StatementShape) -> Hashable:
    return (statement.database, statement.zone, shape.pieces)


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
