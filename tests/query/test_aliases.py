"""Names that are aliases and columns at once; the answers are those of MariaDB 10.11."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rtolap.base.errors import QueryError
from rtolap.model.stored.table import StoredColumn, StoredTable
from rtolap.protocols.stored_tables.messages import TableName
from rtolap.query.statement_service import QueryService

from tests.support.query.query_world import QueryWorld
from tests.support.stored.stored_world import StoredWorld

ROWS = [("a", 1, 1), ("a", 5, 2), ("b", 2, 1), ("B", 9, 3), (None, 3, 1)]


@pytest.fixture(scope="module")
def asked(world: QueryWorld) -> Iterator[QueryService]:
    with StoredWorld() as stored:
        columns = (StoredColumn("c", "string"), StoredColumn("d", "int"), StoredColumn("g", "int"))
        stored.catalogue.create_table(
            StoredTable(database="shop", name="v", model="duplicate", keys=("c",), columns=columns)
        )
        stored.load(TableName("shop", "v"), [{"c": c, "d": d, "g": g} for c, d, g in ROWS])
        service = world.service(stored=stored.source)
        yield service
        service.close()


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (
            "select upper(c) c, concat(c, 'x') y, count(*) n from shop.v group by 1, 2 order by 1, 2",
            [(None, None, 1), ("A", "ax", 2), ("B", "Bx", 1), ("B", "bx", 1)],
        ),
        (
            "select upper(c) c, count(*) n from shop.v group by c order by 1, 2",
            [(None, 1), ("A", 2), ("B", 1), ("B", 1)],
        ),
        ("select upper(c) c, count(*) n from shop.v group by c having c = 'a'", [("A", 2)]),
        ("select upper(c) c, count(*) n from shop.v group by 1 having c = 'B'", [("B", 2)]),
        ("select max(d) d, c from shop.v group by c having d > 3 order by 1", [(5, "a"), (9, "B")]),
        ("select d + 1 d, g from shop.v having d > 3 order by d", [(4, 1), (6, 2), (10, 3)]),
        ("select d x, g from shop.v having x > 3 order by 1", [(5, 2), (9, 3)]),
        ("select d x, g from shop.v having d > 3 order by 1", [(5, 2), (9, 3)]),
        ("select d + 1 d, d + 2 e from shop.v where d > 2 order by d", [(4, 5), (6, 7), (10, 11)]),
        (
            "select concat(c, '1') c, length(c) l from shop.v having l > 0 and c like 'a%' order by d",
            [("a1", 1), ("a1", 1)],
        ),
        (
            "select g as k, sum(d) as d from shop.v group by k having d > 2 order by d",
            [(2, 5), (1, 6), (3, 9)],
        ),
        ("select sum(d) as d from shop.v having d > 2", [(20,)]),
        ("select c as g, g as c from shop.v having g = 'a' order by c", [("a", 1), ("a", 2)]),
        ("select t.d as D from shop.v t having D > 3 order by D", [(5,), (9,)]),
        (
            "select (select max(d) from shop.v x where x.g = v.g) d, g from shop.v having d > 3 "
            "order by g, d",
            [(5, 2), (9, 3)],
        ),
        ("select -d as d from shop.v order by abs(d)", [(-1,), (-2,), (-3,), (-5,), (-9,)]),
        ("select 1 from dual", [(1,)]),
        ("select 1 from DUAL where 1 = 2", []),
        ("select sql_no_cache d from shop.v where d > 3 order by 1", [(5,), (9,)]),
        ("select c from shop.v where c collate utf8mb4_bin = 'B'", [("B",)]),
    ],
)
def test_answers(asked: QueryService, sql: str, expected: list[tuple[object, ...]]) -> None:
    table = asked.execute(sql).table()
    assert list(zip(*(column.to_pylist() for column in table.columns), strict=True)) == expected


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("select sql_calc_found_rows d from shop.v limit 1", "SQL_CALC_FOUND_ROWS"),
        ("select c from shop.v where c collate utf8mb4_general_ci = 'B'", "COLLATE utf8mb4_general_ci"),
    ],
)
def test_what_would_change_the_answer_is_refused(asked: QueryService, sql: str, words: str) -> None:
    with pytest.raises(QueryError, match=words):
        asked.execute(sql)


def test_cubes_answer_by_the_same_rules(asked: QueryService) -> None:
    by_column = asked.execute(
        "select upper(carrier) carrier, count(*) n from flights group by carrier"
    ).table()
    by_name = asked.execute("select upper(carrier) u, count(*) n from flights group by carrier").table()
    assert sorted(map(str, zip(*by_column.to_pydict().values(), strict=True))) == sorted(
        map(str, zip(*by_name.to_pydict().values(), strict=True))
    )
