"""Dead letters are events that were given up, or set apart, as records of a topic; each is whole, whatever
its size.

The value is JSON: the event with where it came from, its cells with families, qualifiers, values and tags in
base64. `{"parts":3,…` is the beginning of a letter that is larger than a record may be: it and the next two
records are one text. A letter is written in one transaction, into the partition of its share, which one
process writes at a time, so its parts are neighbours.

Headers are for people and for `rtolap sep dead-letters`: table (as `topic`), sequence id (as `offset`),
region, reason, and `part` of those that are split.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from rtolap.base.errors import Corrupted
from rtolap.events.rejects import DETAIL_CHARS_MAX
from rtolap.kafka.interfaces import StreamConsumer
from rtolap.kafka.transactions import Headers, OutColumns
from rtolap.sep.delivery.edit_records import I64
from rtolap.sep.events.edit_batch import CELLS_SCHEMA, EVENTS_SCHEMA, EditBatch

PART_BYTES = 512 << 10  # below what any broker takes by default, with key and headers
TOPIC_CONFIG = {
    "max.message.bytes": str(16 << 20),
    "retention.ms": "-1",  # a letter is all that is left of its event
    "retention.bytes": "-1",
}
_PARTS = re.compile(rb'\{"parts":(\d+),')
_POLL_RECORDS, _POLL_BYTES, _POLL_S = 500, 32 << 20, 0.5


class _Cell(msgspec.Struct, frozen=True):
    family: bytes
    qualifier: bytes
    timestamp_ms: int
    type: int
    value: bytes
    tags: bytes


class _Event(msgspec.Struct, frozen=True):
    """An event as a dead letter.

    Attributes:
        apart: the id of its row's `RowApart`; empty for an event that the policy skipped.
    """

    table: str
    region: str
    sequence_id: int
    write_time_ms: int
    row: bytes
    cells: tuple[_Cell, ...]
    cluster_ids: tuple[str, ...] = ()
    late: bool = False
    apart: str = ""


_decoder = msgspec.json.Decoder(_Event)


@dataclass(frozen=True)
class Letters:
    """Dead letters, as they were written.

    Attributes:
        batch: the events of the letters.
        offsets: the offset of each letter's first record.
        apart: the id of the `RowApart` of each event's row; empty for skipped events.
        late: True for events that were late.
    """

    batch: EditBatch
    offsets: I64
    apart: list[str]
    late: list[bool]


def dead_letters(
    topic: str,
    batch: EditBatch,
    reasons: Mapping[int, str],
    *,
    late: Mapping[int, bool] | None = None,
    apart: Mapping[int, str] | None = None,
    part_bytes: int = PART_BYTES,
    partition: int = 0,
) -> OutColumns:
    """Return the records of the events of `reasons`, by their place in the batch."""
    chosen = batch.take(np.fromiter(reasons, np.int64, len(reasons)))
    cells = chosen.cells.to_pylist()
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    headers: list[Headers] = []
    for (place, reason), event in zip(reasons.items(), chosen.events.to_pylist(), strict=True):
        first = event["first_cell"]
        known = {"late": (late or {}).get(place, False), "apart": (apart or {}).get(place, "")}
        parts = _parts(event | known, cells[first : first + event["cell_count"]], part_bytes)
        about = {
            "topic": event["table"].encode(),
            "partition": b"-1",
            "offset": str(event["sequence_id"]).encode(),
            "region": event["region"].encode(),
            "reason": b"set_apart" if known["apart"] else b"not_delivered",
            "detail": reason[:DETAIL_CHARS_MAX].encode("utf-8", "replace"),
        }
        key = b"%s/%s/%d/" % (about["topic"], about["region"], event["sequence_id"]) + event["row"]
        for number, part in enumerate(parts, 1):
            of_part = {"part": f"{number}/{len(parts)}".encode()} if len(parts) > 1 else {}
            keys.append(key)
            values.append(part)
            headers.append(list((about | of_part).items()))
    return OutColumns(topic, keys, values, headers, partition=partition)


def _parts(event: dict[str, Any], cells: list[dict[str, Any]], part_bytes: int) -> list[bytes]:
    known = {name: event[name] for name in _Event.__struct_fields__ if name != "cells"}
    whole = [{name: cell[name] for name in _Cell.__struct_fields__} for cell in cells]
    text = msgspec.json.encode({"parts": 1, **known, "cells": whole})
    if len(text) > part_bytes:
        count = -(-(len(text) + 8) // part_bytes)  # the count itself may take some digits
        text = msgspec.json.encode({"parts": count, **known, "cells": whole})
    return [text[first : first + part_bytes] for first in range(0, len(text), part_bytes)]


def read_letters(consumer: StreamConsumer, start: int, end: int, *, partition: int = 0) -> Iterator[Letters]:
    """Yield the letters of a partition between the offsets, some at a time. Raises Corrupted."""
    consumer.assign({partition: start})
    whole: list[tuple[int, _Event]] = []
    open_parts: list[bytes] = []
    first, missing, size = 0, 0, 0
    while consumer.position()[partition] < end:
        batch = consumer.poll(_POLL_RECORDS, _POLL_S, bytes_max=_POLL_BYTES)
        for offset, value in zip(batch.offsets.tolist(), batch.values, strict=True):
            text = value or b""
            found = _PARTS.match(text)
            if not missing or found is not None:  # a new one; the rest of an older one was deleted
                first, missing, open_parts = offset, int(found[1]) if found else 1, []
                if not text.startswith(b"{"):
                    missing = 0
                    continue
            open_parts.append(text)
            missing -= 1
            if not missing:
                whole.append((first, _decoded(consumer.topic, first, b"".join(open_parts))))
                size += sum(map(len, open_parts))
        if whole and (size >= _POLL_BYTES or len(whole) >= _POLL_RECORDS):
            yield _letters(whole)
            whole, size = [], 0
    if whole:
        yield _letters(whole)


def _decoded(topic: str, offset: int, text: bytes) -> _Event:
    try:
        return _decoder.decode(text)
    except msgspec.MsgspecError as error:
        raise Corrupted(
            f"the dead letter at offset {offset} of {topic} cannot be read",
            expected="an event as JSON",
            found=str(error),
            action="was it written by a newer version, or by somebody else?",
        ) from error


def _letters(whole: list[tuple[int, _Event]]) -> Letters:
    events = [event for _, event in whole]
    counts = np.array([len(event.cells) for event in events], np.int32)
    cells = [cell for event in events for cell in event.cells]
    columns = [
        pa.array([event.table for event in events], pa.string()).dictionary_encode(),
        pa.array([event.region for event in events], pa.string()).dictionary_encode(),
        pa.array([event.sequence_id for event in events], pa.int64()),
        pa.array([event.write_time_ms for event in events], pa.int64()),
        pa.array([event.row for event in events], pa.binary()),
        pa.array([list(event.cluster_ids) for event in events], pa.list_(pa.string())),
        pa.array(np.cumsum(counts, dtype=np.int32) - counts),
        pa.array(counts),
    ]
    cell_columns = [
        pa.array(np.repeat(np.arange(len(events), dtype=np.int32), counts)),
        pa.array([cell.family for cell in cells], pa.binary()).dictionary_encode(),
        pa.array([cell.qualifier for cell in cells], pa.binary()),
        pa.array([cell.timestamp_ms for cell in cells], pa.int64()),
        pa.array([cell.type for cell in cells], pa.uint8()),
        pa.array([cell.value for cell in cells], pa.binary()),
        pa.array([cell.tags for cell in cells], pa.binary()),
    ]
    batch = EditBatch(
        pa.RecordBatch.from_arrays(columns, schema=EVENTS_SCHEMA),
        pa.RecordBatch.from_arrays(cell_columns, schema=CELLS_SCHEMA),
    )
    offsets = np.array([offset for offset, _ in whole], np.int64)
    return Letters(batch, offsets, [event.apart for event in events], [event.late for event in events])
