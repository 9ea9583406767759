"""The table of functions: its rows agree with the parser, the engine and the declared aggregates."""

from __future__ import annotations

import re
from collections import Counter
from typing import ClassVar

import duckdb
import msgspec
import pytest
import sqlglot
from rtolap.aggregates.approx_percentile import KLL_QUANTILE
from rtolap.aggregates.approx_top_k import TOP_K_JSON
from rtolap.aggregates.bit_or import BitOr
from rtolap.aggregates.by_time import PICKED_TEXT
from rtolap.aggregates.count_distinct import DISTINCT_SIZE
from rtolap.aggregates.function import Aggregate
from rtolap.aggregates.group_concat import JOINED_TEXTS, TEXTS_ARE_CUT
from rtolap.aggregates.registry import AGGREGATES
from rtolap.aggregates.sketch_bytes import SKETCH_BYTES
from rtolap.aggregates.variance import DEVIATION
from rtolap.base.errors import UnknownFunction
from rtolap.column_types import BIGINT
from rtolap.query.approval import engine_tree, nodes
from rtolap.query.engine_functions.checksums import CRC32
from rtolap.query.engine_functions.sketches import BITMAP_SIZE, HLL_ESTIMATE
from rtolap.query.functions import names as function_names
from rtolap.query.functions import table as function_table
from rtolap.query.sql.dialect import RtolapSql
from sqlglot import exp

OWN = {
    HLL_ESTIMATE,
    KLL_QUANTILE,
    PICKED_TEXT,
    TOP_K_JSON,
    BITMAP_SIZE,
    CRC32,
    DEVIATION,
    DISTINCT_SIZE,
    JOINED_TEXTS,
    TEXTS_ARE_CUT,
    *(each.engine_name for each in SKETCH_BYTES),
}  # functions that the product registers in the engine
SYNTAX = {
    "coalesce",
    "ifnull",
    "current_timestamp",
    "grouping",
}  # read by the engine's parser, not in its catalogue
CHANGES_BY_ITSELF = {"random"}


def catalogue() -> dict[str, set[tuple[str, str, bool]]]:
    """Return the engine's functions: name → kind, stability and whether it has side effects."""
    found: dict[str, set[tuple[str, str, bool]]] = {}
    with duckdb.connect() as engine:
        rows = engine.execute(
            "SELECT function_name, function_type, stability, has_side_effects FROM duckdb_functions()"
        ).fetchall()
    for name, kind, stability, effects in rows:
        found.setdefault(name, set()).add((kind, stability, effects))
    return found


def called(sql: str) -> set[str]:
    """Return the functions that the engine finds in a text."""
    with duckdb.connect() as engine:
        (text,) = engine.execute("SELECT json_serialize_sql($1)", [sql]).fetchall()[0]
    tree = msgspec.json.decode(text)
    assert not tree["error"], tree
    return {
        node["function_name"].lower()
        for node in engine_tree._nodes(tree["statements"])
        if node.get("class") in ("FUNCTION", "WINDOW")
    }


def test_no_name_and_no_row_stands_twice() -> None:
    counts = Counter(row.name for row in function_table.ROWS)
    assert {name for name, count in counts.items() if count > 1} == set()
    assert all(name == name.lower() for row in function_table.ROWS for name in (row.name, *row.engine))


def test_the_engines_functions_of_the_rows_are_in_its_catalogue_and_make_no_rows() -> None:
    known = catalogue()
    for name in sorted(function_table.ENGINE_NAMES - OWN - SYNTAX):
        kinds = {kind for kind, _, _ in known[name]}
        assert kinds <= {"scalar", "aggregate", "window", "macro"}, name
        changes = any(effects or stability == "VOLATILE" for _, stability, effects in known[name])
        assert changes == (name in CHANGES_BY_ITSELF), name


@pytest.mark.parametrize("word", ["read", "file", "glob", "setting", "variable", "env", "query", "exec"])
def test_no_engine_function_of_a_row_reaches_beyond_its_arguments(word: str) -> None:
    assert [name for name in sorted(function_table.ENGINE_NAMES) if word in name] == []


@pytest.mark.parametrize("kind", [None, BIGINT])
@pytest.mark.parametrize("function", [*AGGREGATES.values(), *SKETCH_BYTES], ids=lambda each: each.title)
def test_an_aggregate_names_every_engine_function_that_reads_it_back(
    function: Aggregate, kind: object
) -> None:
    text = re.sub(r":(\w+)", r"\1_partial", function.read(kind))  # type: ignore[arg-type]
    assert called(f"SELECT {text} FROM t") - {"/", "//"} <= set(function.engine_functions)


def test_a_declared_aggregate_has_its_row_without_a_line_in_a_list() -> None:
    class Skewness(BitOr):
        title: ClassVar[str] = "SKEWNESS"
        sql_key: ClassVar[str] = "skewness"
        engine_functions: ClassVar[tuple[str, ...]] = ("skewness",)

    (row,) = function_table.aggregate_rows([Skewness()])
    assert row == ("skewness", ("skewness",), ("skewness",))
    for function in AGGREGATES.values():
        if not function.in_count:  # else it is COUNT with a DISTINCT
            assert function.title.lower() in function_names.AGGREGATES
            assert {exp_key(function.sql_key)} <= nodes.ALLOWED
        assert set(function.engine_functions) <= engine_tree._ENGINE_FUNCTIONS


def exp_key(key: str) -> type[exp.Expr]:
    (kind,) = [each for each in exp.ALL_FUNCTIONS if each.key == key]
    return kind


def test_the_documented_names_are_those_of_the_rows() -> None:
    named = (
        *function_names.FUNCTIONS,
        *function_names.SESSION_FUNCTIONS,
        *function_names.SKETCH_FUNCTIONS,
    )
    assert sorted(named) == sorted(row.name for row in function_table.ROWS)


@pytest.mark.parametrize(
    "call",
    [
        "MEDIAN(x)",
        "QUANTILE(x, 0.5)",
        "PERCENTILE_CONT(x, 0.5)",
        "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY x)",
        "PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY x)",
    ],
)
def test_exact_quantiles_are_refused_with_what_to_ask_for_instead(call: str) -> None:
    with pytest.raises(UnknownFunction, match="APPROX_PERCENTILE"):
        nodes.approve(sqlglot.parse_one(f"SELECT {call} FROM t", dialect=RtolapSql))
