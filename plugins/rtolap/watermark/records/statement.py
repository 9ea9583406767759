"""A record's statement of its producer's watermark, as text: in a header of its own, or in a field of a JSON
value. The format's page is docs/watermark_records.md.

    1 data 1763712000000 1763715600123 store-0
    │ │    │             │             └ producer: stays the same over restarts
    │ │    │             └ watermark, ms since the epoch, or - while it is unknown
    │ │    └ generation of the producer: grows with each start
    │ └ data, control (the record is no event) or end (neither, and the last of this generation here)
    └ version of the format
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import msgspec

from rtolap.base.errors import Corrupted, DefinitionError, Refused
from rtolap.kafka.interfaces import WATERMARK_HEADER, OutRecord

CONTROL_KEY = b"rtolap-watermark/"  # and the producer: compaction keeps the newest of each
INT64_MAX = 2**63 - 1

Kind = Literal["data", "control", "end"]

_KINDS: dict[str, Kind] = {kind: kind for kind in get_args(Kind)}
_PRODUCER = re.compile(r"[A-Za-z0-9._:/-]{1,200}")
_TEXT = re.compile(rf"1 ({'|'.join(_KINDS)}) (\d{{1,19}}) (-|\d{{1,19}}) ({_PRODUCER.pattern})", re.ASCII)
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SHOWN_CHARS_MAX = 80


class Statement(NamedTuple):
    """No later record of this producer in this partition has an event time before `watermark_ms`."""

    kind: Kind
    generation: int
    watermark_ms: int | None
    producer: str

    @property
    def is_control(self) -> bool:
        return self.kind != "data"

    def encode(self) -> bytes:
        watermark = "-" if self.watermark_ms is None else str(self.watermark_ms)
        return f"1 {self.kind} {self.generation} {watermark} {self.producer}".encode("ascii")


def decode(text: bytes | str) -> Statement:
    """Decode a statement. Corrupted: it is none, or of an unknown version."""
    shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    match = _TEXT.fullmatch(shown)
    numbers = [] if match is None else [int(number) for number in match.group(2, 3) if number != "-"]
    if match is None or max(numbers) > INT64_MAX:
        raise Corrupted(
            "no statement of a watermark",
            expected="1 data|control|end GENERATION WATERMARK_MS PRODUCER",
            found=repr(shown[:_SHOWN_CHARS_MAX]),
        )
    kind: Kind = _KINDS[match[1]]
    return Statement(kind, numbers[0], None if match[3] == "-" else numbers[1], match[4])


def check_producer(name: str, generation: int) -> None:
    """Raise DefinitionError where name or generation could not be stated."""
    if not _PRODUCER.fullmatch(name):
        expected = "1 to 200 letters, digits or . _ : / -"
        raise DefinitionError("not the name of a producer", expected=expected, found=repr(name))
    if not 0 <= generation <= INT64_MAX:
        raise DefinitionError(
            f"generation of producer {name}", expected=f"0 to {INT64_MAX}", found=generation
        )


def stating(records: Sequence[OutRecord], text: bytes, field: str | None) -> list[OutRecord]:
    """Return the records with the statement in their headers, or in that field of their values.

    A statement that a record brought along in the header is replaced: it was of another producer. Refused: a
    value is no JSON object, or has the field already. Records without headers of their own share one mapping,
    which a producer then makes the client's form of once.
    """
    if field is not None:
        return [
            OutRecord(
                _with_field(record.value, field, text),
                record.key,
                record.partition,
                record.headers,
                record.timestamp_ms,
            )
            for record in records
        ]
    alone = {WATERMARK_HEADER: text}
    return [
        OutRecord(
            record.value,
            record.key,
            record.partition,
            {**record.headers, WATERMARK_HEADER: text} if record.headers else alone,
            record.timestamp_ms,
        )
        for record in records
    ]


def control_record(statement: Statement, partition: int, field: str | None) -> OutRecord:
    """Return a record without a value where headers are read; with the field alone where they are not."""
    blank = OutRecord(
        None if field is None else b"{}",
        key=CONTROL_KEY + statement.producer.encode("ascii"),
        partition=partition,
    )
    return stating([blank], statement.encode(), field)[0]


def _with_field(value: bytes | None, field: str, text: bytes) -> bytes:
    try:
        present = _OBJECT.decode(value or b"")
    except msgspec.DecodeError as error:
        raise Refused(
            f"a record cannot carry the field {field}",
            expected="a JSON object as its value",
            found=str(error),
        ) from error
    if field in present:
        raise Refused(f"a record has the field {field} already", expected="a field that is free")
    assert value is not None, "it was decoded"
    body = value.rstrip()[:-1].rstrip()
    return b'%s%s"%s":"%s"}' % (body, b"," if present else b"", field.encode(), text)
