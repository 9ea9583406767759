"""A lookup over a stored table: answers as over a file with the same rows, and as of one moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import date

import duckdb
import msgspec
import pytest
from rtolap.base.errors import QueryError
from rtolap.model.stored.table import Buckets, RangePartitions, StoredColumn, StoredTable
from rtolap.model.table import Column, Lookup
from rtolap.protocols.stored_tables.messages import AddColumn, RenameColumn, TableName
from rtolap.query.statement_service import QueryService

from tests.support.cubes.flights import AIRLINE_ROWS
from tests.support.query.oracles.sql_oracle import asked_of, rows_of
from tests.support.query.query_world import QueryWorld
from tests.support.stored.stored_world import StoredWorld
from tests.support.waiting import patience_s

CHANGES_WORLD = True

CARRIERS = TableName("shop", "carriers")
CARRIERS_TABLE = StoredTable(
    database="shop",
    name="carriers",
    model="unique",
    keys=("carrier",),
    columns=(
        StoredColumn("carrier", "string", nullable=False),
        StoredColumn("founded", "int"),
        StoredColumn("name", "string"),
    ),
    buckets=Buckets(3),
)
LINES = Lookup(
    name="lines",
    stored_table="shop.carriers",
    keys=("carrier",),
    columns=(Column("carrier", "string"), Column("name", "string")),
)
QUERIES = [
    "select * from airlines",
    "select count(*) n from airlines",
    "select upper(Name) n from Airlines where CARRIER <> 'UA'",
    "select a.name, count(*) n, sum(f.delay) s from flights f join airlines a on f.carrier = a.carrier"
    " group by a.name",
    "select a.carrier, count(f.origin) n, count(*) m from airlines a left join flights f"
    " on f.carrier = a.carrier group by a.carrier",
    "select a.name, f.origin, max(f.delay) m from flights f left join airlines a on a.carrier = f.carrier"
    " where a.name like 'A%' or f.origin = 'JFK' group by 1, 2",
    "select count(*) n from flights where carrier in (select carrier from airlines where name <> 'United')",
    "select distinct origin from flights where carrier = 'AA' union select name from airlines",
    "select a.carrier, (select count(*) from flights f where f.carrier = a.carrier) n from airlines a",
    "select name from airlines a where exists (select 1 from flights f where f.carrier = a.carrier)",
    "with r as (select carrier c, count(*) n from flights group by 1) select a.name, r.n from airlines a"
    " join r on r.c = a.carrier where r.n > 3",
    "with airlines as (select 'x' as carrier from rtolap.airlines) select carrier from airlines",
    "select a.name, b.name other from airlines a join airlines b on a.carrier < b.carrier",
]


@pytest.fixture(scope="module")
def stored() -> Iterator[StoredWorld]:
    with StoredWorld() as made:
        made.catalogue.create_table(CARRIERS_TABLE)
        made.load(CARRIERS, [{"carrier": "AA", "founded": 1, "name": "to be replaced"}])
        rows = AIRLINE_ROWS.to_pylist()
        for row in rows:
            made.load(CARRIERS, [{**row, "founded": 1900}])
        yield made


@pytest.fixture(scope="module")
def asked(world: QueryWorld, stored: StoredWorld) -> Iterator[QueryService]:
    world.metadata.create_lookup(LINES)
    service = world.service(stored=stored.source)
    yield service
    service.close()


@pytest.mark.parametrize("sql", QUERIES)
def test_answers_equal_those_over_the_raw_events(
    asked: QueryService, oracle: duckdb.DuckDBPyConnection, sql: str
) -> None:
    over_stored = sql.replace("airlines", "lines").replace("Airlines", "Lines")
    expected = asked_of(oracle, sql.replace("rtolap.airlines", "main.airlines"))
    found = asked.execute(over_stored).table()
    assert rows_of(found) == rows_of(expected)
    assert [name.lower() for name in found.column_names] == [
        name.lower().replace("airlines", "lines") for name in expected.column_names
    ]
    described, _ = asked.describe(over_stored)
    assert described.names == found.column_names
    assert rows_of(asked.execute(sql).table()) == rows_of(expected), "a lookup over a file answers alike"


def test_roll_up_rows_are_grouped_by_columns_of_the_lookup(asked: QueryService) -> None:
    sql = "select f.carrier, a.name, f.delay from flights f join {} a on a.carrier = f.carrier"
    found, expected = (asked.execute(sql.format(name)).table() for name in ("lines", "airlines"))
    assert found.num_rows > 1
    assert rows_of(found) == rows_of(expected)


def test_only_its_columns_are_there_and_only_those_asked_for_are_read(
    asked: QueryService, stored: StoredWorld
) -> None:
    with pytest.raises(QueryError, match="unknown column 'founded'"):
        asked.execute("select founded from lines").table()
    stored.source.scanned.clear()
    asked.execute("select name from lines where carrier = 'AA'").table()
    requests = [request for _, request in stored.source.scanned]
    assert requests
    assert {request.columns for request in requests} == {("carrier", "name")}
    assert all(request.filter is not None for request in requests)
    shown = asked.execute("explain select name from lines").table().to_pylist()
    assert {"item": "stored table", "value": "shop.carriers, as lines"} in shown
    columns = "select column_name c from information_schema.columns where table_name = 'lines'"
    assert asked.execute(columns).table().column("c").to_pylist() == ["carrier", "name"]


def test_all_parts_of_a_statement_see_the_same_rows(asked: QueryService, stored: StoredWorld) -> None:
    """The lookup twice and its stored table once, in one read view, while rows are replaced."""
    before = asked.execute("select carrier, name from lines").table().to_pylist()
    over = threading.Event()

    def load(name: str) -> None:
        stored.load(CARRIERS, [{**row, "name": name} for row in before])

    def replace() -> None:
        number = 0
        while not over.is_set():
            number += 1
            load(f"n{number}")

    load("n0")
    loading = threading.Thread(target=replace)
    loading.start()
    try:
        names: set[str] = set()
        asks, deadline_s = 0, time.monotonic() + patience_s(60)
        while (asks < 15 or len(names) < 2) and time.monotonic() < deadline_s:
            asks += 1
            rows = asked.execute(
                "select a.name x, b.name y, c.name z from lines a join lines b on a.carrier = b.carrier"
                " join shop.carriers c on c.carrier = a.carrier"
            ).table()
            assert rows.num_rows == len(before)
            seen = {value for row in rows.to_pylist() for value in row.values()}
            assert len(seen) == 1, "an answer mixes loads"
            names |= seen
    finally:
        over.set()
        loading.join()
        stored.load(CARRIERS, [{**row, "founded": 1900} for row in before])
    assert len(names) > 1, "nothing was replaced meanwhile"


@pytest.mark.parametrize(
    ("lookup", "says"),
    [
        (msgspec.structs.replace(LINES, stored_table="shop.nothing"), "has no rows to read"),
        (msgspec.structs.replace(LINES, columns=(Column("carrier", "int"),)), "expected string; found int"),
        (
            msgspec.structs.replace(LINES, columns=(*LINES.columns, Column("nam", "string"))),
            "no such column in shop.carriers; .* did you mean 'name'",
        ),
        (msgspec.structs.replace(LINES, keys=("name",)), "do not identify rows of shop.carriers"),
        (msgspec.structs.replace(LINES, stored_table="shop.visits"), "rows of shop.visits are not unique"),
    ],
)
def test_a_lookup_that_does_not_fit_its_table_says_so_when_it_is_read(
    asked: QueryService, world: QueryWorld, stored: StoredWorld, lookup: Lookup, says: str
) -> None:
    visits = StoredTable(
        database="shop",
        name="visits",
        keys=("carrier",),
        columns=(StoredColumn("carrier", "string"), StoredColumn("name", "string")),
    )
    stored.catalogue.create_table(visits)
    wrong = msgspec.structs.replace(lookup, name="wrong")
    world.metadata.create_lookup(wrong)
    try:
        with pytest.raises(QueryError, match=says):
            asked.execute("select count(*) from wrong").table()
    finally:
        world.metadata.drop_lookup("wrong")
    assert asked.execute("select count(*) n from lines").table().to_pylist() == [{"n": 3}]


def test_columns_may_come_and_a_renamed_one_is_named(
    asked: QueryService, world: QueryWorld, stored: StoredWorld
) -> None:
    table = StoredTable(
        database="shop",
        name="ports",
        model="unique",
        keys=("port", "since"),
        columns=(
            StoredColumn("port", "string", nullable=False),
            StoredColumn("since", "date", nullable=False),
            StoredColumn("town", "string"),
        ),
        partitions=RangePartitions("since", "year", ahead=0),
    )
    stored.catalogue.create_table(table)
    columns = (Column("town", "string"), Column("port", "string"), Column("since", "date"))
    ports = Lookup(name="ports", stored_table="shop.ports", keys=("since", "port"), columns=columns)
    world.metadata.create_lookup(ports)
    name = TableName("shop", "ports")
    rows = [
        {"port": "JFK", "since": "1948-07-01", "town": "New York"},
        {"port": "LGA", "since": "1939-10-15", "town": "Queens"},
    ]
    from_text = [{**row, "since": date.fromisoformat(row["since"])} for row in rows]
    stored.load(name, from_text)
    sql = "select town, port from ports where since < '1945-01-01'"
    assert asked.execute(sql).table().to_pylist() == [{"town": "Queens", "port": "LGA"}]
    stored.catalogue.change_columns("shop", "ports", [AddColumn(StoredColumn("runways", "int"))])
    assert asked.execute("select * from ports order by port").table().column_names == [
        "town",
        "port",
        "since",
    ]
    stored.catalogue.change_columns("shop", "ports", [RenameColumn("town", "city")])
    service = world.service(stored=stored.source)  # that has not looked at the columns before
    try:
        with pytest.raises(QueryError, match=r"lookup ports does not fit .* no such column in shop.ports"):
            service.execute(sql).table()
    finally:
        service.close()
