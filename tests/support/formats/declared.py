"""The formats that one contract suite runs on: how each writes an event, and what breaks a record of it.

An event is a mapping of the table of `tests.events.conftest`: `ts`, `s`, `i`, `b`, `f`, `d`, `ok`, `day`,
`at`, and `deep`, which nested formats have at `outer.inner.n`. None stands for a value that is absent.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rtolap.base.errors import NotFound, Unavailable
from rtolap.kafka.schema_registry import Reference, RegisteredSchema
from rtolap.model.formats.record_format import RecordFormat

from tests.support.formats.avro import encode, framed
from tests.support.formats.protobuf import (
    EVENT_TEXT,
    SHARED_TEXT,
    descriptor,
    descriptor_set,
    event_file,
    event_message,
    message_class,
    message_framed,
)

Event = Mapping[str, Any]
NAMES = ("ts", "s", "i", "b", "f", "d", "ok", "day", "at", "deep")


class KnownSchemas:
    """A registry in memory. `away`: it does not answer."""

    name = "default"

    def __init__(
        self, schemas: Mapping[int, RegisteredSchema], subjects: Mapping[str, RegisteredSchema] = {}
    ) -> None:
        self.schemas, self.subjects = dict(schemas), dict(subjects)
        self.away = False
        self.asked: list[int] = []

    def schema(self, schema_id: int) -> RegisteredSchema:
        self.asked.append(schema_id)
        if self.away:
            raise Unavailable("schema registry default does not answer")
        if schema_id not in self.schemas:
            raise NotFound(f"schema registry default has no schema {schema_id}")
        return self.schemas[schema_id]

    def referenced(self, reference: Reference) -> RegisteredSchema:
        if reference.subject in self.subjects:
            return self.subjects[reference.subject]
        raise NotFound(f"schema registry default has no subject {reference.subject}")


@dataclass(frozen=True)
class Declared:
    """A format of the suite.

    Attributes:
        nested: the column `deep` is inside of other values.
        broken: records that are no records of the format, by name, with the reason of their refusal.
        typed: the format has types of its own: a value of another type cannot be written.
    """

    name: str
    form: RecordFormat
    encode: Callable[[Event], bytes]
    nested: bool = True
    typed: bool = False
    broken: Mapping[str, tuple[bytes, str]] = field(default_factory=dict)
    schemas: KnownSchemas | None = None


def _json(event: Event) -> bytes:
    values = {name: _text(value) for name, value in event.items() if name != "deep" and value is not None}
    if event.get("deep") is not None:
        values["outer"] = {"inner": {"n": event["deep"]}}
    return json.dumps(values).encode()


def _text(value: object) -> object:
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def _csv(event: Event) -> bytes:
    out = io.StringIO()
    fields = [event.get(name) for name in NAMES]
    shown = ["\\N" if each is None else _lower(each) for each in fields]
    csv.writer(out, delimiter=";", lineterminator="").writerow(shown)
    return out.getvalue().encode()


def _lower(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


def _nullable(kind: Any) -> Any:
    return ["null", kind]


_INNER = {"type": "record", "name": "Inner", "fields": [{"name": "n", "type": _nullable("int")}]}
_OUTER = {"type": "record", "name": "Outer", "fields": [{"name": "inner", "type": _nullable(_INNER)}]}
_CENTS = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
AVRO_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Event",
    "namespace": "test",
    "fields": [
        {"name": "ts", "type": _nullable("long")},
        {"name": "unread", "type": {"type": "map", "values": {"type": "array", "items": "string"}}},
        {"name": "s", "type": _nullable("string")},
        {"name": "i", "type": _nullable("int")},
        {"name": "b", "type": _nullable("long")},
        {"name": "f", "type": _nullable("double")},
        {
            "name": "d",
            "type": _nullable(_CENTS),
        },
        {"name": "ok", "type": _nullable("boolean")},
        {"name": "day", "type": _nullable({"type": "int", "logicalType": "date"})},
        {"name": "at", "type": _nullable({"type": "long", "logicalType": "timestamp-micros"})},
        {"name": "outer", "type": _nullable(_OUTER)},
    ],
}
SCHEMA_ID = 70_000


def avro_value(event: Event) -> bytes:
    deep = event.get("deep")
    values = dict.fromkeys(NAMES) | dict(event)
    values["outer"] = None if deep is None else {"inner": {"n": deep}}
    values["unread"] = {"k": ["x", "y"], "l": []}
    return encode(AVRO_SCHEMA, values)


_WHOLE = avro_value({"ts": 1})
_TEXT = json.dumps(AVRO_SCHEMA)
_AVRO_BROKEN = {
    "cut": (_WHOLE[:-1], "malformed_avro"),
    "longer": (_WHOLE + b"\0", "malformed_avro"),
    "branch": (b"\x06" + _WHOLE[1:], "malformed_avro"),
    "endless": (b"\x02" + b"\xff" * 12, "malformed_avro"),
    "utf8": (avro_value({"ts": 1, "s": "abc"}).replace(b"abc", b"a\xffc"), "invalid_utf8"),
}


_FILE = event_file()
_EVENT = message_class("test.Event", _FILE)


def protobuf_value(event: Event) -> bytes:
    return event_message(_EVENT, event)


_MESSAGE = protobuf_value({"ts": 1})
_PROTOBUF_BROKEN = {
    "cut": (_MESSAGE[:-1], "malformed_protobuf"),
    "number 0": (_MESSAGE + b"\0\1", "malformed_protobuf"),
    "group": (_MESSAGE + b"\x0b", "malformed_protobuf"),
    "endless": (b"\x08" + b"\xff" * 12, "malformed_protobuf"),
    "inside": (_MESSAGE + b"\x5a\x02\x0a\x05", "malformed_protobuf"),
    "utf8": (protobuf_value({"ts": 1, "s": "abc"}).replace(b"abc", b"a\xffc"), "invalid_utf8"),
}


def formats() -> list[Declared]:
    """Return the formats, each with state of its own."""
    return [
        Declared(
            "json",
            RecordFormat(),
            _json,
            broken={
                "text": (b"hello", "malformed_json"),
                "list": (b"[1]", "not_an_object"),
                "utf8": (b'{"ts":1,"s":"\xff"}', "invalid_utf8"),
            },
        ),
        Declared(
            "csv",
            RecordFormat(type="csv", delimiter=";", null="\\N", fields=NAMES),
            _csv,
            nested=False,
            broken={
                "fewer": (b"1;a", "malformed_csv"),
                "more": (b"1;" * 12, "malformed_csv"),
                "lines": (b"1;a\nb;1;1;1;1;;;;", "malformed_csv"),
                "two lines": (_csv({"ts": 1}) + b"\n" + _csv({"ts": 1}), "malformed_csv"),
                "open quote": (b'1;"a;1;1;1;1;;;;', "malformed_csv"),
                "utf8": (b"1;\xff;\\N;\\N;\\N;\\N;\\N;\\N;\\N;\\N", "invalid_utf8"),
            },
        ),
        Declared(
            "avro",
            RecordFormat(type="avro", schema=_TEXT),
            avro_value,
            typed=True,
            broken=_AVRO_BROKEN,
        ),
        Declared(
            "avro of a registry",
            RecordFormat(type="avro", registry="default"),
            lambda event: framed(SCHEMA_ID, avro_value(event)),
            typed=True,
            broken={
                **{name: (framed(SCHEMA_ID, value), why) for name, (value, why) in _AVRO_BROKEN.items()},
                "framing": (b'{"ts": 1}', "bad_framing"),
                "short framing": (b"\0\0\1", "bad_framing"),
                "unknown id": (framed(9, _WHOLE), "unknown_schema"),
                "other kind": (framed(8, _WHOLE), "unknown_schema"),
            },
            schemas=KnownSchemas({SCHEMA_ID: RegisteredSchema(_TEXT), 8: RegisteredSchema("{}", "JSON")}),
        ),
        Declared(
            "protobuf",
            RecordFormat(type="protobuf", schema=descriptor_set(_FILE), message="test.Event"),
            protobuf_value,
            typed=True,
            broken=_PROTOBUF_BROKEN,
        ),
        _protobuf_of_registry(
            "protobuf of a registry",
            KnownSchemas({SCHEMA_ID: RegisteredSchema(descriptor(_FILE), "PROTOBUF")}),
        ),
        _protobuf_of_registry(
            "protobuf of a registry of texts",
            KnownSchemas(
                {
                    SCHEMA_ID: RegisteredSchema(
                        EVENT_TEXT, "PROTOBUF", (Reference("shared/inner.proto", "inner", 1),)
                    ),
                    7: RegisteredSchema("message Half {", "PROTOBUF"),
                },
                {"inner": RegisteredSchema(SHARED_TEXT, "PROTOBUF")},
            ),
            {"no file": (message_framed(7, [1], b""), "unknown_schema")},
        ),
    ]


def _protobuf_of_registry(
    name: str, schemas: KnownSchemas, broken: Mapping[str, tuple[bytes, str]] = {}
) -> Declared:
    schemas.schemas[8] = RegisteredSchema(_TEXT)
    return Declared(
        name,
        RecordFormat(type="protobuf", registry="default"),
        lambda event: message_framed(SCHEMA_ID, [1], protobuf_value(event)),
        typed=True,
        broken={
            **{
                which: (message_framed(SCHEMA_ID, [1], value), why)
                for which, (value, why) in _PROTOBUF_BROKEN.items()
            },
            "framing": (b'{"ts": 1}', "bad_framing"),
            "no message": (framed(SCHEMA_ID, b""), "bad_framing"),
            "steps": (framed(SCHEMA_ID, b"\xff\xff\xff\x01"), "bad_framing"),
            "unknown message": (message_framed(SCHEMA_ID, [7], b""), "unknown_schema"),
            "unknown id": (message_framed(9, [1], b""), "unknown_schema"),
            "other kind": (message_framed(8, [1], b""), "unknown_schema"),
            **broken,
        },
        schemas=schemas,
    )
