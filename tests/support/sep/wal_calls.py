"""Calls of a region server: an encoder that shares nothing with our decoder, and the events it expects."""

from __future__ import annotations

import random
import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rtolap.sep.events.edit_batch import CELLS_SCHEMA, EVENTS_SCHEMA, EditBatch
from rtolap.sep.hbase.replication_pb2 import UUID, ReplicateWALEntryRequest

SOURCE_ID = "6a0c2a3e-9d1c-4f0e-8a55-0c6f7f1f2b11"
CELL_TYPES = (4, 8, 10, 12, 14)


@dataclass(frozen=True)
class Cell:
    row: bytes
    qualifier: bytes = b"q"
    value: bytes = b"v"
    family: bytes = b"cf"
    timestamp_ms: int = 1_700_000_000_000
    type: int = 4
    tags: tuple[tuple[int, bytes], ...] = ()

    @property
    def raw_tags(self) -> bytes:
        return b"".join(struct.pack(">HB", len(data) + 1, kind) + data for kind, data in self.tags)

    def encoded(self) -> bytes:
        key = struct.pack(">H", len(self.row)) + self.row + struct.pack("B", len(self.family)) + self.family
        key += self.qualifier + struct.pack(">qB", self.timestamp_ms, self.type)
        cell = struct.pack(">ii", len(key), len(self.value)) + key + self.value
        if self.tags:
            cell += struct.pack(">H", len(self.raw_tags)) + self.raw_tags
        return struct.pack(">i", len(cell)) + cell


@dataclass(frozen=True)
class Entry:
    cells: tuple[Cell, ...]
    sequence_id: int = 1
    table: str = "orders"
    region: str = "0123456789abcdef0123456789abcdef"
    write_time_ms: int = 1_700_000_000_000
    cluster_ids: tuple[str, ...] = field(default=(SOURCE_ID,))


def encode_call(entries: Sequence[Entry]) -> tuple[bytes, bytes]:
    """Return the request's parameter and its cell block."""
    request = ReplicateWALEntryRequest()
    for entry in entries:
        added = request.entry.add(associated_cell_count=len(entry.cells))
        key = added.key
        key.encoded_region_name, key.table_name = entry.region.encode(), entry.table.encode()
        key.log_sequence_number, key.write_time = entry.sequence_id, entry.write_time_ms
        for text in entry.cluster_ids:
            number = uuid.UUID(text).int
            most, least = number >> 64, number & (2**64 - 1)
            key.cluster_ids.append(UUID(least_sig_bits=least, most_sig_bits=most).SerializeToString())
    block = b"".join(cell.encoded() for entry in entries for cell in entry.cells)
    return request.SerializeToString(), block


def expected_events(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """List an event for each row of each entry, with its cells as (family, qualifier, …, raw tags)."""
    events = []
    for entry in entries:
        cells_of: dict[bytes, list[tuple[Any, ...]]] = {}
        for cell in entry.cells:
            cells_of.setdefault(cell.row, []).append(
                (cell.family, cell.qualifier, cell.timestamp_ms, cell.type, cell.value, cell.raw_tags)
            )
        for row, cells in cells_of.items():
            events.append(
                {
                    "table": entry.table,
                    "region": entry.region,
                    "sequence_id": entry.sequence_id,
                    "write_time_ms": entry.write_time_ms,
                    "row": row,
                    "cluster_ids": list(entry.cluster_ids),
                    "cells": cells,
                }
            )
    return events


def events_of(batch: EditBatch) -> list[dict[str, Any]]:
    """List the batch as `expected_events` does, and check that events and cells refer to each other."""
    assert batch.events.schema == EVENTS_SCHEMA
    assert batch.cells.schema == CELLS_SCHEMA
    batch.events.validate(full=True)
    batch.cells.validate(full=True)
    cells = batch.cells.to_pylist()
    events: list[dict[str, Any]] = batch.events.to_pylist()
    assert sum(event["cell_count"] for event in events) == len(cells)
    for number, event in enumerate(events):
        first = event.pop("first_cell")
        own = cells[first : first + event.pop("cell_count")]
        assert all(cell.pop("event") == number for cell in own)
        event["cells"] = [tuple(cell.values()) for cell in own]
    return events


def random_cell(rng: random.Random, row: bytes, *, tags: bool) -> Cell:
    kind = rng.choice(CELL_TYPES)
    return Cell(
        row,
        qualifier=rng.randbytes(rng.choice((0, 1, 1, 5))),
        value=rng.randbytes(rng.choice((0, 1, 8, 30, 200))) if kind == 4 else b"",
        family=rng.choice((b"cf", b"d", b"other")),
        timestamp_ms=rng.randrange(2**45),
        type=kind,
        tags=tuple(
            (rng.randrange(1, 9), rng.randbytes(rng.randrange(9)))
            for _ in range(rng.randrange(3) if tags else 0)
        ),
    )


def random_entries(rng: random.Random, count: int, *, tags: bool = True) -> list[Entry]:
    """Return entries of few tables and regions, some with many rows, some of which come again within their
    entry."""
    entries = []
    for number in range(count):
        rows = [f"row-{rng.randrange(50)}".encode() for _ in range(rng.choice((0, 1, 1, 1, 2, 6)))]
        cells = [random_cell(rng, row, tags=tags) for row in rows for _ in range(rng.randrange(1, 4))]
        if rng.random() < 0.2:
            rng.shuffle(cells)
        entries.append(
            Entry(
                tuple(cells),
                sequence_id=number + 1,
                table=rng.choice(("orders", "shop:visits")),
                region=rng.choice(("a" * 32, "b" * 32)),
                write_time_ms=1_700_000_000_000 + rng.randrange(1000),
                cluster_ids=rng.choice(((), (SOURCE_ID,), (SOURCE_ID, str(uuid.UUID(int=7))))),
            )
        )
    return entries
