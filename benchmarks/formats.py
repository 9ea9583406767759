"""Measure how many records of each format a second of processor time decodes, on one core, beside JSON.

    python -m benchmarks.formats [--events 100000] [--rounds 7] [--bad-share 0.0] [--nested] [--json]

The same events are written in every format and decoded into the same columns, which is checked. Rounds go
through all formats in turn; the best of each counts. `--bad-share` of the records are cut short, and refused.
`--nested`: records with arrays and maps, of which ten columns read items and keys.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from rtolap.base.clock import SystemClock
from rtolap.base.cycle_collection import CycleCollection
from rtolap.events.decode import Decoded, EventDecoder
from rtolap.kafka.schema_registry import RegisteredSchema
from rtolap.model.cube import Cube, Measure, Schema
from rtolap.model.formats.record_format import RecordFormat
from rtolap.model.table import Column, Table, TimeColumn

from benchmarks import events
from tests.support.formats import nested
from tests.support.formats.avro import encode, framed
from tests.support.formats.declared import KnownSchemas
from tests.support.formats.protobuf import add_message, descriptor_set, message_class, proto_file

ID = 1
AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "ts", "type": "long"},
        {"name": "country", "type": ["null", "string"]},
        {"name": "device", "type": ["null", "string"]},
        {"name": "page", "type": ["null", "string"]},
        {"name": "campaign", "type": ["null", "string"]},
        {"name": "user_id", "type": "long"},
        {"name": "duration_ms", "type": "int"},
        {"name": "bytes_sent", "type": "long"},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        },
        {"name": "is_new", "type": "boolean"},
    ],
}
MESSAGE = (
    ("ts", "int64"),
    ("country", "string"),
    ("device", "string"),
    ("page", "string"),
    ("campaign", "string"),
    ("user_id", "int64"),
    ("duration_ms", "int32"),
    ("bytes_sent", "int64"),
    ("price", "string"),
    ("is_new", "bool"),
)


def written(count: int) -> dict[str, tuple[RecordFormat, list[bytes]]]:
    """Return the records of each format, with how it is declared."""
    plain = events.values(count, seed=1)
    rows = [json.loads(value, parse_float=Decimal) for value in plain]
    file = proto_file()
    add_message(file, "Event", MESSAGE)
    message = message_class("test.Event", file)
    avro = [encode(AVRO, row) for row in rows]
    csv = [",".join(str(value) for value in row.values()).replace("True", "true").encode() for row in rows]
    protobuf = [message(**(row | {"price": str(row["price"])})).SerializeToString() for row in rows]
    return {
        "json": (RecordFormat(), plain),
        "csv": (RecordFormat(type="csv"), csv),
        "avro": (RecordFormat(type="avro", schema=json.dumps(AVRO)), avro),
        "avro of a registry": (
            RecordFormat(type="avro", registry="default"),
            [framed(ID, value) for value in avro],
        ),
        "protobuf": (
            RecordFormat(type="protobuf", schema=descriptor_set(file), message="test.Event"),
            protobuf,
        ),
    }


def nested_written(count: int) -> dict[str, tuple[RecordFormat, list[bytes]]]:
    """Return records with arrays and maps in the formats that have those. All of them fit their columns."""
    source = random.Random(1)
    drawn: list[nested.Event] = []
    while len(drawn) < count:
        event = nested.drawn(source)
        if nested.recount(event) is not None:
            drawn.append(event)
    return {
        name: (form, [nested.written(name, each) for each in drawn]) for name, form in nested.FORMS.items()
    }


def nested_decoder_of(form: RecordFormat) -> EventDecoder:
    columns = [Column(name, kind, path=path) for name, (kind, path) in nested.PATHS.items()]
    every = (Column("ts", "bigint"), *columns)
    table = Table(name="bench", topic="bench", columns=every, time=TimeColumn("ts", "epoch_ms"), format=form)
    measures = tuple(Measure("count", column.name) for column in columns)
    return EventDecoder(Schema(table, Cube(name="bench", table="bench", dimensions=(), measures=measures)))


def decoder_of(form: RecordFormat) -> EventDecoder:
    schema = events.schema("bench")
    table = msgspec.structs.replace(schema.table, format=form)
    source = KnownSchemas({ID: RegisteredSchema(json.dumps(AVRO))})
    return EventDecoder(Schema(table, schema.cube), {"default": source}.__getitem__)


def measure(
    count: int, rounds: int, bad_share: float, *, is_nested: bool = False
) -> dict[str, dict[str, float]]:
    partitions, offsets = np.zeros(count, np.int32), np.arange(count)
    created_ms = np.full(count, events.START_MS)
    chooser = random.Random(1)
    bad = set(chooser.sample(range(count), round(count * bad_share)))
    runs: dict[str, Callable[[], Decoded]] = {}
    sizes = {}
    for name, (form, values) in (nested_written(count) if is_nested else written(count)).items():
        records = [value[:-1] if at in bad else value for at, value in enumerate(values)]
        decoder = nested_decoder_of(form) if is_nested else decoder_of(form)
        sizes[name] = sum(map(len, records)) / count

        def run(decoder: EventDecoder = decoder, records: list[bytes] = records) -> Decoded:
            return decoder.decode(records, partitions, offsets, now_ms=events.START_MS, create_ms=created_ms)

        runs[name] = run
    best = dict.fromkeys(runs, float("inf"))
    expected: pa.Table | None = None
    for _ in range(rounds):
        for name, each in runs.items():
            begun_s = time.process_time()
            found = each()
            best[name] = min(best[name], time.process_time() - begun_s)
            if not bad:
                expected = expected or found.table
                assert found.table.equals(expected), f"{name} gives other columns than json"
    return {
        name: {
            "records_per_cpu_s": count / best[name],
            "bytes": sizes[name],
            "of_json": best["json"] / best[name],
        }
        for name in runs
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--bad-share", type=float, default=0.0)
    parser.add_argument("--nested", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    CycleCollection(SystemClock()).begin()  # as the process of a receiver does
    pa.set_cpu_count(1)
    figures = measure(arguments.events, arguments.rounds, arguments.bad_share, is_nested=arguments.nested)
    if arguments.json:
        print(json.dumps(figures))
        return
    for name, figure in figures.items():
        print(
            f"  {name:20} {figure['records_per_cpu_s']:10,.0f} records per CPU s, "
            f"{figure['of_json']:.2f} of JSON, {figure['bytes']:.0f} bytes a record"
        )


if __name__ == "__main__":
    main()
