"""Stored tables in SQL, over real tablets, beside the cubes of a small world."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import datasketches
import duckdb
import pyarrow as pa
import pytest
from rtolap.base.errors import QueryError, StaleSnapshot, Unavailable
from rtolap.columnar.hll import coupons
from rtolap.columnar.hll_image import sketches_from_coupons
from rtolap.columnar.schema import COUPONS
from rtolap.model.stored.table import Buckets, RangePartitions, StoredColumn, StoredTable, TableModel
from rtolap.protocols.stored_tables.messages import AddColumn, DropColumn, RenameColumn, TableName
from rtolap.query.statement_service import QueryLimits, QueryService

from tests.support.query.query_world import QueryWorld
from tests.support.stored.stored_world import StoredWorld

DAY = datetime(2023, 11, 10)
MODELS: tuple[TableModel, ...] = ("duplicate", "aggregate", "unique")
ORDERS = TableName("shop", "orders_duplicate")


@pytest.fixture(scope="module")
def stored() -> Iterator[StoredWorld]:
    with StoredWorld() as made:
        yield made


@pytest.fixture(scope="module")
def asked(world: QueryWorld, stored: StoredWorld, rows: list[dict[str, Any]]) -> Iterator[QueryService]:
    for model in MODELS:
        table = orders(model)
        stored.catalogue.create_table(table)
        for start in range(0, len(rows), 300):
            stored.load(TableName("shop", table.name), rows[start : start + 300])
    carriers = StoredTable(
        database="shop",
        name="carriers",
        model="unique",
        keys=("carrier",),
        columns=(StoredColumn("carrier", "string", nullable=False), StoredColumn("alliance", "string")),
    )
    stored.catalogue.create_table(carriers)
    stored.load(
        TableName("shop", "carriers"),
        [{"carrier": "AA", "alliance": "one"}, {"carrier": "UA", "alliance": "star"}],
    )
    service = world.service(stored=stored.source)
    yield service
    service.close()


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    rng = random.Random(5)
    return [
        {
            "id": rng.randint(1, 60),
            "sold": DAY + timedelta(days=rng.randint(0, 3)),
            "kind": rng.choice(["a", "b", "ä", None]),
            "amount": Decimal(rng.randint(-500, 500)).scaleb(-2),
            "weight": rng.choice([None, rng.random()]),
        }
        for _ in range(600)
    ]


def orders(model: TableModel) -> StoredTable:
    functions = {"kind": "MAX", "amount": "SUM", "weight": "REPLACE"} if model == "aggregate" else {}
    kinds = {"id": "int", "sold": "timestamp", "kind": "string", "amount": "decimal(9,2)", "weight": "double"}
    columns = tuple(
        StoredColumn(name, kind, nullable=name not in ("id", "sold"), aggregate=functions.get(name))  # type: ignore[arg-type]
        for name, kind in kinds.items()
    )
    return StoredTable(
        database="shop",
        name=f"orders_{model}",
        model=model,
        keys=("id", "sold"),
        columns=columns,
        partitions=RangePartitions("sold", "day", ahead=1),
        buckets=Buckets(2, ("id",)),
    )


def merged(model: TableModel, rows: list[dict[str, Any]]) -> pa.Table:
    """The obvious way to what a table of the model holds after these rows, in their order."""
    schema = pa.schema(
        [
            ("id", pa.int32()),
            ("sold", pa.timestamp("us")),
            ("kind", pa.string()),
            ("amount", pa.decimal128(38, 2)),
            ("weight", pa.float64()),
        ]
    )
    kept: dict[tuple[Any, Any], dict[str, Any]] = {}
    for row in rows:
        key = (row["id"], row["sold"])
        before = kept.get(key)
        if before is None or model == "unique":
            kept[key] = dict(row)
        elif model == "aggregate":
            kinds = [kind for kind in (before["kind"], row["kind"]) if kind is not None]
            before["kind"] = max(kinds, key=str.encode, default=None)
            before["amount"] += row["amount"]
            before["weight"] = row["weight"]
    return pa.Table.from_pylist(rows if model == "duplicate" else list(kept.values()), schema)


QUERIES = [
    "select count(*) n from {t}",
    "select count(*) n, count(kind) k, sum(amount) s, min(weight) w from {t} where kind = 'a'",
    "select kind, count(*) n, sum(amount) s from {t} group by kind order by kind",
    "select id, sum(amount) s from {t} where sold >= '2023-11-11' and sold < '2023-11-13'"
    " group by id order by id",
    "select count(*) n from {t} where id in (1, 2, 3) or kind is null",
    "select * from {t} where id = 7 order by sold, kind, amount, weight",
    "select count(distinct id) d, max(sold) m from {t} where amount > 1.5 and not (kind = 'b')",
    "select a.id, count(*) n from {t} a join {t} b on a.id = b.id and a.sold < b.sold"
    " where a.kind = 'a' group by a.id order by a.id",
]


@pytest.fixture(scope="module")
def oracle(rows: list[dict[str, Any]]) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        opened.execute("SET default_null_order = 'nulls_first'")
        for model in MODELS:
            opened.register(f"wanted_{model}", merged(model, rows))
        yield opened


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("sql", QUERIES)
def test_answers_equal_a_recount(
    asked: QueryService, oracle: duckdb.DuckDBPyConnection, model: TableModel, sql: str
) -> None:
    found = asked.execute(sql.format(t=f"shop.orders_{model}")).table()
    expected = oracle.execute(sql.format(t=f"wanted_{model}")).fetchall()
    assert [tuple(row.values()) for row in found.to_pylist()] == expected


def test_filters_columns_and_partitions_go_to_the_nodes(asked: QueryService, stored: StoredWorld) -> None:
    stored.source.scanned.clear()
    asked.execute(
        "select sum(amount) from shop.orders_duplicate where sold = '2023-11-12' and kind like 'a%'"
    ).table()
    requests = [request for _, request in stored.source.scanned]
    assert {request.tablet.partition for request in requests} == {"p20231112"}
    assert sorted(request.tablet.bucket for request in requests) == [0, 1]
    assert {request.columns for request in requests} == {("amount",)}  # the nodes judge the condition
    assert all(request.filter is not None for request in requests)


def test_an_outer_join_keeps_its_rows(asked: QueryService) -> None:
    found = asked.execute(
        "select count(*) n, count(c.alliance) known from (select 'AA' carrier union all select 'ZZ') x "
        "left join shop.carriers c on c.carrier = x.carrier where c.alliance is null"
    ).table()
    assert found.to_pylist() == [{"n": 1, "known": 0}]


def test_a_cube_is_joined_with_a_stored_table(asked: QueryService) -> None:
    joined = asked.execute(
        "select c.alliance, count(*) n from flights f join shop.carriers c on c.carrier = f.carrier "
        "group by c.alliance order by c.alliance"
    ).table()
    alone = asked.execute(
        "select case f.carrier when 'AA' then 'one' else 'star' end alliance, count(*) n from flights f "
        "where f.carrier in ('AA', 'UA') group by 1 order by 1"
    ).table()
    assert joined.num_rows > 0
    assert joined.to_pylist() == alone.to_pylist()


def test_a_database_can_be_taken_as_read(asked: QueryService) -> None:
    statement = asked.check("with x as (select alliance from carriers) select count(*) n from x", "shop")
    assert asked.execute(statement).table().to_pylist() == [{"n": 2}]
    with pytest.raises(QueryError, match="unknown table"):
        asked.execute(asked.check("select count(*) from flights", "shop"))


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("select nope from shop.carriers", "unknown column 'nope' in shop.carriers"),
        ("select c.nope from shop.carriers c", "unknown column 'nope'"),
        ("select 1 from shop.nope", "unknown table 'shop.nope'"),
        ("select 1 from nowhere.carriers", "unknown database 'nowhere'"),
        ("select hll_union_agg(alliance) from shop.carriers", "counts no sketch"),
    ],
)
def test_what_is_not_there_is_named(asked: QueryService, sql: str, words: str) -> None:
    with pytest.raises(QueryError, match=words):
        asked.execute(sql)


def test_another_replica_answers_for_one_that_is_away(asked: QueryService, stored: StoredWorld) -> None:
    whole = asked.execute("select count(*) n from shop.orders_unique").table()
    for node in ("n1", "n2", "n3"):
        stored.nodes.away = {node}
        try:
            assert asked.execute("select count(*) n from shop.orders_unique").table() == whole
        finally:
            stored.nodes.away = set()


def test_without_any_replica_there_is_no_answer(asked: QueryService, stored: StoredWorld) -> None:
    stored.nodes.away = {"n1", "n2", "n3"}
    try:
        with pytest.raises(Unavailable, match="no node gives tablet"):
            asked.execute("select count(*) n from shop.carriers", cancellation=asked.cancellation(60_000))
    finally:
        stored.nodes.away = set()


def test_a_stale_version_is_read_again_from_a_new_view(asked: QueryService, stored: StoredWorld) -> None:
    left = [3]

    def stale(node: str, request: object) -> None:
        if left[0]:
            left[0] -= 1
            raise StaleSnapshot("compaction has passed it")

    stored.source.before_scan = stale
    try:
        found = asked.execute("explain analyze select count(*) n from shop.carriers").table()
    finally:
        stored.source.before_scan = lambda node, request: None
    said = dict(zip(*found.to_pydict().values(), strict=True))
    assert said["read views"] == "2"
    assert said["rows read"] == "1"  # one partial count, of the only bucket that has rows


def test_a_view_is_never_mixed(asked: QueryService, stored: StoredWorld) -> None:
    """A load that becomes visible while tablets are read is in the answer whole or not at all."""
    pair = StoredTable(
        database="shop",
        name="pairs",
        columns=(StoredColumn("side", "int"), StoredColumn("sold", "date", nullable=False)),
        keys=("side",),
        partitions=RangePartitions("sold", "day", ahead=0),
        buckets=Buckets(2, ("side",)),
    )
    stored.catalogue.create_table(pair)
    name = TableName("shop", "pairs")
    both = [{"side": side, "sold": DAY.date() + timedelta(days=side % 2)} for side in range(8)]
    stored.load(name, both)
    loads = [3]

    def load_more(node: str, request: object) -> None:
        if loads[0]:
            loads[0] -= 1
            stored.load(name, both)

    service = asked
    stored.source.before_scan = load_more
    try:
        found = service.execute("select side, count(*) n from shop.pairs group by side").table()
    finally:
        stored.source.before_scan = lambda node, request: None
    assert found.num_rows == 8
    assert len(set(found.column("n").to_pylist())) == 1


def test_columns_change_between_statements(asked: QueryService, stored: StoredWorld) -> None:
    table = StoredTable(
        database="shop",
        name="changing",
        columns=(StoredColumn("id", "int", nullable=False), StoredColumn("old", "string")),
        keys=("id",),
        model="unique",
    )
    stored.catalogue.create_table(table)
    name = TableName("shop", "changing")
    stored.load(name, [{"id": 1, "old": "x"}])
    asked.catalogue()
    stored.catalogue.change_columns(
        "shop", "changing", (AddColumn(StoredColumn("new", "int", default="7")), RenameColumn("old", "text"))
    )
    stored.load(name, [{"id": 2, "text": "y", "new": 1}])
    found = asked.execute("select id, text, new from shop.changing order by id").table()
    assert [tuple(row.values()) for row in found.to_pylist()] == [(1, "x", 7), (2, "y", 1)]
    stored.catalogue.change_columns("shop", "changing", (DropColumn("text"),))
    with pytest.raises(QueryError, match="unknown column 'text'"):
        asked.execute("select text from shop.changing")


def test_more_than_memory_allows_is_refused(world: QueryWorld, stored: StoredWorld) -> None:
    service = world.service(QueryLimits(memory_bytes=4096), stored=stored.source)
    try:
        with pytest.raises(QueryError, match="reads more of stored tables than may be held"):
            service.execute("select * from shop.orders_duplicate")
    finally:
        service.close()


def test_the_library_reads_a_columns_sketches(asked: QueryService, stored: StoredWorld) -> None:
    visits = StoredTable(
        database="shop",
        name="visits",
        model="aggregate",
        keys=("page",),
        columns=(
            StoredColumn("page", "string", nullable=False),
            StoredColumn("who", "hll", aggregate="HLL_UNION"),
        ),
    )
    stored.catalogue.create_table(visits)
    for first in (0, 30):
        images = sketches_from_coupons(
            pa.array([coupons(pa.array([f"v{n}" for n in range(first, first + 60)])).to_pylist()], COUPONS),
            12,
        )
        stored.load(TableName("shop", "visits"), [{"page": page, "who": images[0].as_py()} for page in "ab"])
    sql = "select page, hll_sketch(who) h, hll_union_agg(who) n from shop.visits group by page"
    rows = asked.execute(sql).table().to_pylist()
    assert len(rows) == 2
    for row in rows:
        assert round(datasketches.hll_sketch.deserialize(row["h"]).get_estimate()) == row["n"] == 90
    with pytest.raises(QueryError, match="hll_sketch"):
        asked.execute("select hll_sketch(page) from shop.visits")
