"""Records → the table's columns → the body of a request."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from rtolap.model.loader import Loader, LoaderColumn
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
