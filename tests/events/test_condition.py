"""The condition of a table: events that do not fulfil it are left out, counted and no rejects."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from rtolap.columnar.schema import EVENT_MS, OFFSET, PARTITION
from rtolap.events.decode import Decoded, EventDecoder
from rtolap.model.cube import Cube, Measure, Schema
from rtolap.model.table import Column, Table, TimeColumn
from rtolap.model.validation.definition import validate_schema

from tests.support.seeds import so_many

NOW_MS = 1_000_000
TABLE = Table(
    name="shop_events",
    topic="shop_events",
    columns=(
        Column("ts", "bigint"),
        Column("kind", "string"),
        Column("shop", "string"),
        Column("price", "decimal(8,2)"),
        Column("quantity", "int"),
        Column("host", "string"),
        Column("beat", "boolean"),
        Column("revenue", "decimal(9,2)", expression="price * quantity"),
        Column("doubled", "int", expression="quantity + quantity"),
    ),
    time=TimeColumn("ts"),
    where="kind = 'order' AND (revenue > 5 OR quantity IS NULL)",
)
CUBE = Cube(name="c", table="shop_events", dimensions=("shop",), measures=(Measure("sum", "price"),))
ORDER = {"ts": 1, "kind": "order", "shop": "a", "price": "10.00", "quantity": 2}


def schema(cube: Cube = CUBE, **changes: Any) -> Schema:
    found = Schema(msgspec.structs.replace(TABLE, **changes), cube)
    validate_schema(found)
    return found


def decoded(events: Sequence[dict[str, Any] | bytes], of: Schema, partitions: int = 3) -> Decoded:
    values = [event if isinstance(event, bytes) else msgspec.json.encode(event) for event in events]
    where = np.arange(len(values), dtype=np.int32) % partitions
    return EventDecoder(of).decode(values, where, np.arange(len(values)), now_ms=NOW_MS)


def offsets(found: Decoded) -> list[int]:
    return sorted(found.table.column(OFFSET).to_pylist())


@pytest.mark.parametrize("seed", range(so_many(5)))
def test_drawn_events_are_left_out_as_a_plain_evaluation_says(seed: int) -> None:
    rng = random.Random(seed)
    events, kept, left_out = [], [], []
    for offset in range(200):
        price, quantity = rng.choice((None, rng.randrange(500))), rng.choice((None, rng.randrange(9)))
        event = {
            "ts": offset,
            "kind": rng.choice((None, "order", "visit")),
            "price": None if price is None else price / 100,
            "quantity": quantity,
        }
        events.append(event)
        pays = price is not None and quantity is not None and price * quantity > 500
        passes = event["kind"] == "order" and (pays or quantity is None)
        (kept if passes else left_out).append(offset)
    found = decoded(events, schema())
    assert offsets(found) == kept
    assert not len(found.rejects)
    assert found.filtered is not None
    assert found.filtered.partitions.tolist() == [offset % 3 for offset in left_out]
    assert found.filtered.events.column(EVENT_MS).to_pylist() == left_out
    assert found.filtered.events.column(PARTITION).to_pylist() == [offset % 3 for offset in left_out]
    assert found.filtered.places.tolist() == left_out
    assert found.table.column_names == ["shop", "ts", "price", EVENT_MS, PARTITION, OFFSET]


def test_what_follows_the_condition_is_not_looked_at() -> None:
    visit = ORDER | {"kind": "visit"}
    timeless = {"kind": "visit"}
    later = visit | {"ts": NOW_MS + (2 << 40)}
    doubled = Cube(name="c", table="shop_events", dimensions=("shop",), measures=(Measure("sum", "doubled"),))
    wide = visit | {"quantity": (1 << 31) - 1, "price": 0}  # its double has no int
    found = decoded([visit, timeless, later, wide], schema(doubled))
    assert not len(found.rejects)
    assert found.filtered is not None
    assert len(found.filtered.partitions) == 4
    assert found.filtered.events.column(EVENT_MS).to_pylist() == [1, 1]  # of those with an event time


def test_what_comes_before_the_condition_is_refused() -> None:
    visit = ORDER | {"kind": "visit"}
    unread = [b"{", b"", visit | {"quantity": "many"}]
    unknown = visit | {"price": 900_000, "quantity": 90_000_000}  # the condition reads the revenue
    found = decoded([*unread, unknown], schema())
    assert found.rejects.reason == ["malformed_json", "empty", "wrong_type", "out_of_range"]
    assert found.filtered is not None
    assert not len(found.filtered.partitions)


def test_what_passes_is_checked_as_ever() -> None:
    passing = ORDER | {"quantity": None}
    found = decoded([passing | {"ts": None}, passing | {"ts": NOW_MS + (2 << 40)}, passing], schema())
    assert found.rejects.reason == ["missing_time", "time_in_future"]
    assert offsets(found) == [2]


def test_heartbeats_are_heard_whatever_the_condition() -> None:
    beating = schema(host_column="host", heartbeat_column="beat")
    found = decoded([{"ts": 5, "beat": True, "host": "h"}, {"ts": 6, "beat": False, "host": "h"}], beating)
    assert found.heartbeats is not None
    assert found.heartbeats[0].num_rows == 1
    assert found.filtered is not None
    assert len(found.filtered.partitions) == 1


def test_a_table_without_a_condition_leaves_nothing_out() -> None:
    found = decoded([{"ts": 5}], schema(where=None))
    assert found.filtered is None
    assert offsets(found) == [0]
