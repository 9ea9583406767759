"""Texts of statements → plans. It runs where the engine runs, which the system bounds and may end.

Reading a text of some ten thousand words and rewriting it take seconds of Python, and tens of megabytes. In
the service's process no other statement would go on meanwhile.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Hashable, Mapping

from cachetools import LRUCache
from sqlglot import exp

from rtolap.base.errors import UnsupportedSql
from rtolap.query.catalogue import QueryCatalogue
from rtolap.query.information_schema import INFORMATION_TABLES
from rtolap.query.plan import Planned
from rtolap.query.sql.dialect import engine_sql
from rtolap.query.sql.folding import ValueOf, fold
from rtolap.query.sql.parser import StatementTree, parse
from rtolap.query.sql.rules import Context, rewrite
from rtolap.query.sql.session_values import completed, session_name
from rtolap.query.sql.statement import SqlStatement

TREES_CACHED_MAX = 64
TEXT_CHARACTERS_MAX = 8_192  # characters; longer texts are written by programs, mostly once
# What always gives the same value; anything else may be the clock or a die.
_CONSTANT = (
    *(exp.Literal, exp.Parameter, exp.Var, exp.Boolean, exp.Null, exp.Neg, exp.Paren, exp.Cast, exp.DataType),
    *(exp.DataTypeParam, exp.Interval, exp.Add, exp.Sub),
)


class SqlPlanner:
    """Plans statements, and caches the trees of short texts. Thread-safe."""

    def __init__(self) -> None:
        self._trees = _Trees()

    def statement_is_over(self) -> None:
        """Drop the tree of a long text: it is large, and mostly of one statement."""
        self._trees.forget_last()

    def read(self, text: str, database: str | None) -> SqlStatement:
        """Parse the text. Raises QueryError for anything but one query."""
        tree = self._trees.get(text, database)
        names = dict.fromkeys(session_name(node) for node in tree.functions)
        return SqlStatement(
            text,
            database,
            tree.explain,
            tree.parameters,
            tuple(name for name in names if name is not None),
            any(isinstance(node, exp.Func) for node in tree.functions),
        )

    def plan(
        self,
        statement: SqlStatement,
        values: Mapping[str, object],
        catalogue: QueryCatalogue,
        value_of: ValueOf,
        check: Callable[[], None],
    ) -> Planned:
        """Rewrite the statement for the engine.

        Args:
            values: parameter → value, of the parameters that have values already.
            value_of: computes a constant in the engine.

        Raises QueryError naming what a cube cannot answer, and the error that `check` raises.
        """
        tree = completed(
            self._trees.get(statement.text, statement.database).tree, statement.given, statement.zone
        )
        folding = _Folding(value_of, values)
        context = Context(
            catalogue=catalogue, fold=folding, information_tables=INFORMATION_TABLES, check=check
        )
        return Planned(rewrite(tree, context), folding.varies)

    def shown(self, condition: str, first: str) -> str:
        """Return the engine's SQL for the rows of `shown` that meet the condition of a SHOW.

        Args:
            first: the column that a LIKE alone is about.

        Raises QueryError for anything but a filter.
        """
        like = re.fullmatch(r"like\s+('(?:[^']|'')*'|\"[^\"]*\")", condition, re.IGNORECASE)
        rest = f"where lower(`{first}`) like lower({like[1]})" if like else condition
        tree = parse(f"select * from shown {rest}").tree
        tables = [node.name for node in tree.find_all(exp.Table)]
        if tables != ["shown"] or tree.find(exp.Anonymous, exp.Parameter) or not isinstance(tree, exp.Select):
            raise UnsupportedSql(f"unsupported SHOW filter: {rest[:80]}")
        for literal in list(tree.find_all(exp.Like)):
            pattern = literal.expression
            text = pattern.find(exp.Literal)
            if text is not None:  # `\_` is how clients quote the wildcard
                literal.replace(exp.Escape(this=literal.copy(), expression=exp.Literal.string("\\")))
        return engine_sql(tree)


class _Trees:
    """The TREES_CACHED_MAX most recently used of those whose texts are short, and the last one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cache: LRUCache[Hashable, StatementTree] = LRUCache(TREES_CACHED_MAX)
        self._last: tuple[Hashable, StatementTree] | None = None

    def get(self, text: str, database: str | None) -> StatementTree:
        key = (database, text)
        with self._lock:
            known = self._cache.get(key)
            if known is not None:
                return known
            last, self._last = self._last, None
        if last is not None and last[0] == key:
            return last[1]  # a text is read, and then planned once
        tree = parse(text, database)
        with self._lock:
            if len(text) > TEXT_CHARACTERS_MAX:
                self._last = (key, tree)
                return tree
            self._cache[key] = tree
        return tree

    def forget_last(self) -> None:
        with self._lock:
            self._last = None


class _Folding:
    """Computes the values of constant expressions.

    Attributes:
        varies: True if an expression was computed that is not constant.
    """

    def __init__(self, value_of: ValueOf, parameters: Mapping[str, object]) -> None:
        self.varies = False
        self._value_of = value_of
        self._parameters = parameters

    def __call__(self, expression: exp.Expr) -> object:
        self.varies |= not all(isinstance(node, _CONSTANT) for node in expression.walk())
        return fold(self._value_of, expression, self._parameters)
