"""Events with arrays, records and maps inside of each other, written in the three formats that have those.

An event is `{"ts", "legs", "marks", "prices", "times", "tags", "places"}`. `legs` are records of `n`, `s` and
an array of texts `hops`; `tags` has numbers by key, `places` records with `city` by key. Numbers are of 64
bits in all formats, so that they may be too large for a column.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from rtolap.model.formats.record_format import RecordFormat

from tests.support.formats.avro import encode
from tests.support.formats.protobuf import Field, add_message, descriptor_set, message_class, proto_file

Event = Mapping[str, Any]
TOO_LARGE = 1 << 40  # for an int column
_FIRST = datetime(2014, 5, 13, 16, 53, 20)


def _nullable(kind: Any) -> Any:
    return ["null", kind]


def _array(kind: Any) -> Any:
    return {"type": "array", "items": kind}


_LEG = {
    "type": "record",
    "name": "Leg",
    "fields": [
        {"name": "n", "type": _nullable("long")},
        {"name": "s", "type": _nullable("string")},
        {"name": "hops", "type": _array("string")},
    ],
}
_PLACE = {
    "type": "record",
    "name": "Place",
    "fields": [{"name": "city", "type": _nullable("string")}],
}
_CENTS = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Trip",
    "fields": [
        {"name": "ts", "type": "long"},
        {"name": "legs", "type": _nullable(_array(_LEG))},
        {"name": "marks", "type": _array("long")},
        {"name": "prices", "type": _array(_CENTS)},
        {"name": "times", "type": _array({"type": "long", "logicalType": "timestamp-micros"})},
        {"name": "tags", "type": {"type": "map", "values": "long"}},
        {"name": "places", "type": {"type": "map", "values": _PLACE}},
    ],
}


def trip_file() -> FileDescriptorProto:
    """Return the file of `test.Trip`."""
    file = proto_file("trip.proto", "google/protobuf/timestamp.proto")
    trip = add_message(
        file,
        "Trip",
        [
            ("ts", "int64"),
            ("legs", "repeated .test.Leg"),
            ("marks", "repeated int64"),
            ("prices", "repeated string"),
            ("times", "repeated .google.protobuf.Timestamp"),
            ("tags", "repeated .test.Trip.TagsEntry"),
            ("places", "repeated .test.Trip.PlacesEntry"),
        ],
    )
    add_message(file, "Leg", [("n", "int64"), ("s", "string"), ("hops", "repeated string")])
    add_message(file, "Place", [("city", "string")])
    add_map(trip, "TagsEntry", "string", "int64")
    add_map(trip, "PlacesEntry", "string", ".test.Place")
    return file


def add_map(to: DescriptorProto, name: str, key: str, value: str) -> None:
    """Add the message of a map's entries, of which the map itself is a repeated field."""
    entry = add_message(to, name, [("key", key), ("value", value)], presence=False)
    entry.options.map_entry = True


def unpacked(file: FileDescriptorProto) -> FileDescriptorProto:
    """Return the file with repeated numbers that stand alone in records."""
    made = FileDescriptorProto()
    made.CopyFrom(file)
    for message in made.message_type:
        for each in message.field:
            if each.label == Field.LABEL_REPEATED and each.type not in (
                Field.TYPE_MESSAGE,
                Field.TYPE_STRING,
            ):
                each.options.packed = False
    return made


FORMS: Mapping[str, RecordFormat] = {
    "json": RecordFormat(),
    "avro": RecordFormat(type="avro", schema=json.dumps(AVRO)),
    "avro in blocks": RecordFormat(type="avro", schema=json.dumps(AVRO)),
    "protobuf": RecordFormat(type="protobuf", schema=descriptor_set(trip_file()), message="test.Trip"),
    "protobuf, unpacked": RecordFormat(
        type="protobuf", schema=descriptor_set(unpacked(trip_file())), message="test.Trip"
    ),
}
_MESSAGES = {
    "protobuf": message_class("test.Trip", trip_file()),
    "protobuf, unpacked": message_class("test.Trip", unpacked(trip_file())),
}


def written(form: str, event: Event) -> bytes:
    """Return the event as a record of one of `FORMS`."""
    match form:
        case "json":
            return json.dumps(_plain(event)).encode()
        case "avro":
            return encode(AVRO, event)
        case "avro in blocks":
            return encode(AVRO, event, block_items=2)
        case _:
            return _message(form, event)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else value


def _message(form: str, event: Event) -> bytes:
    made: Any = _MESSAGES[form](ts=event["ts"], marks=event["marks"], prices=map(str, event["prices"]))
    for leg in event["legs"] or ():
        made.legs.add(**{name: value for name, value in leg.items() if value is not None})
    for time in event["times"]:
        made.times.add().FromDatetime(time)
    for name, value in event["tags"].items():
        made.tags[name] = value
    for name, place in event["places"].items():
        made.places[name].SetInParent()
        if place["city"] is not None:
            made.places[name].city = place["city"]
    octets: bytes = made.SerializeToString(deterministic=True)
    return octets


def drawn(source: random.Random) -> dict[str, Any]:
    """Return an event. Some have a number that is too large, at an item that a column reads or another."""
    legs = [
        {
            "n": source.choice((None, source.randrange(-9, 100))),
            "s": source.choice(("a.1", "\u00e9", "", None)),
            "hops": source.choices(("x", "", "\u6f22"), k=source.randrange(3)),
        }
        for _ in range(source.randrange(5))
    ]
    largest = TOO_LARGE if source.random() < 0.05 else 9
    return {
        "ts": 1_000 + source.randrange(1_000),
        "legs": source.choice((legs, legs, None)),
        "marks": [source.choice((0, -1, largest)) for _ in range(source.randrange(6))],
        "prices": [Decimal(source.randrange(-999_999, 10**6)).scaleb(-2) for _ in range(source.randrange(4))],
        "times": [
            _FIRST + timedelta(microseconds=source.randrange(10**12)) for _ in range(source.randrange(4))
        ],
        "tags": {
            name: source.randrange(99) for name in source.sample(("red", "green", "r"), source.randrange(4))
        },
        "places": {
            name: {"city": source.choice(("Rome", "", None))}
            for name in source.sample(("home", "work"), source.randrange(3))
        },
    }


PATHS: Mapping[str, tuple[str, str]] = {
    "n": ("bigint", "legs[1].n"),
    "s": ("string", "$.legs[0].s"),
    "t": ("string", "legs[3].s"),
    "hop": ("string", "legs[1].hops[1]"),
    "mark": ("int", "marks[2]"),
    "first": ("int", "marks[0]"),
    "price": ("decimal(6,2)", "prices[1]"),
    "at": ("timestamp", "times[0]"),
    "red": ("int", "tags.red"),
    "city": ("string", "places.home.city"),
}


def recount(event: Event) -> dict[str, Any] | None:
    """Return the columns of `PATHS`, found by plain Python; None where the event does not fit them."""
    if max(event["marks"], default=0) >= TOO_LARGE:
        return None

    def item(items: Any, at: int) -> Any:
        return items[at] if items is not None and len(items) > at else None

    legs = [item(event["legs"], at) or {} for at in range(4)]
    return {
        "n": legs[1].get("n"),
        "s": legs[0].get("s"),
        "t": legs[3].get("s"),
        "hop": item(legs[1].get("hops"), 1),
        "mark": item(event["marks"], 2),
        "first": item(event["marks"], 0),
        "price": item(event["prices"], 1),
        "at": item(event["times"], 0),
        "red": event["tags"].get("red"),
        "city": event["places"].get("home", {}).get("city"),
    }
