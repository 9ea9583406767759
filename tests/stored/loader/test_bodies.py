"""Records → the table's columns → the body of a request."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal

import msgspec
import pyarrow as pa
import pytest
from rtolap.model.loader import Loader, LoaderColumn, LoaderSink
from rtolap.protocols.stream_load.messages import SchemaColumn, TableSchema
from rtolap.stored.loader.records.decode import RecordDecoder
from rtolap.stored.loader.records.encode import encode
from rtolap.stored.loader.states import StopCause, Stopped
from rtolap.stored.loader.target import target_of

LOADER = Loader(
    name="l",
    topic="t",
    database="d",
    table="t",
    columns=(LoaderColumn("at", "meta.at", "epoch_ms"), LoaderColumn("day", format="epoch_s")),
)
PLAIN = Loader(name="l", topic="t", database="d", table="t")
SCHEMA = TableSchema(
    properties=(
        SchemaColumn("id", "BIGINT", is_nullable="No"),
        SchemaColumn("name", "VARCHAR"),
        SchemaColumn("price", "DECIMAL64", precision="10", scale="2"),
        SchemaColumn("at", "DATETIMEV2"),
        SchemaColumn("day", "DATEV2"),
        SchemaColumn("share", "DOUBLE"),
        SchemaColumn("ok", "BOOLEAN", is_nullable="No", default="true"),
        SchemaColumn("small", "INT", is_nullable="No", default="7"),
    )
)


def decoder(loader: Loader = LOADER, schema: TableSchema = SCHEMA) -> RecordDecoder:
    return RecordDecoder(
        target_of(loader, schema),
        record_bytes_max=loader.record_bytes_max,
        unknown_columns=loader.unknown_columns,
    )


FULL = {
    "id": 1,
    "name": 'say "hi"\\, é\n\t,',
    "price": "12.50",
    "meta": {"at": 1_700_000_000_123, "left": "out"},
    "day": 1_700_000_000,
    "share": 0.1,
    "ok": False,
    "small": -3,
    "more": [1, 2],
}


def test_only_the_tables_columns_are_read_with_their_types() -> None:
    found = decoder().decode([json.dumps(FULL).encode(), b'{"id": 2}'])
    assert not len(found.rejects)
    assert found.rows.to_pylist() == [
        {
            "id": 1,
            "name": FULL["name"],
            "price": Decimal("12.50"),
            "at": datetime(2023, 11, 14, 22, 13, 20, 123_000),
            "day": date(2023, 11, 14),
            "share": 0.1,
            "ok": False,
            "small": -3,
        },
        {
            "id": 2,
            "name": None,
            "price": None,
            "at": None,
            "day": None,
            "share": None,
            "ok": True,
            "small": 7,
        },
    ]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (None, "tombstone"),
        (b"", "empty"),
        (b"{", "malformed_json"),
        (b"[1]", "not_an_object"),
        (b'{"name": "no id"}', "missing_value"),
        (b'{"id": null}', "missing_value"),
        (b'{"id": "x"}', "wrong_type"),
        (b'{"id": 1, "price": 1.555}', "wrong_type"),
        (b'{"id": 1, "small": 3000000000}', "wrong_type"),
        (b'{"id": 1, "name": "' + b"x" * (1 << 20) + b'"}', "too_large"),
        (b'{"id": 1, "name": "\xff"}', "invalid_utf8"),
    ],
)
def test_a_refused_record_is_named_and_costs_no_other(record: bytes | None, reason: str) -> None:
    good = b'{"id": 5}'
    found = decoder().decode([good, record, good])
    assert found.rejects.reason == [reason]
    assert found.rejects.index.tolist() == [1]
    assert found.rows.column("id").to_pylist() == [5, 5]


def test_unknown_fields_are_refused_on_request() -> None:
    strict = Loader(name="l", topic="t", database="d", table="t", unknown_columns="reject")
    found = decoder(strict).decode([b'{"id": 1, "other": 2}'])
    assert found.rejects.reason == ["unknown_column"]


def test_the_same_rows_give_the_same_bytes_in_every_format() -> None:
    rows = decoder().decode([json.dumps(FULL).encode(), b'{"id": 2}'] * 3).rows
    again = decoder().decode([json.dumps(FULL).encode(), b'{"id": 2}'] * 3).rows
    for form in ("arrow", "json", "csv"):
        assert encode(rows, form) == encode(again, form), form  # type: ignore[arg-type]


def test_an_arrow_body_is_a_stream_of_the_rows() -> None:
    rows = decoder().decode([json.dumps(FULL).encode(), b'{"id": 2}']).rows
    with pa.ipc.open_stream(encode(rows, "arrow")) as reader:
        assert reader.read_all().to_pylist() == rows.to_pylist()


def test_a_json_body_has_an_object_a_line_and_loses_no_digit() -> None:
    rows = decoder().decode([json.dumps(FULL).encode(), b'{"id": 2}']).rows
    first, second = [json.loads(line) for line in encode(rows, "json").splitlines()]
    assert first["price"] == "12.50"
    assert first["at"] == "2023-11-14 22:13:20.123000"
    assert first["name"] == FULL["name"]
    assert second == {**dict.fromkeys(first), "id": 2, "ok": True, "small": 7}


def test_a_csv_body_tells_null_from_empty_and_keeps_quotes_and_line_ends() -> None:
    rows = decoder().decode(
        [json.dumps(FULL | {"name": ""}).encode(), json.dumps(FULL).encode(), b'{"id": 2}']
    )
    text = encode(rows.rows, "csv").decode()
    assert text.startswith('1,"",12.50,2023-11-14 22:13:20.123000,2023-11-14,0.1,false,-3\n')
    assert '"say \\"hi\\"\\\\, é\n\t,"' in text
    assert text.endswith("2,\\N,\\N,\\N,\\N,\\N,true,7\n")


def test_a_table_that_cannot_be_filled_stops_the_loader() -> None:
    for schema, loader in (
        (
            TableSchema(properties=(SchemaColumn("h", "HLL"),)),
            Loader(name="l", topic="t", database="d", table="t"),
        ),
        (TableSchema(properties=(SchemaColumn("id", "BIGINT"),)), LOADER),
    ):
        with pytest.raises(Stopped) as stopped:
            target_of(loader, schema)
        assert stopped.value.cause is StopCause.TABLE_UNUSABLE


@pytest.mark.parametrize(
    ("schema", "ordered"),
    [
        (TableSchema(keys_type="DUP_KEYS"), False),
        (TableSchema(keys_type="UNIQUE_KEYS"), True),
        (TableSchema(keys_type="UNIQUE_KEYS", sequence_column="n"), False),
        (
            TableSchema(keys_type="AGG_KEYS", properties=(SchemaColumn("v", "INT", aggregation_type="SUM"),)),
            False,
        ),
        (
            TableSchema(
                keys_type="AGG_KEYS",
                properties=(SchemaColumn("v", "INT", aggregation_type="REPLACE_IF_NOT_NULL"),),
            ),
            True,
        ),
    ],
)
def test_batches_go_one_by_one_where_the_latest_row_wins(schema: TableSchema, ordered: bool) -> None:
    assert target_of(PLAIN, schema).ordered is ordered
    always = Loader(name="l", topic="t", database="d", table="t", order="always")
    assert target_of(always, schema).ordered


def one(source: LoaderColumn | None = None, **sink: object) -> Loader:
    return Loader(
        name="l",
        topic="t",
        database="d",
        table="t",
        columns=() if source is None else (source,),
        sink=LoaderSink(**sink),  # type: ignore[arg-type]
    )


K = SchemaColumn("k", "BIGINT", is_nullable="No")
UNKNOWN_TYPES = ("HLL", "BITMAP", "QUANTILE_STATE", "AGG_STATE", "PERCENTILE", "ARRAY", "MAP", "STRUCT",
                 "VARBINARY", "TIMESTAMPTZ", "A_TYPE_OF_TOMORROW")  # fmt: skip


@pytest.mark.parametrize("kind", UNKNOWN_TYPES)
def test_a_column_of_an_unknown_type_is_left_to_the_server_where_it_is_not_declared(kind: str) -> None:
    for column in (
        SchemaColumn("x", kind),
        SchemaColumn("x", kind, is_nullable=""),
        SchemaColumn("x", kind, is_nullable="No", default="[]"),
        SchemaColumn("x", kind, is_nullable="No", aggregation_type="HLL_UNION"),
    ):
        target = target_of(PLAIN, TableSchema(properties=(K, column)))
        assert ([each.name for each in target.columns], target.left_out) == (["k"], ("x",))
    strict = msgspec.structs.replace(PLAIN, unknown_columns="reject")
    found = decoder(strict, TableSchema(properties=(K, SchemaColumn("x", kind)))).decode([b'{"k":1,"x":[2]}'])
    assert found.rows.to_pylist() == [{"k": 1}], "a field of the table is no unknown one"


@pytest.mark.parametrize("kind", UNKNOWN_TYPES)
def test_a_column_of_an_unknown_type_that_must_have_a_value_is_named(kind: str) -> None:
    column = SchemaColumn("x", kind, is_nullable="No")
    schema = TableSchema(properties=(K, column))
    for loader, words in ((PLAIN, "takes no null"), (one(LoaderColumn("x")), "give it a `type`")):
        with pytest.raises(Stopped, match=words) as stopped:
            target_of(loader, schema)
        assert stopped.value.cause is StopCause.TABLE_UNUSABLE
    read = decoder(one(LoaderColumn("x", type="string")), schema).decode([b'{"k": 1, "x": "[2]"}'])
    assert read.rows.to_pylist() == [{"k": 1, "x": "[2]"}]


def test_json_and_addresses_are_sent_as_text() -> None:
    kinds = ("JSON", "JSONB", "VARIANT", "IPV4", "IPV6")
    schema = TableSchema(properties=tuple(SchemaColumn(kind.lower(), kind) for kind in kinds))
    assert {column.type.kind for column in target_of(PLAIN, schema).columns} == {"string"}


@pytest.mark.parametrize(
    ("nullable", "stated", "source", "expected"),
    [
        ("No", "7", None, 7),
        ("Yes", "7", None, None),
        ("", "7", None, 7),
        ("", None, None, None),
        ("Yes", "7", LoaderColumn("v", missing="default"), 7),
        ("Yes", "7", LoaderColumn("v", default="8", missing="default"), 8),
        ("No", "7", LoaderColumn("v", default="8"), 8),
        ("", None, LoaderColumn("v", default="8"), 8),
        ("No", "7", LoaderColumn("v", missing="null"), "refused"),
        ("No", None, None, "refused"),
    ],
)
def test_a_missing_value_follows_the_table_and_the_declaration(
    nullable: str, stated: str | None, source: LoaderColumn | None, expected: object
) -> None:
    column = SchemaColumn("v", "INT", is_nullable=nullable, default=stated)
    reader = decoder(one(source), TableSchema(properties=(K, column)))
    for record in (b'{"k": 1}', b'{"k": 1, "v": null}'):
        found = reader.decode([record])
        if expected == "refused":
            assert found.rejects.reason == ["missing_value"]
        else:
            assert found.rows.to_pylist() == [{"k": 1, "v": expected}]


def test_a_default_that_the_server_computes_is_left_to_it() -> None:
    column = SchemaColumn("at", "DATETIME", is_nullable="No", default="CURRENT_TIMESTAMP")
    schema = TableSchema(properties=(K, column))
    assert target_of(PLAIN, schema).left_out == ("at",)
    declared = decoder(one(LoaderColumn("at")), schema)
    assert declared.decode([b'{"k": 1}']).rejects.reason == ["missing_value"]


def test_a_declared_column_that_the_table_lacks_is_sent_for_expressions() -> None:
    loader = one(LoaderColumn("op", "meta.op", type="string"), sequence_column="op")
    target = target_of(loader, TableSchema(keys_type="UNIQUE_KEYS", properties=(K,)))
    assert [column.name for column in target.columns] == ["k", "op"]
    assert not target.ordered
    rows = decoder(loader, TableSchema(properties=(K,))).decode([b'{"k": 1, "meta": {"op": "d"}}']).rows
    assert rows.to_pylist() == [{"k": 1, "op": "d"}]


def test_a_sequence_column_that_is_not_written_is_named() -> None:
    with pytest.raises(Stopped, match="sequence column n"):
        target_of(one(sequence_column="n"), TableSchema(keys_type="UNIQUE_KEYS", properties=(K,)))


@pytest.mark.parametrize(
    ("keys", "order", "ordered"),
    [("", "auto", True), ("PRIMARY_KEYS", "auto", True), ("", "none", False), ("UNIQUE_KEYS", "none", False)],
)
def test_where_nobody_states_the_model_batches_go_one_by_one(keys: str, order: str, ordered: bool) -> None:
    loader = msgspec.structs.replace(PLAIN, order=order)
    assert target_of(loader, TableSchema(keys_type=keys, properties=(K,))).ordered is ordered
