"""Drawn records in other formats than JSON give definitions that the product reads and that refuse none."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rtolap.base.errors import DefinitionError
from rtolap.events.decode import Decoded, EventDecoder
from rtolap.events.formats.readers import Registries, no_registries
from rtolap.kafka.schema_registry import RegisteredSchema
from rtolap.model.cube import Cube, Measure, Schema
from rtolap.model.yaml_files import read_definitions
from rtolap.project.files import write_project
from rtolap.project.guess import Guess, Source, guess
from rtolap.project.records import Record

from tests.support.formats.avro import encode, framed
from tests.support.formats.declared import KnownSchemas
from tests.support.formats.protobuf import (
    add_message,
    descriptor,
    message_class,
    message_framed,
    proto_file,
)

NOW_MS = 1_700_000_000_000
KINDS = ("red", "green", 'b"lue', "a,b;c", "Größe", "007")


def drawn(draw: random.Random) -> dict[str, Any]:
    return {
        "id": draw.randint(1, 1 << 40),
        "kind": draw.choice(KINDS),
        "price": draw.choice((None, Decimal(draw.randint(-(10**6), 10**6)) / 100)),
        "sold": draw.choice((True, False)),
        "note": draw.choice((None, "x" * draw.randint(1, 9))),
        "at_ms": NOW_MS - draw.randint(0, 10**9),
    }


def read_back(folder: Path, guessed: Guess, records: Sequence[Record], registries: Registries) -> Decoded:
    """Write the definitions, read them as the product does, and decode the records by all columns."""
    write_project(guessed, folder)
    definitions = read_definitions(folder / "include")
    (table,), (cube,) = definitions.tables.values(), definitions.cubes.values()
    assert (table, cube) == (guessed.table, guessed.cube)
    everything = tuple(
        Measure("sum" if column.column_type.is_numeric else "count", column.name) for column in table.columns
    )
    schema = Schema(table, Cube(name="c", table=table.name, dimensions=(), measures=everything))
    return EventDecoder(schema, registries).decode(
        [record.value for record in records],
        np.zeros(len(records), np.int32),
        np.arange(len(records)),
        now_ms=NOW_MS,
    )


def as_csv(row: Sequence[Any], delimiter: str) -> bytes:
    text = io.StringIO()
    fields = ["" if each is None else str(each).lower() if isinstance(each, bool) else each for each in row]
    csv.writer(text, delimiter=delimiter, lineterminator="").writerow(fields)
    return text.getvalue().encode()


@pytest.mark.parametrize("seed", range(24))
def test_lines_of_csv_are_read_with_and_without_a_header(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    delimiter, has_header = ",;\t|"[seed % 4], bool(seed % 2)
    events = [drawn(draw) for _ in range(draw.randint(6, 60))]
    time_form = draw.choice(("epoch_ms", "iso8601"))
    rows = [
        [
            *(event[name] for name in ("id", "kind", "price", "sold", "note")),
            event["at_ms"]
            if time_form == "epoch_ms"
            else datetime.fromtimestamp(event["at_ms"] / 1000, UTC).isoformat(),
        ]
        for event in events
    ]
    names = ["Id", "kind", "Unit Price", "sold", "note", "event time"]
    records = [Record(as_csv(row, delimiter), NOW_MS) for row in rows]
    header = [Record(as_csv(names, delimiter), NOW_MS)] * draw.randint(1, 3) if has_header else []
    given = [*header, *records]
    if not has_header:
        if time_form == "epoch_ms":  # no name says that a large number is a time
            with pytest.raises(DefinitionError, match="no event time was found"):
                guess("t", given, now_ms=NOW_MS)
        guessed = guess("t", given, now_ms=NOW_MS, time_path="column_6", time_format=time_form)
        expected = [f"column_{place}" for place in range(1, 7)]
    else:
        guessed = guess("t", given, now_ms=NOW_MS)
        expected = ["id", "kind", "unit_price", "sold", "note", "event_time"]
    form = guessed.table.record_format
    assert (form.type, form.delimiter, list(form.fields)) == ("csv", delimiter, expected)
    types = {column.name: column.type for column in guessed.table.columns}
    id_name, kind, price, sold, _, time = expected
    assert (types[id_name], types[kind], types[sold]) == ("bigint", "string", "boolean")
    assert types.get(price, "double") in ("double", "bigint")
    assert (guessed.table.time.column, guessed.table.time.format) == (time, time_form)
    assert (guessed.looked_at, guessed.broken) == (len(given), len(header))
    decoded = read_back(tmp_path, guessed, records, no_registries)
    assert (decoded.table.num_rows, len(decoded.rejects)) == (len(records), 0)
    assert decoded.table.column(id_name).to_pylist() == [event["id"] for event in events]
    if header:
        refused = read_back(tmp_path / "all", guessed, given, no_registries)
        assert len(refused.rejects) == len(header)  # it is no event, in each partition where it stands


def test_lines_of_another_width_and_no_text_are_counted_as_broken(tmp_path: Path) -> None:
    lines = [b"2023-01-01T00:00:00Z;1;a"] * 5 + [b"1;2", b"\xff;;", b"", b'"open;1;2', b"a\nb;1;2"]
    guessed = guess("t", [Record(line, NOW_MS) for line in lines], now_ms=NOW_MS)
    assert (guessed.looked_at, guessed.broken) == (10, 5)
    assert "5 of them are not a line of CSV" in write_project(guessed, tmp_path)[0].read_text()


AVRO = {
    "type": "record",
    "name": "Sale",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["red", "green"]}},
        {"name": "price", "type": ["null",
            {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "place", "type": {"type": "record", "name": "Place", "fields": [
            {"name": "town", "type": ["null", "string"]}, {"name": "number", "type": "int"}]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "odd", "type": ["null", "string", "long"]},
    ],
}  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_avro_records_are_read_by_their_registered_schema(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    registries: Registries = lambda name: KnownSchemas({41: RegisteredSchema(json.dumps(AVRO))})  # noqa: E731
    events = [drawn(draw) for _ in range(draw.randint(1, 40))]
    records = [
        Record(
            framed(
                41,
                encode(
                    AVRO,
                    {
                        "id": event["id"],
                        "kind": draw.choice(("red", "green")),
                        "price": event["price"],
                        "at": event["at_ms"],
                        "place": {"town": event["note"], "number": 7},
                        "tags": ["a"] * draw.randint(0, 2),
                        "odd": None,
                    },
                ),
            ),
            NOW_MS,
        )
        for event in events
    ]
    strange = [Record(b"\0\0\0\0\x07x", NOW_MS), Record(None, NOW_MS)]  # of a schema that is not there
    guessed = guess("t", [*strange, *records], now_ms=NOW_MS, source=Source(registries=registries))
    assert {column.name: column.type for column in guessed.table.columns} == {
        "id": "bigint",
        "kind": "string",
        "price": "decimal(12,2)",
        "at": "timestamp",
        "place_town": "string",
        "place_number": "int",
    }
    assert guessed.table.time.column == "at"
    assert [path for path, _ in guessed.left_out] == ["tags", "odd"]
    form = guessed.table.record_format
    assert (form.type, form.registry, guessed.broken) == ("avro", "default", 2)
    decoded = read_back(tmp_path, guessed, records, registries)
    assert (decoded.table.num_rows, len(decoded.rejects)) == (len(records), 0)
    assert decoded.table.column("id").to_pylist() == [event["id"] for event in events]
    assert decoded.table.column("price").to_pylist() == [event["price"] for event in events]


def test_a_registry_that_the_host_does_not_know_and_a_schema_that_is_not_there_are_named() -> None:
    records = [Record(framed(41, b"x"), NOW_MS)]
    with pytest.raises(DefinitionError, match="no schema registry default"):
        guess("t", records, now_ms=NOW_MS)
    with pytest.raises(DefinitionError, match=r"no schema of these records is known.*41"):
        guess("t", records, now_ms=NOW_MS, source=Source(registries=lambda name: KnownSchemas({})))


@pytest.mark.parametrize("position", [0, 1])
def test_messages_of_protobuf_are_read_by_their_registered_file(position: int, tmp_path: Path) -> None:
    draw = random.Random(position)
    file = proto_file("sale.proto", "google/protobuf/timestamp.proto")
    names = ["Sale", "Other"] if position == 0 else ["Other", "Sale"]
    for name in names:
        fields = [("id", "int64"), ("kind", "string"), ("at", ".google.protobuf.Timestamp")]
        fields += [("place", ".test.Sale.Place"), ("tags", "repeated string")]
        made = add_message(file, name, fields if name == "Sale" else [("x", "string")])
        if name == "Sale":
            add_message(made, "Place", [("town", "string"), ("number", "int32"), ("raw", "bytes")])
    kind = message_class("test.Sale", file)
    registries: Registries = lambda name: KnownSchemas({9: RegisteredSchema(descriptor(file), "PROTOBUF")})  # noqa: E731
    events = [drawn(draw) for _ in range(20)]
    records = []
    for event in events:
        at = datetime.fromtimestamp(event["at_ms"] / 1000, UTC)
        message: Any = kind(id=event["id"], kind="red", at=at, tags=["a"])
        message.place.number = 5
        if event["note"] is not None:
            message.place.town = event["note"]
        records.append(Record(message_framed(9, [position], message.SerializeToString()), NOW_MS))
    guessed = guess("t", records, now_ms=NOW_MS, source=Source(registries=registries))
    assert {column.name: column.type for column in guessed.table.columns} == {
        "id": "bigint",
        "kind": "string",
        "at": "timestamp",
        "place_town": "string",
        "place_number": "int",
    }
    assert [path for path, _ in guessed.left_out] == ["place.raw", "tags"]
    form = guessed.table.record_format
    assert (form.type, form.message, guessed.broken) == ("protobuf", "test.Sale", 0)
    decoded = read_back(tmp_path, guessed, records, registries)
    assert (decoded.table.num_rows, len(decoded.rejects)) == (len(records), 0)
    assert decoded.table.column("place_town").to_pylist() == [event["note"] for event in events]


def test_a_named_cluster_stands_in_the_table(tmp_path: Path) -> None:
    records = [Record(json.dumps({"ts": NOW_MS, "a": 1}).encode(), NOW_MS)]
    guessed = guess("t", records, now_ms=NOW_MS, source=Source(cluster="far"))
    write_project(guessed, tmp_path)
    (table,) = read_definitions(tmp_path / "include").tables.values()
    assert (table.kafka_cluster, table.format) == ("far", "json")
