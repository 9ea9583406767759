"""Statements parsed and rewritten before: live views of a cube send the same text again and again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Generic, TypeVar

import pyarrow as pa
from sqlglot import exp

from rtolap.query.catalogue import Catalogue
from rtolap.query.plan import Rewritten
from rtolap.query.sql.parser import Statement, parse
from rtolap.query.sql.rules import Context, rewrite

STATEMENTS_KEPT = 256
TEXT_KEPT_MAX = 8_192  # characters; longer texts are written by programs, mostly once

ANSWER_BYTES_MAX = 4_096  # of a constant statement: pools send SELECT 1 before each of their own

V = TypeVar("V")
# What always gives the same value; anything else may be the clock or a die.
_CONSTANT = (
    *(exp.Literal, exp.Parameter, exp.Var, exp.Boolean, exp.Null, exp.Neg, exp.Paren, exp.Cast, exp.DataType),
    *(exp.DataTypeParam, exp.Interval, exp.Add, exp.Sub),
)


class PreparedStatements:
    """Thread-safe. The least recently used go first.

    A rewritten statement is kept for one statement under one catalogue, both compared by identity, and for
    the values of its parameters, which its filter holds; not if the clock was folded into it. Statements with
    parameters do not push out those without.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parsed: _Recent[Statement] = _Recent()
        self._fixed: _Recent[tuple[Statement, Catalogue, Rewritten]] = _Recent()
        self._bound: _Recent[tuple[Statement, Catalogue, Rewritten]] = _Recent()
        self._answers: _Recent[pa.Table] = _Recent()
        self.rewrites = 0  # that were not found here

    def parse(self, sql: str, database: str | None = None) -> Statement:
        """`database` as `parser.parse` takes it. Raises QueryError."""
        with self._lock:
            known = self._parsed.find((database, sql))
        if known is not None:
            return known
        statement = parse(sql, database)
        if len(sql) <= TEXT_KEPT_MAX:
            with self._lock:
                self._parsed.keep((database, sql), statement)
        return statement

    def rewrite(
        self, statement: Statement, context: Context, values: Mapping[str, object] | None = None
    ) -> Rewritten:
        """`values`: of the parameters, as far as there are any yet. Raises QueryError naming what a cube
        cannot answer.
        """
        kept = self._bound if statement.parameters else self._fixed
        key = _key(statement, values or {})
        with self._lock:
            entry = None if key is None else kept.find(key)
            if entry is not None and entry[0] is statement and entry[1] is context.catalogue:
                return entry[2]
            self.rewrites += 1
        fold = _Watched(context.fold)
        rewritten = rewrite(statement.tree, replace(context, fold=fold))
        if key is not None and not fold.varies:
            with self._lock:
                kept.keep(key, (statement, context.catalogue, rewritten))
        return rewritten

    def constant_answer(self, rewritten: Rewritten) -> pa.Table | None:
        """Return what `keep_constant_answer` was given for a constant statement."""
        if not rewritten.is_constant:
            return None
        with self._lock:
            return self._answers.find(rewritten.sql)

    def keep_constant_answer(self, rewritten: Rewritten, answer: pa.Table) -> None:
        if answer.nbytes <= ANSWER_BYTES_MAX and len(rewritten.sql) <= TEXT_KEPT_MAX:
            with self._lock:
                self._answers.keep(rewritten.sql, answer)


class _Recent(Generic[V]):
    """The STATEMENTS_KEPT most recently used."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, V] = OrderedDict()

    def find(self, key: Hashable) -> V | None:
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        return entry

    def keep(self, key: Hashable, value: V) -> None:
        self._entries[key] = value
        while len(self._entries) > STATEMENTS_KEPT:
            self._entries.popitem(last=False)


def _key(statement: Statement, values: Mapping[str, object]) -> Hashable | None:
    """None for a statement that is not bound yet, or to what cannot be compared. 1, 1.0 and TRUE differ."""
    if any(name not in values for name in statement.parameters):
        return None
    bound = tuple((type(values[name]), values[name]) for name in statement.parameters)
    if not all(isinstance(value, Hashable) for _, value in bound):
        return None
    return (id(statement), bound)  # the entry keeps the statement alive, and with it its identity


class _Watched:
    """`fold` that notes whether it was called for anything that is not constant."""

    def __init__(self, fold: Callable[[exp.Expr], object]) -> None:
        self.varies = False
        self._fold = fold

    def __call__(self, expression: exp.Expr) -> object:
        self.varies |= not all(isinstance(node, _CONSTANT) for node in expression.walk())
        return self._fold(expression)
