"""Changes of a database's rows: which rows a batch of them writes and deletes."""

from __future__ import annotations

import json
import random
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from rtolap.model.formats.record_format import RecordFormat
from rtolap.model.load_headers import declared_headers
from rtolap.model.loader import OPERATION_COLUMN, Loader, LoaderColumn, LoaderSink, SinkMerge
from rtolap.model.validation.loader import loader_problems
from rtolap.protocols.stream_load.messages import SchemaColumn, TableSchema
from rtolap.stored.loader.records.decode import Decoded, RecordDecoder
from rtolap.stored.loader.states import Stopped
from rtolap.stored.loader.target import target_of

from tests.support.formats.avro import encode
from tests.support.seeds import so_many

LOADER = Loader(
    name="l",
    topic="t",
    database="d",
    table="t",
    columns=(LoaderColumn("day", format="epoch_days"), LoaderColumn("at", format="epoch_us")),
    format=RecordFormat(envelope="debezium", keys=("id",)),
)
SCHEMA = TableSchema(
    keys_type="UNIQUE_KEYS",
    properties=(
        SchemaColumn("id", "BIGINT", is_nullable="No"),
        SchemaColumn("name", "VARCHAR", is_nullable="No"),
        SchemaColumn("price", "DECIMAL", precision="10", scale="2"),
        SchemaColumn("day", "DATE"),
        SchemaColumn("at", "DATETIME"),
    ),
)
ROW = {"id": 1, "name": "a", "price": "2.50", "day": 16_203, "at": 1_400_000_000_123_456}
READ = {
    "id": 1,
    "name": "a",
    "price": Decimal("2.50"),
    "day": date(2014, 5, 13),
    "at": datetime(2014, 5, 13, 16, 53, 20, 123456),
}


CENTS = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}


def decoder(loader: Loader = LOADER, schema: TableSchema = SCHEMA) -> RecordDecoder:
    return RecordDecoder(target_of(loader, schema), record_bytes_max=1 << 20, form=loader.record_format)


def change(op: str, before: Any = None, after: Any = None, *, wrapped: bool = False) -> bytes:
    payload = {"before": before, "after": after, "op": op, "ts_ms": 1, "source": {"db": "x"}}
    return json.dumps({"schema": {"type": "struct"}, "payload": payload} if wrapped else payload).encode()


def rows(found: Decoded) -> list[dict[str, Any]]:
    assert not len(found.rejects), found.rejects
    return found.rows.to_pylist()


@pytest.mark.parametrize("wrapped", [False, True])
def test_rows_are_written_as_they_are_after_a_change_and_deleted_as_they_were_before(wrapped: bool) -> None:
    values = [
        change("c", None, ROW, wrapped=wrapped),
        change("r", None, ROW | {"id": 2}, wrapped=wrapped),
        change("u", ROW | {"id": 3, "name": "old"}, ROW | {"id": 3, "name": "new"}, wrapped=wrapped),
        change("d", {"id": 4}, None, wrapped=wrapped),
        None,
    ]
    found = decoder().decode(values)
    written = rows(found)
    assert written[0] == READ | {OPERATION_COLUMN: "c"}
    assert [(row["id"], row["name"], row[OPERATION_COLUMN]) for row in written[:3]] == [
        (1, "a", "c"),
        (2, "a", "r"),
        (3, "new", "u"),
    ]
    assert (written[3]["id"], written[3][OPERATION_COLUMN]) == (4, "d")
    assert found.events == 4, "a tombstone is neither a row nor refused"


@pytest.mark.parametrize("form", ["json", "avro"])
def test_items_and_keys_inside_of_a_row_are_columns(form: str) -> None:
    kinds = [
        {"name": "id", "type": "long"},
        {"name": "names", "type": {"type": "array", "items": "string"}},
        {"name": "days", "type": {"type": "map", "values": "int"}},
    ]
    images = {
        name: ["null", {"type": "record", "name": name, "fields": kinds}] for name in ("before", "after")
    }
    fields = [{"name": name, "type": kind} for name, kind in (images | {"op": "string"}).items()]
    envelope = {"type": "record", "name": "Envelope", "fields": fields}
    declared = RecordFormat(type="avro", schema=json.dumps(envelope), envelope="debezium", keys=("id",))
    columns = (
        LoaderColumn("name", path="names[1]"),
        LoaderColumn("day", path="days.first", format="epoch_days"),
    )
    loader = msgspec.structs.replace(LOADER, columns=columns)
    if form == "avro":
        loader = msgspec.structs.replace(loader, format=declared)
    assert not loader_problems(loader)
    target = msgspec.structs.replace(SCHEMA, properties=(SCHEMA.properties[0], *SCHEMA.properties[1:4:2]))
    row = {"id": 1, "names": ["a", "b"], "days": {"first": 16_203}}
    value = {"before": None, "after": row, "op": "c"}
    records = [encode(envelope, value) if form == "avro" else change("c", None, row)]
    expected = {"id": 1, "name": "b", "day": READ["day"], OPERATION_COLUMN: "c"}
    assert rows(decoder(loader, target).decode(records)) == [expected]


def test_of_each_key_the_last_change_of_a_batch_is_sent() -> None:
    values = [
        change("c", None, ROW),
        change("c", None, ROW | {"id": 2}),
        change("d", ROW, None),
        change("u", ROW, ROW | {"id": 2, "name": "b"}),
        change("c", None, ROW | {"name": "again"}),
    ]
    assert [(row["id"], row["name"], row[OPERATION_COLUMN]) for row in rows(decoder().decode(values))] == [
        (2, "b", "u"),
        (1, "again", "c"),
    ]


def test_what_says_no_row_is_refused_alone() -> None:
    values = [
        change("t"),
        b'{"op": "c"}',
        change("d", None, None),
        change("c", None, {"id": 5}),
        b"{}",
        b"x",
        change("c", None, ROW),
        change("c", None, ROW | {"id": 6, "price": "1.555"}),
    ]
    found = decoder().decode(values)
    assert list(zip(found.rejects.index.tolist(), found.rejects.reason, strict=True)) == [
        (0, "unknown_operation"),
        (1, "missing_value"),
        (2, "missing_value"),
        (3, "missing_value"),
        (4, "unknown_operation"),
        (5, "malformed_json"),
        (7, "wrong_type"),
    ]
    assert found.rows.num_rows == 1


def test_changes_in_avro_are_the_same() -> None:
    columns = [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {
            "name": "price",
            "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}],
        },
        {"name": "day", "type": ["null", {"type": "int", "connect.name": "io.debezium.time.Date"}]},
        {"name": "at", "type": ["null", {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}]},
    ]
    value = {"type": "record", "name": "Value", "namespace": "db.t", "fields": columns}
    schema = {
        "type": "record",
        "name": "Envelope",
        "namespace": "db.t",
        "fields": [
            {"name": "before", "type": ["null", value]},
            {"name": "after", "type": ["null", "Value"]},
            {"name": "op", "type": "string"},
        ],
    }
    by_name = schema | {
        "fields": [schema["fields"][0], {"name": "after", "type": ["null", value]}, schema["fields"][2]]
    }  # type: ignore[index]
    row = ROW | {"price": Decimal("2.50")}
    only_key = dict.fromkeys(ROW) | {"id": 9}
    form = RecordFormat(type="avro", schema=json.dumps(schema), envelope="debezium", keys=("id",))
    loader = msgspec.structs.replace(LOADER, format=form)
    assert loader_problems(loader) == ()
    values = [
        encode(by_name, {"before": None, "after": row, "op": "c"}),
        encode(by_name, {"before": only_key, "after": None, "op": "d"}),
    ]
    found = rows(decoder(loader).decode(values))
    assert found[0] == READ | {OPERATION_COLUMN: "c"}
    assert (found[1]["id"], found[1][OPERATION_COLUMN]) == (9, "d")


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(3)))
def test_drawn_changes_in_batches_of_any_size_leave_the_rows_of_the_source(seed: int) -> None:
    source = random.Random(seed)
    table: dict[int, str] = {}
    changes: list[bytes | None] = []
    for number in range(600):
        key = source.randrange(30)
        if key in table and source.random() < 0.4:
            changes += [change("d", ROW | {"id": key}, None), None]
            del table[key]
        else:
            name = f"n{number}"
            op = "u" if key in table else "c"
            changes.append(change(op, None, ROW | {"id": key, "name": name}, wrapped=source.random() < 0.5))
            table[key] = name
    loaded: dict[int, str] = {}
    made, first = decoder(), 0
    while first < len(changes):
        last = first + source.randrange(1, 50)
        for row in rows(made.decode(changes[first:last])):
            if row[OPERATION_COLUMN] == "d":
                loaded.pop(row["id"], None)
            else:
                loaded[row["id"]] = row["name"]
        first = last
    assert loaded == table


def test_the_server_is_told_which_rows_to_delete() -> None:
    headers = declared_headers(LOADER.delivery)
    assert headers == {"merge_type": "MERGE", "delete": f"{OPERATION_COLUMN} = 'd'"}
    assert declared_headers(msgspec.structs.replace(LOADER, format="json").delivery) == {}


def test_a_table_without_one_row_of_a_key_stops_the_loader() -> None:
    with pytest.raises(Stopped, match="DUP_KEYS"):
        decoder(schema=msgspec.structs.replace(SCHEMA, keys_type="DUP_KEYS"))
    other = msgspec.structs.replace(LOADER, format=RecordFormat(envelope="debezium", keys=("ident",)))
    with pytest.raises(Stopped, match="ident"):
        decoder(other)


@pytest.mark.parametrize(
    ("form", "sink", "message"),
    [
        (RecordFormat(envelope="debezium"), LoaderSink(), "no keys"),
        (RecordFormat(keys=("id",)), LoaderSink(), "keys of no envelope"),
        (RecordFormat(type="csv", envelope="debezium", keys=("id",)), LoaderSink(), "no option of csv"),
        (LOADER.format, LoaderSink(merge=SinkMerge("delete")), "not beside an envelope"),
        (
            LOADER.format,
            LoaderSink(target="starrocks", format="json", urls=("http://x",)),
            "not with an envelope",
        ),
    ],
)
def test_an_envelope_is_checked(form: Any, sink: LoaderSink, message: str) -> None:
    found = loader_problems(msgspec.structs.replace(LOADER, format=form, sink=sink))
    assert message in [problem.message for problem in found]
