"""Sketches that SQL gives as bytes are read by the public library, wherever the events lie."""

from __future__ import annotations

import base64
import contextlib
import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen

import datasketches
import duckdb
import numpy as np
import pyarrow as pa
import pytest
import sqlglot
from rtolap.aggregates.function import Aggregate
from rtolap.aggregates.registry import AGGREGATES, BY_SQL_KEY
from rtolap.aggregates.sketch_bytes import SKETCH_BYTES, SketchBytes
from rtolap.base.errors import Corrupted, QueryError, SqlSyntaxError, UnsupportedSql
from rtolap.columnar.schema import EVENT_MS
from rtolap.query.engine_functions import sketch_bytes as unions
from rtolap.query.functions import names as function_names
from rtolap.query.functions import table as function_table
from rtolap.query.sql.dialect import RtolapSql
from rtolap.query.statement_service import QueryService

from tests.support.aggregates.measured import MEASURED, SCHEMA, Measured, measured_events
from tests.support.query.oracles.sql_oracle import asked_of, oracle_cursor
from tests.support.query.query_endpoints import TOKEN, Endpoints, open_endpoints
from tests.support.query.query_world import QueryWorld, value_text

SEED = 8000
KEYS = ("", "shop", "region", "hour_start", "shop, region")
WAYS = ("live", "half", "built")
UNIONS = {name: getattr(unions, name) for name in (each.engine_name for each in SKETCH_BYTES)}
SKETCHED = [
    (function, measured)
    for function in SKETCH_BYTES
    for measured in MEASURED
    if measured.function.name == function.declared.name
]
every_sketch = pytest.mark.parametrize(
    ("function", "measured"), SKETCHED, ids=[f"{f.title}-{m.column}" for f, m in SKETCHED]
)


@pytest.fixture(scope="module")
def services() -> Iterator[dict[str, QueryService]]:
    """The same events in receivers alone, half of them built, and all of them built."""
    with contextlib.ExitStack() as stack:
        made = {}
        for way, every in zip(WAYS, (0, 2, 1), strict=True):
            rng = random.Random(SEED)
            events = measured_events(rng, 600, limits=False).drop_columns([EVENT_MS])
            world = stack.enter_context(contextlib.closing(QueryWorld(SCHEMA, events, {})))
            for segment in world.segments()[::every] if every else ():
                world.build(segment, rng)
            made[way] = stack.enter_context(contextlib.closing(world.service()))
        yield made


@pytest.fixture(scope="module")
def oracle() -> Iterator[duckdb.DuckDBPyConnection]:
    events = measured_events(random.Random(SEED), 600, limits=False).drop_columns([EVENT_MS])
    with contextlib.closing(QueryWorld(SCHEMA, events, {})) as world, oracle_cursor() as connection:
        connection.register("measured", world.visible())
        yield connection


def by_key(table: pa.Table) -> dict[str, Any]:
    rows = [tuple(row.values()) for row in table.to_pylist()]
    return {repr([str(each) for each in row[:-1]]): row[-1] for row in rows}


def selected(keys: str, call: str) -> str:
    return f"SELECT {keys}{', ' if keys else ''}{call} v FROM measured" + (
        f" GROUP BY {keys}" if keys else ""
    )


def assert_holds(function: Aggregate, measured: Measured, image: bytes, values: list[Any]) -> None:
    """Read a sketch with the library, and hold what it says against the values."""
    (accumulator,) = (partial.accumulator for partial in measured.partials)
    match function.title:
        case "HLL_SKETCH":
            distinct = len({value_text(each) for each in values} - {""})  # the library ignores empty texts
            estimate = datasketches.hll_sketch.deserialize(image).get_estimate()
            assert abs(estimate - distinct) <= 1 + 5 * accumulator.relative_error * distinct
        case "KLL_SKETCH":
            sketch = datasketches.kll_doubles_sketch.deserialize(image)
            numbers = np.array([float(each) for each in values])
            assert sketch.n == len(numbers)
            middle = sketch.get_quantile(0.5, inclusive=True)
            assert (numbers < middle).mean() - 2 * accumulator.rank_error <= 0.5
            assert (numbers <= middle).mean() + 2 * accumulator.rank_error >= 0.5
        case "FREQUENT_ITEMS_SKETCH":
            items = datasketches.frequent_strings_sketch.deserialize(image)
            counts = Counter(value_text(each) for each in values)
            assert items.total_weight == counts.total()
            for text, number in counts.items():
                assert items.get_lower_bound(text) <= number <= items.get_upper_bound(text)
        case other:
            raise AssertionError(f"no check of {other}")


@every_sketch
@pytest.mark.parametrize("keys", KEYS)
def test_the_library_reads_the_values_of_each_group_wherever_they_lie(
    function: SketchBytes,
    measured: Measured,
    keys: str,
    services: dict[str, QueryService],
    oracle: duckdb.DuckDBPyConnection,
) -> None:
    sql = selected(keys, function.call(measured.column))
    values = by_key(asked_of(oracle, selected(keys, f"LIST({measured.column})")))
    found = {way: by_key(services[way].execute(sql).table()) for way in WAYS}
    for way in WAYS:
        assert found[way].keys() == values.keys()
        for key, image in found[way].items():
            present = [each for each in values[key] or () if each is not None]
            if not present:
                assert image is None, (way, key)
                continue
            assert_holds(function, measured, image, present)
    if function.title == "HLL_SKETCH":
        assert found["live"] == found["half"] == found["built"]  # the bytes follow from the values alone


@pytest.mark.parametrize("way", WAYS)
def test_what_the_library_says_is_what_sql_says(way: str, services: dict[str, QueryService]) -> None:
    sql = (
        "SELECT shop, APPROX_COUNT_DISTINCT(text) n, HLL_SKETCH(text) h, APPROX_TOP_K(text, 3) t, "
        "FREQUENT_ITEMS_SKETCH(text) f FROM measured GROUP BY shop"
    )
    rows = services[way].execute(sql).table().to_pylist()
    whole = datasketches.hll_union(9)
    for row in rows:
        sketch = datasketches.hll_sketch.deserialize(row["h"])
        assert round(sketch.get_estimate()) == row["n"]
        whole.update(sketch)
        items = datasketches.frequent_strings_sketch.deserialize(row["f"])
        for each in json.loads(row["t"]):
            assert items.get_estimate(each["value"]) == each["estimate"]
    (total,) = services[way].execute("SELECT APPROX_COUNT_DISTINCT(text) n FROM measured").table().to_pylist()
    assert round(whole.get_result(datasketches.tgt_hll_type.HLL_8).get_estimate()) == total["n"]


def test_groups_without_a_value_give_null(services: dict[str, QueryService]) -> None:
    calls = ", ".join(f"{function.call('price')} v{at}" for at, function in enumerate(SKETCH_BYTES))
    (row,) = services["half"].execute(f"SELECT {calls} FROM measured WHERE region > 5").table().to_pylist()
    assert list(row.values()) == [None] * len(SKETCH_BYTES)
    of_nothing = datasketches.hll_sketch(9, datasketches.tgt_hll_type.HLL_8).serialize_compact()
    lists = pa.array([[of_nothing], [None], [], None], pa.list_(pa.binary()))
    assert unions.hll_bytes(lists).to_pylist() == [None] * 4


@pytest.mark.parametrize("name", UNIONS)
def test_bytes_that_are_no_sketch_are_refused(name: str) -> None:
    with pytest.raises(Corrupted):
        UNIONS[name](pa.array([[b"no sketch at all"]], pa.list_(pa.binary())))


def test_bytes_go_through_functions_and_filters(services: dict[str, QueryService]) -> None:
    sql = (
        "SELECT HLL_SKETCH(text) h, HEX(HLL_SKETCH(text)) x, TO_BASE64(HLL_SKETCH(text)) b, "
        "OCTET_LENGTH(HLL_SKETCH(text)) n, HLL_SKETCH_AGG(text) s, "
        "HLL_SKETCH(text) FILTER (WHERE region = 0) f, HLL_SKETCH(CASE WHEN region = 0 THEN text END) c, "
        "KLL_SKETCH_AGG_DOUBLE(price) IS NULL k FROM measured"
    )
    (row,) = services["half"].execute(sql).table().to_pylist()
    assert row["h"] == row["s"] == bytes.fromhex(row["x"]) == base64.b64decode(row["b"])
    assert row["n"] == len(row["h"])
    assert row["f"] == row["c"] != row["h"]
    assert row["k"] is False


@pytest.mark.parametrize(
    ("sql", "error", "words"),
    [
        ("SELECT HLL_SKETCH(shop) FROM measured", QueryError, "cannot answer"),
        ("SELECT HLL_SKETCH(rate) FROM measured", QueryError, "not declared.*approx_distinct, column: rate"),
        ("SELECT KLL_SKETCH(text) FROM measured", QueryError, "not declared"),
        ("SELECT HLL_SKETCH(text, 3) FROM measured", SqlSyntaxError, "takes one column"),
        ("SELECT HLL_SKETCH(n) FROM (SELECT COUNT(*) n FROM measured) t", UnsupportedSql, "of a measure"),
    ],
)
def test_what_has_no_sketch_is_refused(
    sql: str, error: type[Exception], words: str, services: dict[str, QueryService]
) -> None:
    with pytest.raises(error, match=words):
        services["half"].execute(sql)


def test_every_function_is_read_and_listed_and_none_can_be_declared() -> None:
    for function in SKETCH_BYTES:
        assert BY_SQL_KEY[function.sql_key] is function
        assert function not in AGGREGATES.values()
        assert function.title.lower() in function_names.AGGREGATES
        assert function.engine_name in function_table.ENGINE_NAMES
        for name in (function.title, *function.spellings):
            (call,) = sqlglot.parse_one(f"SELECT {name}(x)", dialect=RtolapSql).expressions
            assert call.key == function.sql_key


@pytest.fixture(scope="module")
def endpoints() -> Iterator[Endpoints]:
    events = measured_events(random.Random(SEED), 200, limits=False).drop_columns([EVENT_MS])
    with contextlib.closing(QueryWorld(SCHEMA, events, {})) as world, open_endpoints(world) as opened:
        yield opened


def test_every_endpoint_gives_the_same_bytes(endpoints: Endpoints) -> None:
    sql = "SELECT shop, HLL_SKETCH(text) FROM measured GROUP BY shop"
    expected = dict(zip(*endpoints.service.execute(sql).table().to_pydict().values(), strict=True))
    arrow = pa.ipc.open_stream(_asked(endpoints, sql, "application/vnd.apache.arrow.stream")).read_all()
    assert dict(zip(*arrow.to_pydict().values(), strict=True)) == expected
    as_json = json.loads(_asked(endpoints, sql, "application/json"))["rows"]
    rows = {shop: base64.b64decode(image, validate=True) for shop, image in as_json}
    assert rows == expected
    with contextlib.closing(endpoints.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        assert dict(cursor.fetchall()) == rows
    assert all(datasketches.hll_sketch.deserialize(image).get_estimate() > 1 for image in rows.values())


def _asked(endpoints: Endpoints, sql: str, accept: str) -> bytes:
    body = json.dumps({"sql": sql}).encode()
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json", "Accept": accept}
    with urlopen(Request(f"{endpoints.http_url}/api/v1/query", body, headers)) as answer:
        return bytes(answer.read())
