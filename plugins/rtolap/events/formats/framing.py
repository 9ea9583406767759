"""Records that begin with the id of their schema, as Confluent's serialisers write them.

    byte 0       0, the version of the framing
    bytes 1 – 4  the id, the highest byte first
    then         the value; of Protobuf first which message of the schema's file it is

Ids differ between records of a batch, since producers change one after the other. Records of one id are read
together, and all come back in input order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from rtolap.base.errors import DefinitionError, NotFound
from rtolap.events.classify import Problem
from rtolap.events.formats.columns import RowBuilder, in_chunks, together
from rtolap.events.formats.lockstep import Records
from rtolap.events.formats.protobuf_reader import ProtobufReader
from rtolap.events.formats.reader import Places, Problems
from rtolap.events.plan import JsonPlan

FRAME_BYTES = 5
_MAGIC = 0
_STEPS_MAX = 64


class SchemaReader(Protocol):
    """The reader of the records of one schema."""

    def read(
        self, records: list[bytes], places: Places, problems: Problems, *, skipped: int = 0
    ) -> tuple[pa.StructArray, Places]:
        """See `RecordReader`. `skipped`: bytes before each record's value."""


class ProtobufFileReader:
    """Reads records of a registered file of messages. Each says which message it is: the number of steps, and
    the position of each, of the file and then inside of the message; a single 0 stands for the first message.

    Args:
        open_reader: returns the reader of the message at these positions. NotFound: there is none.
    """

    def __init__(self, plan: JsonPlan, open_reader: Callable[[tuple[int, ...]], ProtobufReader]) -> None:
        self._plan = plan
        self._open_reader = open_reader
        self._readers: dict[tuple[int, ...], ProtobufReader] = {}

    def read(
        self, records: list[bytes], places: Places, problems: Problems, *, skipped: int = 0
    ) -> tuple[pa.StructArray, Places]:
        """See `SchemaReader`."""
        text = Records(records, skipped)
        cursor = text.cursor()
        counts = cursor.zigzag()
        cursor.fail(
            (counts < 0) | (counts > _STEPS_MAX), f"not the position of a message in {_STEPS_MAX} steps"
        )
        steps = np.where(cursor.failed(), 0, counts)
        positions = np.full((len(records), max(1, int(steps.max(initial=0)))), -1, np.int64)
        positions[steps == 0, 0] = 0
        for step in range(int(steps.max(initial=0))):
            deep = np.flatnonzero(steps > step)
            part = cursor.subset(deep)
            positions[deep, step] = part.zigzag()
            cursor.join(deep, part)
        for row, why in text.failures.items():
            problems[int(places[row])] = Problem("bad_framing", why)
        sound = np.flatnonzero(~text.cursor().failed())
        kinds, kind_of = np.unique(positions[sound], axis=0, return_inverse=True)
        read = []
        for number, kind in enumerate(kinds):
            which = sound[kind_of.ravel() == number]
            chosen = [records[at] for at in which.tolist()]
            path = tuple(int(position) for position in kind if position >= 0)
            before = cursor.at[which] - text.ends[which] + text.lengths[which]
            read.append(self._of_message(path, chosen, places[which], problems, before))
        return _ordered(self._plan, read)

    def _of_message(
        self,
        positions: tuple[int, ...],
        records: list[bytes],
        places: Places,
        problems: Problems,
        skipped: Places,
    ) -> tuple[pa.StructArray, Places]:
        reader = self._readers.get(positions)
        if reader is None:
            try:
                reader = self._readers[positions] = self._open_reader(positions)
            except NotFound as error:
                problems |= dict.fromkeys(places.tolist(), Problem("unknown_schema", str(error)))
                return RowBuilder(self._plan, 0).build(places[:0], problems)
        return reader.read(records, places, problems, skipped=skipped)


class ChunkedReader:
    """Reads records of one schema without framing, in chunks."""

    def __init__(self, plan: JsonPlan, reader: SchemaReader) -> None:
        self._plan = plan
        self._reader = reader

    def read(self, records: list[bytes], places: Places, problems: Problems) -> tuple[pa.StructArray, Places]:
        """See `RecordReader`."""
        return in_chunks(self._plan, records, places, problems, self._reader.read)


class FramedReader:
    """Reads records that name their schemas.

    Args:
        open_reader: returns the reader for a schema's id. NotFound: there is none of that id.
            DefinitionError: it cannot be read as this format. Unavailable: it is not known now.
    """

    def __init__(self, plan: JsonPlan, open_reader: Callable[[int], SchemaReader]) -> None:
        self._plan = plan
        self._open_reader = open_reader
        self._readers: dict[int, SchemaReader] = {}

    def read(self, records: list[bytes], places: Places, problems: Problems) -> tuple[pa.StructArray, Places]:
        """See `RecordReader`."""
        return in_chunks(self._plan, records, places, problems, self._chunk)

    def _chunk(
        self, records: list[bytes], places: Places, problems: Problems
    ) -> tuple[pa.StructArray, Places]:
        ids = _ids(records)
        if ids.min() < 0:
            for at in np.flatnonzero(ids < 0).tolist():
                problems[int(places[at])] = _unframed(records[at])
        groups = np.unique(ids[ids >= 0]).tolist()
        if len(groups) == 1 and ids.min() >= 0:
            return self._of_schema(groups[0], records, places, problems)
        parts = []
        for schema_id in groups:
            which = np.flatnonzero(ids == schema_id)
            chosen = [records[at] for at in which.tolist()]
            parts.append(self._of_schema(schema_id, chosen, places[which], problems))
        return _ordered(self._plan, parts)

    def _of_schema(
        self, schema_id: int, records: list[bytes], places: Places, problems: Problems
    ) -> tuple[pa.StructArray, Places]:
        reader = self._readers.get(schema_id)
        if reader is None:
            try:
                reader = self._readers[schema_id] = self._open_reader(schema_id)
            except (NotFound, DefinitionError) as error:
                problem = Problem("unknown_schema", f"schema {schema_id}: {error}")
                problems |= dict.fromkeys(places.tolist(), problem)
                return RowBuilder(self._plan, 0).build(places[:0], problems)
        return reader.read(records, places, problems, skipped=FRAME_BYTES)


def _ids(records: list[bytes]) -> Places:
    """Return the schema of each record, -1 for a record without framing."""
    heads = b"".join([record[:FRAME_BYTES].ljust(FRAME_BYTES) for record in records])
    lengths = np.fromiter(map(len, records), np.int64, len(records))
    octets = np.frombuffer(heads, np.uint8).reshape(len(records), FRAME_BYTES)
    ids = octets[:, 1:].astype(np.int64) @ np.array([1 << 24, 1 << 16, 1 << 8, 1])
    return np.where((octets[:, 0] == _MAGIC) & (lengths >= FRAME_BYTES) & (ids < 1 << 31), ids, -1)


def _unframed(record: bytes) -> Problem:
    if not record:
        return Problem("empty", "0 bytes without a value")
    detail = f"expected a byte 0 and the 4 bytes of a schema's id, found {record[:FRAME_BYTES].hex(' ')}"
    return Problem("bad_framing", detail)


def _ordered(plan: JsonPlan, parts: Sequence[tuple[pa.StructArray, Places]]) -> tuple[pa.StructArray, Places]:
    """Return the rows of all parts in input order."""
    rows, at = together(plan, parts)
    if len(parts) < 2:
        return rows, at
    order = np.argsort(at, kind="stable")
    return rows.take(pa.array(order)), at[order]
