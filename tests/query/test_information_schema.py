"""information_schema says what DESCRIBE says, with the columns that clients ask for."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from rtolap.model.stored.table import StoredColumn, StoredTable
from rtolap.query.described import described
from rtolap.query.information_schema import INFORMATION_TABLES, information_columns
from rtolap.query.statement_service import QueryService
from rtolap.query.statements.show_answers import Shows
from rtolap.query.statements.shows import show_of
from rtolap.query.statements.sql_session import SqlSession

from tests.support.query.query_world import QueryWorld
from tests.support.stored.stored_world import StoredWorld

PEOPLE = StoredTable(
    database="shop",
    name="people",
    model="unique",
    keys=("id", "part"),
    columns=(
        StoredColumn("id", "bigint", nullable=False),
        StoredColumn("part", "int", nullable=False),
        StoredColumn("table_name", "string", default="none"),
        StoredColumn("paid", "decimal(10,2)", nullable=False, default="0"),
        StoredColumn("is_ok", "boolean"),
        StoredColumn("seen", "timestamp"),
    ),
)


@pytest.fixture(scope="module")
def asked(world: QueryWorld) -> Iterator[QueryService]:
    with StoredWorld() as stored:
        stored.catalogue.create_table(PEOPLE)
        service = world.service(stored=stored.source)
        yield service
        service.close()


def rows(table: pa.Table) -> list[tuple[object, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def ask(service: QueryService, sql: str) -> list[tuple[object, ...]]:
    return rows(service.execute(sql).table())


def show(service: QueryService, sql: str) -> pa.Table:
    asked = show_of(sql)
    assert asked is not None
    return Shows(service, list).answer(asked, SqlSession(1, "ann", "localhost"))


@pytest.mark.parametrize(("database", "table"), [("shop", "people"), ("rtolap", "flights")])
def test_columns_are_as_describe_says(asked: QueryService, database: str, table: str) -> None:
    from_schema = ask(
        asked,
        "select column_name, column_type, is_nullable, column_key, column_default, extra "
        f"from information_schema.columns where table_schema = '{database}' and table_name = '{table}' "
        "order by ordinal_position",
    )
    assert from_schema == rows(show(asked, f"describe {database}.{table}"))
    if table == "people":
        assert from_schema[0] == ("id", "bigint", "NO", "PRI", None, "")
        assert from_schema[2] == ("table_name", "varchar(65535)", "YES", "", "none", "")
        assert from_schema[3] == ("paid", "decimal(10,2)", "NO", "", "0", "")


def test_keys_are_told_everywhere_alike(asked: QueryService) -> None:
    expected = [("PRIMARY", 1, "id"), ("PRIMARY", 2, "part")]
    assert expected == ask(
        asked,
        "select constraint_name, ordinal_position, column_name from information_schema.key_column_usage "
        "where table_name = 'people' order by ordinal_position",
    )
    statistics = (
        "select index_name, seq_in_index, column_name from information_schema.statistics "
        "where table_schema = 'shop' order by seq_in_index"
    )
    assert ask(asked, statistics) == expected
    shown = show(asked, "show keys from shop.people")
    assert rows(shown.select(["Key_name", "Seq_in_index", "Column_name"])) == expected
    assert rows(shown.select(["Table", "Non_unique"])) == [("people", 0)] * 2
    assert ask(asked, "select table_name, constraint_type from information_schema.table_constraints") == [
        ("people", "PRIMARY KEY")
    ]
    assert rows(show(asked, "show keys from flights")) == []


@pytest.mark.parametrize("name", sorted(INFORMATION_TABLES))
def test_every_table_has_its_columns_in_any_spelling(asked: QueryService, name: str) -> None:
    columns = ", ".join(column.lower() for column in information_columns(name))
    found = asked.execute(f"select {columns} from information_schema.{name.upper()}").table()
    starred = asked.execute(f"select * from information_schema.{name}").table()
    assert found.num_columns == starred.num_columns == len(information_columns(name))
    assert starred.column_names == list(information_columns(name))


def test_an_alias_that_is_a_column_is_used_again_and_in_having(asked: QueryService) -> None:
    """As Connector/J and MariaDB's Java client write it; a stored column called alike changes nothing."""
    assert ask(
        asked,
        "select TABLE_SCHEMA as TABLE_CAT, case data_type when 'bigint' then -5 else 1 end as DATA_TYPE, "
        "upper(case when data_type = 'bigint' then numeric_precision else 1 end) as TYPE_NAME, "
        "Table_Name from information_schema.columns where TABLE_NAME like 'peop%' "
        "having DATA_TYPE = -5 order by TABLE_CAT",
    ) == [("shop", -5, "19", "people")]
    assert ask(
        asked,
        "select table_name, case when table_type = 'BASE TABLE' then 'TABLE' else 'VIEW' end as table_type "
        "from information_schema.tables having table_type in ('TABLE', null) order by table_name limit 1",
    ) == [("airlines", "TABLE")]


def test_what_there_is_none_of_has_no_rows_but_its_columns(asked: QueryService) -> None:
    routines = "select routine_comment, routine_type, sql_data_access from information_schema.routines"
    assert ask(asked, routines) == []
    joined = (
        "select r.update_rule, k.referenced_table_name from information_schema.key_column_usage k "
        "join information_schema.referential_constraints r using (constraint_name)"
    )
    assert ask(asked, joined) == []


def test_a_cubes_columns_say_how_they_may_be_used(asked: QueryService) -> None:
    catalogue = asked.catalogue()
    comments = {column.name: column.comment for column in described(catalogue, "flights")}
    assert comments["carrier"] == "dimension"
    assert comments["delay"] == "measure: count, count_distinct, max, min, sum"
