"""The headers that say what becomes of a body's columns and rows."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

import msgspec
import pyarrow as pa
import pytest
from pyroaring import BitMap64
from rtolap.base.errors import DefinitionError
from rtolap.columnar.hll import coupons
from rtolap.columnar.hll_image import estimate, sketches_from_coupons
from rtolap.model.stored.schema import SchemaColumn, StoredSchema
from rtolap.model.stored.table import StoredColumn
from rtolap.stored.bodies.clauses import parse_columns, parse_expression
from rtolap.stored.bodies.expressions import Engine
from rtolap.stored.bodies.options import load_options

from tests.support.stored.body_tables import (
    Decoded,
    aggregate_schema,
    decoded,
    plain_schema,
    sketch_schema,
    unique_schema,
)


def comma(body: bytes, schema: StoredSchema, **headers: str) -> Decoded:
    return decoded(body, schema, column_separator=",", **headers)


def test_columns_name_the_fields_in_order_and_the_rest_has_defaults() -> None:
    found = comma(b"2.5,7\n", unique_schema(), columns="price, k")
    assert found.rows == [{"k": 7, "price": Decimal("2.50"), "s": "none", "at": None}]


def test_a_column_without_default_that_may_not_be_null_must_be_given() -> None:
    with pytest.raises(DefinitionError, match="column k has no default value"):
        comma(b"x\n", unique_schema(), columns="s")


def test_columns_may_be_computed_of_fields_that_the_table_has_not() -> None:
    found = comma(
        b"1,2,ab,20240131\n2,x,\\N,20240230\n",
        unique_schema(),
        columns="k, n, t, d, price = n * k + 0.5, s = upper(concat(t, '-', k)), "
        "at = str_to_date(d, '%Y%m%d')",
    )
    assert found.rows == [
        {"k": 1, "price": Decimal("2.50"), "s": "AB-1", "at": datetime(2024, 1, 31)},
        {"k": 2, "price": None, "s": None, "at": None},
    ]


def test_a_field_may_be_computed_over_itself() -> None:
    found = comma(b"5,x\n", plain_schema(), columns="k, s, k = k + 1, s = left(concat(s, 'yz'), 2)")
    assert found.rows == [{"k": 6, "s": "xy"}]


def test_what_cannot_be_computed_for_a_row_is_null_there() -> None:
    found = comma(b"1,4\n2,-1\n", plain_schema(), columns="k, n, s = sqrt(n)")
    assert found.rows == [{"k": 1, "s": "2"}, {"k": 2, "s": None}]
    refused = comma(b"1,4\n2,-1\n", plain_schema(), columns="a, n, k = sqrt(n)")
    assert refused.refused == [(2, "2,-1", "column(k) is null, but the column is not nullable")]


@pytest.mark.parametrize("zone", ["UTC", "Asia/Shanghai", "+05:30", "-03:00"])
def test_instants_are_shown_in_the_time_zone_of_the_load(zone: str) -> None:
    shown = {"UTC": "00:00", "Asia/Shanghai": "08:00", "+05:30": "05:30", "-03:00": "21:00"}[zone]
    found = comma(
        b"1,0\n",
        plain_schema(),
        columns="k, t, s = from_unixtime(t, '%H:%i')",
        timezone=zone,
    )
    assert found.rows == [{"k": 1, "s": shown}]
    found = comma(b"1,2024-01-31 22:30:00Z\n", unique_schema(), columns="k, at", timezone="Asia/Shanghai")
    assert found.rows[0]["at"] == datetime(2024, 2, 1, 6, 30)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("length('Grüße')", "7"),
        ("char_length('Grüße')", "5"),
        ("ifnull(t, 'n')", "n"),
        ("if(k > 3, 'more', 'less')", "more"),
        ("case k when 5 then 'five' else 'other' end", "five"),
        ("k div 2", "2"),
        ("substr('abcdef', 2, 3)", "bcd"),
        ("split_part('a-b-c', '-', 2)", "b"),
        ("date_format(date_add('2024-01-31', interval 1 month), '%d.%m.%Y')", "29.02.2024"),
        ("datediff('2024-03-01', '2024-02-01')", "29"),
        ("cast('12' as int) + 1", "13"),
        ("k in (1, 5) and not k between 6 and 7", "true"),
        ("coalesce(null, t, concat(k))", "5"),
        ("round(2.345, 2)", "2.35"),
        ("regexp_replace('a1b2', '[0-9]', '#')", "a#b#"),
        ("ifnull(t, 0)", "0"),
        ("ifnull(t, 0) + 1", "1"),
        ("if(k > 3, t, 7)", None),
        ("case when t is null then k else t end", "5"),
        ("left('42x', 2) * 2", "84"),
        ("hour('2024-01-31 10:20:30') + minute('2024-01-31 10:20:30')", "30"),
        ("quarter('2024-05-02')", "2"),
    ],
)
def test_functions_mean_what_they_mean_in_sql(written: str, expected: str | None) -> None:
    found = comma(b"5,\\N\n", plain_schema(), columns=f"k, t, s = {written}")
    assert found.rows == [{"k": 5, "s": expected}]


@pytest.mark.parametrize(
    "written",
    [
        "(select 1)",
        "k in (select 1)",
        "read_csv('/etc/passwd')",
        "read_text('/etc/passwd')",
        "getenv('HOME')",
        "current_setting('x')",
        "sum(k)",
        "row_number() over ()",
        "@@version",
        "@x",
        "?",
        "other.k",
        "k; drop table x",
        "1 from information_schema.tables",
        "k, 1",
        "*",
        "repeat('x', 1000000000)",
        "sleep(10)",
        "date_trunc(k, `day'); create table x(i int); --`)",
        "cast(k as decimal(`9, 1))) from rows; create or replace macro upper(x) as 1; --`, 1)) = 1",
        "cast(k as decimal(`9`, 1)) = 1",
        "rtrim(",
        "",
    ],
)
def test_expressions_reach_nothing_but_the_row(written: str) -> None:
    with pytest.raises(DefinitionError, match="header where"):
        parse_expression("where", written)


@pytest.mark.parametrize(
    "written", ["a b", "a,,b", "a, a", "a, nope = a", "a, b = nope", "a, k = 1, k = 2", ","]
)
def test_bad_columns_are_refused_before_the_body_is_read(written: str) -> None:
    with pytest.raises(DefinitionError):
        comma(b"1\n", plain_schema(), columns=written)


@pytest.mark.parametrize("where", ["(" * 3000 + "k" + ")" * 3000, "k" + " + 1" * 5000, "not " * 3000 + "k"])
def test_expressions_nested_without_end_are_refused_or_computed(where: str) -> None:
    found: object
    try:
        found = comma(b"1,a\n", plain_schema(), where=where).total
    except DefinitionError as error:
        found = error
    assert found == 1 or any(
        reason in str(found) for reason in ("header where", "nested too deeply", "expression depth limit")
    )


@pytest.mark.parametrize(
    "written",
    [
        "replace(replace(v, 'a', 'aaaa'), 'a', 'aaaa')",
        f"replace(v, 'a', '{'a' * 9}')",
        "replace(v, 'a', v)",
        "replace(v, k, 'b')",
        "regexp_replace(v, '', 'aaaaaaaaa')",
        "concat(" + ", ".join(["v"] * 9) + ")",
        "concat(concat(concat(concat(v, v), concat(v, v)), concat(v, v)), concat(v, v), v)",
        "concat(k, '" + "x" * 20_000 + "')",
        "date_format(k, v)",
        "length(replace(replace(v, 'a', 'aaaa'), 'a', 'aaaa'))",
    ],
)
def test_an_expression_that_makes_long_text_out_of_short_is_refused(written: str) -> None:
    with pytest.raises(DefinitionError, match=r"header columns: (text would become|replaced and put text)"):
        parse_expression("columns", written)


def test_an_expression_that_makes_text_a_few_times_longer_is_taken() -> None:
    parse_expression("columns", "concat_ws('-', upper(v), replace(v, '-', '--'), date_format(k, '%Y-%m-%d'))")
    parse_expression("columns", "concat(a, b, c, d, e, f, g, h, i, j, k)")


@pytest.mark.parametrize("sql", ["SELECT 1; CREATE TABLE x(i INT)", "CREATE TABLE x(i INT)", "SET threads=1"])
def test_the_engine_of_expressions_runs_one_select_and_nothing_else(sql: str) -> None:
    engine = Engine(64 << 20, "UTC")
    try:
        with pytest.raises(DefinitionError, match="more than to compute"):
            engine.query(sql, [pa.nulls(1)])
    finally:
        engine.close()


def test_names_may_be_quoted_and_the_list_in_parentheses() -> None:
    assert parse_columns("(`a b`, k)").sources == ("a b", "k")


def test_where_leaves_rows_out_that_are_neither_loaded_nor_refused() -> None:
    found = comma(
        b"1,a,9\n2,b,9\nx,c,9\n3,\\N,1\n",
        plain_schema(),
        columns="k, s, n",
        where="n > 5 and (s = 'a' or k > 2)",
    )
    assert found.rows == [{"k": 1, "s": "a"}]
    assert [number for number, _, _ in found.refused] == [3]
    assert (found.unselected, found.total) == (2, 4)


def test_a_merge_deletes_what_its_condition_says() -> None:
    body = b"1,2,a,\\N\n2,\\N,b,\\N\n"
    found = comma(body, unique_schema(), merge_type="MERGE", delete="price is null")
    assert [row["__delete_sign"] for row in found.rows] == [False, True]
    found = comma(body, unique_schema(), merge_type="DELETE")
    assert [row["__delete_sign"] for row in found.rows] == [True, True]
    assert "__delete_sign" not in comma(body, unique_schema(), merge_type="APPEND").rows[0]


def test_the_delete_sign_may_stand_in_the_body() -> None:
    found = comma(
        b"1,0\n2,1\n3,\\N\n4,x\n",
        unique_schema(),
        columns="k, __DORIS_DELETE_SIGN__",
        hidden_columns="__DORIS_DELETE_SIGN__",
    )
    assert [row["__delete_sign"] for row in found.rows] == [False, True, False]
    reason = "column(__DORIS_DELETE_SIGN__) is neither 0 nor 1, src value is x"
    assert found.refused == [(4, "4,x", reason)]


@pytest.mark.parametrize("sign", ["__DORIS_DELETE_SIGN__", "__DORIS_SEQUENCE_COL__"])
def test_a_hidden_column_that_the_header_columns_does_not_name_is_not_in_the_body(sign: str) -> None:
    """Flink's connector sends both with every load, whatever the table is."""
    for schema in (plain_schema(), unique_schema()):
        found = comma(b"1,a\n", schema, columns="`k`, `s`", hidden_columns=sign)
        assert [(row["k"], row["s"]) for row in found.rows] == [(1, "a")]
        assert "__delete_sign" not in found.rows[0]


def test_a_table_without_deletes_takes_the_sign_and_refuses_rows_that_ask_for_one() -> None:
    sign = "__DORIS_DELETE_SIGN__"
    reason = f"column({sign}) asks for a delete, which the table does not allow"
    for headers in ({}, {"columns": f"k, s, {sign}"}):
        found = comma(b"1,a,0\n2,b,1\n3,c,\\N\n", plain_schema(), hidden_columns=sign, **headers)
        assert found.rows == [{"k": 1, "s": "a"}, {"k": 3, "s": "c"}]
        assert found.refused == [(2, "2,b,1", reason)]
    body = b'{"k": 1, "s": "a"}\n{"k": 2, "s": "b", "__DORIS_DELETE_SIGN__": 1}\n'
    found = decoded(body, plain_schema(), format="json", hidden_columns=sign)
    assert found.rows == [{"k": 1, "s": "a"}]
    assert [why for _, _, why in found.refused] == [reason]


def test_deletes_need_a_table_that_allows_them() -> None:
    with pytest.raises(DefinitionError, match="header merge_type"):
        comma(b"1,a\n", plain_schema(), merge_type="DELETE")


def test_the_sequence_column_may_come_from_another_field() -> None:
    found = comma(
        b"1,2024-01-31 10:00:00\n",
        unique_schema(),
        columns="k, changed",
        function_column_sequence_col="changed",
    )
    assert found.rows[0]["at"] == datetime(2024, 1, 31, 10)
    with pytest.raises(DefinitionError, match="sequence_col"):
        comma(b"1,a\n", plain_schema(), function_column_sequence_col="s")


def test_partial_columns_give_nothing_that_the_body_has_not() -> None:
    found = comma(b"1,9\n", unique_schema(), columns="k, price", partial_columns="true")
    assert found.rows == [{"k": 1, "price": Decimal("9.00")}]
    found = comma(b"1,2\n", unique_schema(), columns="k, n, price = n + 1", partial_columns="true")
    assert found.rows == [{"k": 1, "price": Decimal("3.00")}]
    body = b"x,2024-01-31,1,9\n"
    found = comma(body, unique_schema(), columns="s, at, k, price", partial_columns="true")
    assert sorted(found.rows[0]) == ["at", "k", "price", "s"]


def test_partial_columns_need_keys_and_a_unique_table() -> None:
    with pytest.raises(DefinitionError, match="partial rows lack key columns; expected k"):
        comma(b"9\n", unique_schema(), columns="price", partial_columns="true")
    with pytest.raises(DefinitionError, match="header partial_columns; expected a unique table"):
        comma(b"1\n", plain_schema(), columns="k", partial_columns="true")


def test_partial_columns_name_the_sequence_under_another_name() -> None:
    found = comma(
        b"1,2024-01-31\n",
        unique_schema(),
        columns="k, changed",
        function_column_sequence_col="changed",
        partial_columns="true",
    )
    assert found.rows == [{"k": 1, "at": datetime(2024, 1, 31)}]


def test_partial_rows_of_what_a_new_row_must_have_can_only_delete() -> None:
    schema = with_needed_column()
    with pytest.raises(DefinitionError, match="partial rows lack must"):
        comma(b"1,9\n", schema, columns="k, price", partial_columns="true")
    found = comma(b"1\n2\n", schema, columns="k", partial_columns="true", merge_type="DELETE")
    assert found.rows == [{"k": 1, "__delete_sign": True}, {"k": 2, "__delete_sign": True}]
    found = comma(
        b"1,9\n2,8\n3,7\n",
        schema,
        columns="k, price",
        partial_columns="true",
        merge_type="MERGE",
        delete="price = 8",
        where="k < 3",
    )
    assert found.rows == [{"k": 2, "price": Decimal("8.00"), "__delete_sign": True}]
    reason = "column(must) has no default and may not be null, and a partial row lacks it"
    assert found.refused == [(1, "1,9", reason)]


def with_needed_column() -> StoredSchema:
    schema = unique_schema()
    needed = SchemaColumn(schema.next_id, StoredColumn("must", "int", nullable=False))
    return msgspec.structs.replace(schema, columns=(*schema.columns, needed), next_id=schema.next_id + 1)


@pytest.mark.parametrize(
    ("header", "value"),
    [("unique_key_update_mode", "UPDATE_FLEXIBLE_COLUMNS"), ("partial_update_new_key_behavior", "ERROR")],
)
def test_ways_to_update_that_there_are_not_are_refused(header: str, value: str) -> None:
    with pytest.raises(DefinitionError, match=f"header {header}"):
        load_options({header: value})


def test_the_mode_says_the_same_as_partial_columns() -> None:
    assert load_options({"unique_key_update_mode": "update_fixed_columns"}).partial_columns
    assert not load_options({"unique_key_update_mode": "UPSERT"}).partial_columns
    assert load_options({"partial_update_new_key_behavior": "append"}) == load_options({})


def test_negative_turns_sums_around_also_the_smallest() -> None:
    found = comma(b"a,5\nb,-2147483648\nc,\\N\n", aggregate_schema(), negative="true")
    assert [row["total"] for row in found.rows] == [-5, 2147483648, None]
    with pytest.raises(DefinitionError, match="header negative"):
        comma(b"1,a\n", plain_schema(), negative="true")


def test_sketches_are_made_of_fields() -> None:
    found = comma(
        b"1,anna,7\n2,\\N,x\n3,bert,-1\n",
        sketch_schema(),
        columns="k, u, i, users=hll_hash(u), ids=to_bitmap(i)",
    )
    one = coupons(pa.array(["anna"]))
    lists = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), one)
    assert found.rows[0]["users"] == sketches_from_coupons(lists, 12)[0].as_py()
    assert round(estimate(found.rows[2]["users"])) == 1
    assert list(BitMap64.deserialize(found.rows[0]["ids"])) == [7]
    assert (found.rows[1]["users"], found.rows[1]["ids"], found.rows[2]["ids"]) == (None, None, None)
    with pytest.raises(DefinitionError, match="hll_hash"):
        comma(b"1,a,7\n", sketch_schema(), columns="k, u, i, users=upper(u), ids=to_bitmap(i)")


def test_strict_mode_refuses_what_would_be_null_or_rounded() -> None:
    body = b"1,1.239,a,\\N\n2,12345678,a,\\N\n3,1,a,2024-02-30\n4,1.23,a,2024-02-29\n"
    loose = comma(body, unique_schema())
    assert [row["price"] for row in loose.rows] == [Decimal("1.24"), None, Decimal("1.00"), Decimal("1.23")]
    assert loose.rows[2]["at"] is None
    strict = comma(body, unique_schema(), strict_mode="true")
    assert [row["k"] for row in strict.rows] == [4]
    is_incorrect = "value is incorrect while strict mode is true, src value is"
    assert [reason for _, _, reason in strict.refused] == [
        f"column(price) {is_incorrect} 1.239; expected decimal(9,2)",
        f"column(price) {is_incorrect} 12345678; expected decimal(9,2)",
        f"column(at) {is_incorrect} 2024-02-30; expected timestamp",
    ]
