"""The engine's own parse tree of a text, checked against what a statement may contain.

The engine parses the text and returns its tree as JSON. Every node has to be of a listed kind, and every
function, type and relation a listed one, without a schema or a catalogue in front. Quoting and comments
cannot hide anything, because the check looks at what the engine would do.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import duckdb
import msgspec
from cachetools import LRUCache

from rtolap.base.errors import SqlSyntaxError, UnknownTable, UnsupportedSql
from rtolap.query.functions.names import unknown_function
from rtolap.query.functions.table import ENGINE_NAMES
from rtolap.query.macros.registry import NAMES as MACROS

_OPERATORS = (
    *("+", "-", "*", "/", "//", "%", "&", "|", "~", "<<", ">>", "||", "xor", "row", "~~", "!~~"),
    *("like_escape", "not_like_escape", "regexp_matches"),
)
# Names that stand in the engine's own tree after every documented function was rewritten. REPEAT and its
# like, which make long texts out of short ones, are called through macros that bound them.
_ENGINE_FUNCTIONS = frozenset((*_OPERATORS, *ENGINE_NAMES, *MACROS))
_ENGINE_TYPES = frozenset(
    (
        *("BIGINT", "BLOB", "BOOLEAN", "DATE", "DECIMAL", "DOUBLE", "FLOAT", "HUGEINT", "INT128"),
        *("INTEGER", "INTERVAL", "JSON", "REAL", "SMALLINT", "TEXT", "TIME", "TIMESTAMP"),
        *("TINYINT", "UBIGINT", "UINTEGER", "USMALLINT", "UTINYINT", "VARCHAR"),
    )
)
TEXTS_CACHED_MAX = 4096
_OTHERWISE = "write it another way"
TEXT_CHARACTERS_MAX = 4096  # characters

_EXPRESSIONS = frozenset(
    (
        *("BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT"),
        *("FUNCTION", "OPERATOR", "PARAMETER", "STAR", "SUBQUERY", "TYPE", "WINDOW"),
    )
)
_QUERIES = frozenset(("SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"))
_SOURCES = frozenset(("BASE_TABLE", "SUBQUERY", "JOIN", "EMPTY", "EXPRESSION_LIST"))
_MODIFIERS = frozenset(("ORDER_MODIFIER", "LIMIT_MODIFIER", "DISTINCT_MODIFIER"))
_ORDERS = frozenset(("ORDER_DEFAULT", "ASCENDING", "DESCENDING"))
_KINDS = _QUERIES | _SOURCES | _MODIFIERS | _ORDERS


log = logging.getLogger(__name__)


class EngineTexts:
    """A parser of the engine that runs nothing. Approved texts are cached. Thread-safe."""

    def __init__(self, parser: duckdb.DuckDBPyConnection) -> None:
        """Create a parser.

        Args:
            parser: a connection that nothing else uses; `close` closes it.
        """
        self._lock = threading.Lock()
        self._parser = parser
        views = self._parser.execute("SELECT view_name FROM duckdb_views()").fetchall()
        self._views = frozenset(str(name).lower() for (name,) in views)  # the engine's own
        self._approved: LRUCache[str, frozenset[str]] = LRUCache(TEXTS_CACHED_MAX)

    def close(self) -> None:
        with self._lock:
            self._parser.close()

    def approve(self, sql: str) -> frozenset[str]:
        """Return the relations that the text reads, common table expressions left out.

        Raises QueryError for a text that is not one SELECT of what is allowed.
        """
        with self._lock:
            known = self._approved.get(sql)
        if known is not None:
            return known
        relations = _checked(self._tree(sql), self._views)
        if len(sql) <= TEXT_CHARACTERS_MAX:
            with self._lock:
                self._approved[sql] = relations
        return relations

    def _tree(self, sql: str) -> Mapping[str, Any]:
        try:
            with self._lock:
                (text,) = self._parser.execute("SELECT json_serialize_sql($1)", [sql]).fetchall()[0]
        except duckdb.Error as error:
            raise SqlSyntaxError(
                "bad SQL: the engine cannot read the statement", action=_OTHERWISE
            ) from error
        read: Mapping[str, Any] = msgspec.json.decode(text)
        if read["error"]:
            log.info("the embedded engine cannot read a text: %s", read["error_message"])
            raise SqlSyntaxError("bad SQL: the engine cannot read the statement", action=_OTHERWISE)
        return read


def _checked(read: Mapping[str, Any], views: frozenset[str]) -> frozenset[str]:
    if len(read["statements"]) != 1:
        raise SqlSyntaxError(
            "bad SQL", expected="one statement", found=f"{len(read['statements'])} statements"
        )
    relations: set[str] = set()
    tables: set[str] = set()
    for node in _nodes(read["statements"]):
        if "class" in node:
            _check_expression(node)
        elif isinstance(node.get("type"), str):
            _check_kind(node)
            if node["type"] == "BASE_TABLE":
                _check_unqualified(node, "catalog_name", "schema_name")
                name = str(node["table_name"])
                if (
                    name.lower() in views
                ):  # also under a common table expression's name, which hides it in part
                    raise UnknownTable(f"unknown table {name!r}")
                relations.add(name)
        if "cte_map" in node:
            tables |= {str(entry["key"]).lower() for entry in node["cte_map"]["map"]}
        if node.get("sample") is not None or node.get("at_clause") is not None:
            raise UnsupportedSql("unsupported SQL: a sample or a version of a table")
    return frozenset(name for name in relations if name.lower() not in tables)


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield every object of the tree, without recursion: a text may be nested deeply."""
    left = [tree]
    while left:
        node = left.pop()
        if isinstance(node, dict):
            yield node
            left.extend(node.values())
        elif isinstance(node, list):
            left.extend(node)


def _check_expression(node: Mapping[str, Any]) -> None:
    kind = node["class"]
    if kind not in _EXPRESSIONS:
        raise UnsupportedSql(f"unsupported SQL: {str(kind).lower()}")
    if kind in ("FUNCTION", "WINDOW"):
        _check_unqualified(node, "catalog", "schema")
        name = str(node["function_name"])
        if name.lower() not in _ENGINE_FUNCTIONS:
            raise unknown_function(name)
    elif kind == "TYPE":
        _check_unqualified(node, "catalog", "schema")
        if str(node["type_name"]).upper() not in _ENGINE_TYPES:
            raise UnsupportedSql(f"unsupported SQL: the type {node['type_name']}")
    elif kind == "STAR" and (node.get("columns") or node.get("expr") is not None):
        raise UnsupportedSql("unsupported SQL: COLUMNS(…)")


def _check_kind(node: Mapping[str, Any]) -> None:
    if node["type"] not in _KINDS:
        raise UnsupportedSql(f"unsupported SQL: {str(node['type']).lower().replace('_', ' ')}")


def _check_unqualified(node: Mapping[str, Any], *parts: str) -> None:
    if any(node.get(part) for part in parts) or len((node.get("qualified_name") or {}).get("path", "1")) != 1:
        raise UnsupportedSql("unsupported SQL: a name of the engine's own catalogue")
