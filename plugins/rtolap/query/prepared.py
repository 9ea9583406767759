"""Statements parsed and rewritten before: whoever looks at a cube live asks the same text again and again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from rtolap.query.catalogue import Catalogue
from rtolap.query.parser import Statement, parse
from rtolap.query.plan import Rewritten
from rtolap.query.rules import Context, rewrite

STATEMENTS_KEPT = 256
TEXT_KEPT_MAX = 8_192  # characters; longer texts are written by programs, mostly once


class PreparedStatements:
    """Thread-safe. The least recently used go first.

    A rewritten statement is kept for one statement under one catalogue, both compared by identity, and only
    if nothing but literals was folded: `NOW()` and parameters give another value the next time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parsed: OrderedDict[str, Statement] = OrderedDict()
        self._rewritten: OrderedDict[int, tuple[Statement, Catalogue, Rewritten]] = OrderedDict()

    def parse(self, sql: str) -> Statement:
        """Raises QueryError."""
        with self._lock:
            known = self._parsed.get(sql)
            if known is not None:
                self._parsed.move_to_end(sql)
                return known
        statement = parse(sql)
        if len(sql) <= TEXT_KEPT_MAX:
            with self._lock:
                self._parsed[sql] = statement
                while len(self._parsed) > STATEMENTS_KEPT:
                    self._parsed.popitem(last=False)
        return statement

    def rewrite(self, statement: Statement, context: Context) -> Rewritten:
        """Raises QueryError naming what a cube cannot answer."""
        key = id(statement)  # of an object that the entry keeps alive
        with self._lock:
            entry = self._rewritten.get(key)
            if entry is not None and entry[0] is statement and entry[1] is context.catalogue:
                self._rewritten.move_to_end(key)
                return entry[2]
        fold = _Watched(context.fold)
        rewritten = rewrite(statement.tree, replace(context, fold=fold))
        if not fold.varies:
            with self._lock:
                self._rewritten[key] = (statement, context.catalogue, rewritten)
                while len(self._rewritten) > STATEMENTS_KEPT:
                    self._rewritten.popitem(last=False)
        return rewritten


class _Watched:
    """`fold` that notes whether it was asked for anything but a literal."""

    def __init__(self, fold: Callable[[exp.Expr], object]) -> None:
        self.varies = False
        self._fold = fold

    def __call__(self, expression: exp.Expr) -> object:
        self.varies |= not isinstance(expression, exp.Literal)
        return self._fold(expression)
