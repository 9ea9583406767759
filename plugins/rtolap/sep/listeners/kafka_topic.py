"""The Kafka listener: a JSON record for each event, in one transaction with the journal's note of them.

So a reader that reads what is committed sees each event once, whatever was killed when, and a process that
was replaced writes nothing any more.

The key is the row as HBase has it: events of a row stand in one partition, in order. The value is one object
with the fields of `event_columns`; a field that is null is left out. Bytes are hexadecimal text, JSON stands
as it is, decimals are numbers with all their digits.
Headers: table, region, sequence_id, and late ("1" where the row's region was delivered further already).
So `(region, sequence_id, row)` names an event for ever.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import arro3.core
import arro3.io
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rtolap.base.errors import TooLarge
from rtolap.kafka.transactions import Headers, OutColumns
from rtolap.sep.delivery.journal import Journal
from rtolap.sep.delivery.listener import DeliveryOutcome, EventGroup, Failure, Mask
from rtolap.sep.delivery.poison import blocked_events
from rtolap.sep.events.edit_batch import EditBatch
from rtolap.sep.listeners.event_columns import EventColumns

RECORD_BYTES_MAX = 12 << 20  # of a value: below what the producer takes, with key and headers


@dataclass(frozen=True)
class EncodedEvents:
    """A record for each event, by columns of one length; refused events have a reason, and no record."""

    keys: Sequence[bytes]
    values: Sequence[bytes]
    headers: Sequence[Headers]
    refused: Mapping[int, str] = field(default_factory=dict)


Encode = Callable[[EditBatch, Mask], EncodedEvents]
"""(events, which of them are late) → their records"""


class KafkaTopicListener:
    """A listener that writes to a topic."""

    def __init__(self, topic: str, encode: Encode) -> None:
        self._topic = topic
        self._encode = encode

    def deliver(self, group: EventGroup) -> DeliveryOutcome:
        encoded = self._encode(group.batch, group.late)
        try:
            return self._commit(group, encoded)
        except TooLarge as error:
            # the broker does not say which it was: the largest one first, the others with the next pass
            largest = int(np.argmax([len(value) for value in encoded.values]))
            nothing = np.zeros(group.batch.num_events, bool)
            return DeliveryOutcome(nothing, {largest: Failure(str(error), final=True)})

    def _commit(self, group: EventGroup, encoded: EncodedEvents) -> DeliveryOutcome:
        if not encoded.refused:
            everything = np.ones(group.batch.num_events, bool)
            group.commit(everything, [OutColumns(self._topic, encoded.keys, encoded.values, encoded.headers)])
            return DeliveryOutcome(everything)
        delivered = ~blocked_events(group.batch, set(encoded.refused))
        places = np.flatnonzero(delivered).tolist()
        if places:
            columns = [[column[place] for place in places] for column in (encoded.keys, encoded.values)]
            headers = [encoded.headers[place] for place in places]
            group.commit(delivered, [OutColumns(self._topic, columns[0], columns[1], headers)])
        refused = {place: Failure(reason, final=True) for place, reason in encoded.refused.items()}
        return DeliveryOutcome(delivered, refused)

    def recover(self, journal: Journal) -> None:
        """Recover without any work: the journal is in the transaction of the events, so nothing is ever left
        open."""

    def close(self) -> None:
        """Close the journal's producer, which is the only connection."""


class JsonEvents:
    """Encodes batches; `value_bytes_max` bounds each value."""

    def __init__(self, columns: EventColumns, *, value_bytes_max: int = RECORD_BYTES_MAX) -> None:
        self._columns = columns
        self._value_bytes_max = value_bytes_max

    def __call__(self, batch: EditBatch, late: NDArray[np.bool_]) -> EncodedEvents:
        events = self._columns.of(batch)
        raw = [
            name for name in self._columns.json_columns if events.columns[name].null_count < batch.num_events
        ]
        plain = {
            name: column for name, column in events.columns.items() if name not in self._columns.json_columns
        }
        values = _lines(pa.RecordBatch.from_pydict(plain))
        if raw:
            values = _with_raw(values, {name: events.columns[name] for name in raw})
        refused = dict(events.refused)
        for place, value in enumerate(values):
            if len(value) > self._value_bytes_max:
                refused.setdefault(
                    place, f"{len(value)} bytes of JSON; expected {self._value_bytes_max} at most"
                )
        return EncodedEvents(batch.events["row"].to_pylist(), values, _headers(batch, late), refused)


def _lines(columns: pa.RecordBatch) -> list[bytes]:
    out = io.BytesIO()
    arro3.io.write_ndjson(arro3.core.RecordBatch.from_arrow(columns), out)
    return out.getvalue().split(b"\n")[: columns.num_rows]


def _with_raw(lines: list[bytes], columns: dict[str, pa.Array]) -> list[bytes]:
    """Put texts that are JSON already into the objects. There is always another field before them."""
    joined = pc.binary_slice(pa.array(lines, pa.binary()), 0, -1).cast(pa.string())
    for name, column in columns.items():
        field = pc.binary_join_element_wise(f',"{name}":', column, "").fill_null("")
        joined = pc.binary_join_element_wise(joined, field, "")
    closed: list[bytes] = pc.binary_join_element_wise(joined, "}", "").cast(pa.binary()).to_pylist()
    return closed


def _headers(batch: EditBatch, late: NDArray[np.bool_]) -> list[list[tuple[str, bytes]]]:
    tables, regions = batch.events["table"], batch.events["region"]
    table_headers = [("table", name.encode()) for name in tables.dictionary.to_pylist()]
    region_headers = [("region", name.encode()) for name in regions.dictionary.to_pylist()]
    late_headers = [("late", b"0"), ("late", b"1")]
    ids = batch.events["sequence_id"].cast(pa.string()).cast(pa.binary()).to_pylist()
    places = zip(
        tables.indices.to_pylist(), regions.indices.to_pylist(), ids, late.astype(int).tolist(), strict=True
    )
    return [
        [table_headers[table], region_headers[region], ("sequence_id", sequence_id), late_headers[is_late]]
        for table, region, sequence_id, is_late in places
    ]
