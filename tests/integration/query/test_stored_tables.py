"""Stored tables through the MySQL endpoint: defining, looking around, asking, by a client's own protocol."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from typing import Any

import httpx
import pyarrow as pa
import pymysql
import pytest
import sqlalchemy as sa
from pyroaring import BitMap64
from rtolap.columnar.hll import coupons
from rtolap.columnar.hll_image import sketches_from_coupons
from rtolap.columnar.sketches import image_of_bitmap
from rtolap.protocols.stored_tables.messages import TableName

from tests.support.query.query_endpoints import DEFINING_USER, PASSWORD, TOKEN, Endpoints, open_endpoints
from tests.support.query.query_world import QueryWorld
from tests.support.stored.stored_world import StoredWorld

CREATE = """
create table shop.visits (
  page varchar(50) not null, seen datetime not null, hits bigint sum default '0', who hll hll_union,
  ids bitmap bitmap_union
) aggregate key(page, seen)
auto partition by range (date_trunc(seen, 'day')) () distributed by hash(page) buckets 2
properties ('replication_num' = '1')
"""
MONDAY, TUESDAY = datetime(2023, 11, 13), datetime(2023, 11, 14, 5)


def hll(*values: str) -> bytes:
    lists = pa.array([coupons(pa.array(values)).to_pylist()], pa.list_(pa.uint32()))
    image: bytes = sketches_from_coupons(lists, 12)[0].as_py()
    return image


def bitmap(*values: int) -> bytes:
    return image_of_bitmap(BitMap64(values))


THE_13TH = "values [('2023-11-13'), ('2023-11-14'))"
VISITS = [
    {"page": "a", "seen": MONDAY, "hits": 2, "who": hll("x", "y"), "ids": bitmap(1, 2)},
    {"page": "a", "seen": MONDAY, "hits": 3, "who": hll("y", "z"), "ids": bitmap(2, 3)},
    {"page": "a", "seen": TUESDAY, "hits": 4, "who": hll("z"), "ids": bitmap(3)},
    {"page": "b", "seen": TUESDAY, "hits": 5, "who": None, "ids": None},
]


@pytest.fixture(scope="module")
def stored() -> Iterator[StoredWorld]:
    with StoredWorld() as made:
        yield made


@pytest.fixture(scope="module")
def stored_endpoints(flights: QueryWorld, stored: StoredWorld) -> Iterator[Endpoints]:
    with open_endpoints(flights, stored=stored.source) as opened:
        yield opened


@pytest.fixture(scope="module")
def connection(stored_endpoints: Endpoints, stored: StoredWorld) -> Iterator[pymysql.connections.Connection]:
    with closing(stored_endpoints.connect(user=DEFINING_USER)) as opened:
        ask(opened, CREATE)
        stored.load(TableName("shop", "visits"), VISITS[:1])
        stored.load(TableName("shop", "visits"), VISITS[1:])
        yield opened


def ask(connection: pymysql.connections.Connection, sql: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select page, sum(hits) from shop.visits group by page order by page", [("a", 9), ("b", 5)]),
        (
            "select page, hll_union_agg(who), approx_count_distinct(who), ndv(who), count(distinct who), "
            "bitmap_union_count(ids), count(distinct ids) from shop.visits group by page order by page",
            [("a", 3, 3, 3, 3, 3, 3), ("b", 0, 0, 0, 0, 0, 0)],
        ),
        (
            "select seen, hll_cardinality(who), bitmap_count(ids) from shop.visits where page = 'a' "
            "order by seen",
            [(MONDAY, 3, 3), (TUESDAY, 1, 1)],
        ),
        (
            "select hll_cardinality(hll_union(who)), bitmap_count(bitmap_union(ids)) from shop.visits",
            [(3, 3)],
        ),
        ("select hll_union_agg(who), bitmap_union_count(ids) from shop.visits where page = 'none'", [(0, 0)]),
        ("select sum(v.hits) from shop.visits v where v.seen < '2023-11-14'", [(5,)]),
        ("show tables from shop", [("visits",)]),
        ("show databases like 'sh%'", [("shop",)]),
        (
            "describe shop.visits",
            [
                ("page", "varchar(65535)", "NO", "PRI", None, ""),
                ("seen", "datetime(6)", "NO", "PRI", None, ""),
                ("hits", "decimal(38,0)", "YES", "", "0", "SUM"),
                ("who", "hll", "YES", "", None, "HLL_UNION"),
                ("ids", "bitmap", "YES", "", None, "BITMAP_UNION"),
            ],
        ),
        (
            "select table_schema, table_name, table_comment from information_schema.tables "
            "where table_schema = 'shop'",
            [("shop", "visits", "stored table, aggregate model")],
        ),
        (
            "select column_name, ordinal_position from information_schema.columns "
            "where table_name = 'visits' and ordinal_position > 3 order by 2",
            [("who", 4), ("ids", 5)],
        ),
        ("show transaction from shop where label = 'nobody'", []),
    ],
)
def test_statements_are_answered(
    connection: pymysql.connections.Connection, sql: str, expected: list[tuple[Any, ...]]
) -> None:
    assert ask(connection, sql) == expected


def test_partitions_are_shown(connection: pymysql.connections.Connection) -> None:
    rows = ask(connection, "show partitions from shop.visits")
    assert [(name, visible, buckets, replicas) for name, visible, _, _, _, buckets, replicas in rows] == [
        ("p20231113", "2", "2", "4"),
        ("p20231114", "1", "2", "4"),
    ]
    assert rows[0][3:5] == ("2023-11-13 00:00:00", "2023-11-14 00:00:00")


def test_what_show_create_table_says_makes_the_table(connection: pymysql.connections.Connection) -> None:
    ((name, text),) = ask(connection, "show create table shop.visits")
    assert name == "visits"
    ask(connection, text.replace("`visits`", "`copied`"))
    ((_, again),) = ask(connection, "show create table shop.copied")
    assert again.replace("`copied`", "`visits`") == text
    ask(connection, "drop table shop.copied")


def test_partitions_are_added_and_dropped(connection: pymysql.connections.Connection) -> None:
    ask(
        connection,
        "create table shop.made (at datetime not null) partition by range(at) () "
        "properties ('dynamic_partition.time_unit' = 'DAY', 'dynamic_partition.end' = '0')",
    )
    add = (
        "alter table shop.made add partition if not exists p20231117 "
        'values [("2023-11-17 00:00:00"), ("2023-11-18 00:00:00")) ("replication_num" = "1")'
    )
    for _ in range(2):
        ask(connection, add)
        assert "replication_num has no effect" in str(ask(connection, "show warnings"))
    ask(connection, "alter table shop.made add partition p20231118 values less than ('2023-11-19')")
    names = [name for name, *_ in ask(connection, "show partitions from shop.made")]
    assert names == ["p20231114", "p20231117", "p20231118"]
    for _ in range(2):
        ask(connection, "alter table shop.made drop partition if exists p20231117")
    names = [name for name, *_ in ask(connection, "show partitions from shop.made")]
    assert names == ["p20231114", "p20231118"]
    ask(connection, "drop table shop.made")


def test_a_database_is_chosen(
    stored_endpoints: Endpoints, connection: pymysql.connections.Connection
) -> None:
    with closing(stored_endpoints.connect(user=DEFINING_USER, database="shop")) as here:
        assert ask(here, "select count(*) from visits") == [(3,)]
        assert ask(here, "show tables") == [("visits",)]
        assert ask(here, "select database()") == [("shop",)]
        assert ask(here, "select count(*) > 0 from rtolap.flights") == [(1,)]
        ask(here, "create table brief (a int)")
        assert ask(here, "show tables") == [("brief",), ("visits",)]
        ask(here, "drop table brief")
        ask(here, "use rtolap")
        with pytest.raises(pymysql.Error) as caught:
            ask(here, "select count(*) from visits")
        assert caught.value.args[0] == 1146
    with pytest.raises(pymysql.Error) as refused:
        stored_endpoints.connect(database="nowhere")
    assert refused.value.args[0] == 1049


def test_columns_change(stored: StoredWorld, connection: pymysql.connections.Connection) -> None:
    ask(connection, "create table shop.changing (id int not null, old string) unique key(id)")
    stored.load(TableName("shop", "changing"), [{"id": 1, "old": "x"}])
    ask(connection, "alter table shop.changing add column n int default '7', rename column old to name")
    stored.load(TableName("shop", "changing"), [{"id": 2, "name": "y", "n": 0}])
    assert ask(connection, "select * from shop.changing order by id") == [(1, "x", 7), (2, "y", 0)]
    ask(connection, "alter table shop.changing drop column name")
    assert ask(connection, "select * from shop.changing order by id") == [(1, 7), (2, 0)]
    ask(connection, "truncate table shop.changing")
    assert ask(connection, "select count(*), max(n) from shop.changing") == [(0, None)]
    ask(connection, "drop table shop.changing")
    ask(connection, "drop table if exists shop.changing")


def test_a_statement_without_effect_in_part_says_so(connection: pymysql.connections.Connection) -> None:
    ask(connection, "create table shop.noted (a int) comment 'x' properties ('replication_num' = '2')")
    warnings = ask(connection, "show warnings")
    assert [level for level, _, _ in warnings] == ["Note", "Note"]
    assert "replication_num has no effect" in str(warnings)
    ask(connection, "drop table shop.noted")


@pytest.mark.parametrize(
    ("sql", "code", "words"),
    [
        ("create table shop.visits (a int)", 1050, "is there already"),
        ("create table rtolap.t (a int)", 1235, "unsupported"),
        ("create table shop.t (a int, a int)", 1105, "declared twice"),
        ("create table shop.t (a json)", 1235, "unsupported type JSON"),
        ("create table shop.t (a int", 1064, "bad SQL"),
        ("drop table shop.nope", 1146, "unknown table"),
        ("alter table shop.visits drop column page", 1105, "cannot be dropped"),
        ("alter table shop.visits drop column nope", 1054, "no column nope"),
        ("alter table shop.visits add partition p20231113 values less than ('2023-11-14')", 1105, "no lower"),
        (f"alter table shop.visits add partition p20231113 {THE_13TH}", 1517, "is there already"),
        (f"alter table shop.visits add partition p13 {THE_13TH}", 1105, "expected p20231113"),
        ("alter table shop.visits add partition p values [('2023-11-13'), ('2023-11-15'))", 1105, "one day"),
        ("alter table shop.visits drop partition p20300101", 1507, "no partition p20300101"),
        ("alter table shop.nope drop partition p20300101", 1146, "unknown table"),
        ("alter table rtolap.flights drop partition if exists p", 1235, "unsupported"),
        ("show partitions from rtolap.flights", 1105, "has no partitions"),
        ("insert into shop.visits values (1)", 1235, "unsupported"),
    ],
)
def test_errors_name_what_is_wrong(
    connection: pymysql.connections.Connection, sql: str, code: int, words: str
) -> None:
    with pytest.raises(pymysql.Error) as caught:
        ask(connection, sql)
    assert caught.value.args[0] == code
    assert words in caught.value.args[1]


@pytest.mark.parametrize(
    "sql",
    ["create table shop.mine (a int)", "drop table shop.visits", "truncate table shop.visits",
     "alter table shop.visits drop column hits"],
)  # fmt: skip
def test_others_may_only_ask(
    stored_endpoints: Endpoints, connection: pymysql.connections.Connection, sql: str
) -> None:
    with closing(stored_endpoints.connect()) as other:
        assert ask(other, "select count(*) from shop.visits") == [(3,)]
        with pytest.raises(pymysql.Error) as caught:
            ask(other, sql)
        assert caught.value.args[0] == 1142
        assert "has not the right to define" in caught.value.args[1]
        assert ask(other, "select count(*) from shop.visits") == [(3,)]


def test_sqlalchemy_reflects_and_asks(
    stored_endpoints: Endpoints, connection: pymysql.connections.Connection
) -> None:
    engine = sa.create_engine(stored_endpoints.sqlalchemy_url)
    try:
        table = sa.Table("visits", sa.MetaData(), schema="shop", autoload_with=engine)
        assert [column.name for column in table.columns] == ["page", "seen", "hits", "who", "ids"]
        with engine.connect() as opened:
            count = opened.execute(sa.select(sa.func.sum(table.c.hits)).where(table.c.page == "a"))
            assert count.scalar_one() == 9
    finally:
        engine.dispose()


def test_http_answers_and_says_what_was_read(
    stored_endpoints: Endpoints, connection: pymysql.connections.Connection
) -> None:
    answer = httpx.post(
        f"{stored_endpoints.http_url}/api/v1/query",
        json={"sql": "select count(*) n from shop.visits where seen >= '2023-11-14'"},
        auth=(DEFINING_USER, PASSWORD),
    )
    assert answer.json()["rows"] == [[2]]
    explained = httpx.post(
        f"{stored_endpoints.http_url}/api/v1/query",
        json={"sql": "explain select hits from shop.visits where seen >= '2023-11-14'"},
        headers={"Authorization": f"Bearer {TOKEN}"},
    )
    said = dict(explained.json()["rows"])
    assert said["stored table"] == "shop.visits"
    assert (said["partitions"], said["pruned partitions"]) == ("p20231114", "p20231113")
    assert said["columns"] == "seen, hits"
