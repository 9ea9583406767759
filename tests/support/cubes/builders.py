"""A small schema and seeded events for tests: nulls, decimals, late, out-of-order and malformed records."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from decimal import Decimal

import msgspec
from rtolap.model.completeness import EventLoss
from rtolap.model.cube import Cube, LatePolicy, Measure, Schema, SegmentPolicy
from rtolap.model.table import Column, Table, TimeColumn
from rtolap.protocols.coordinator.messages import BuildSpecMessage

WINDOW_MS = 60_000
START_MS = 1_700_000_040_000 // WINDOW_MS * WINDOW_MS
DIMENSIONS = ("kind", "place")
PARTIALS = (
    *("__rows", "amount__sum", "amount__count", "amount__min", "amount__max", "price__sum"),
    "amount__value_set",
)


def spec_losses(spec: BuildSpecMessage) -> tuple[EventLoss, ...]:
    """Return the losses as a build takes them over into its manifest."""
    return tuple(msgspec.convert(loss.model_dump(), EventLoss) for loss in spec.losses)


def small_schema(**cube_changes: object) -> Schema:
    """Return a schema with one-minute segments; SUM, AVG, MIN, MAX and COUNT(DISTINCT) over a
    nullable bigint, SUM over a decimal."""
    table = Table(
        name="sales",
        topic="sales",
        columns=(
            Column("ts", "bigint"),
            Column("kind", "string"),
            Column("place", "int"),
            Column("amount", "bigint"),
            Column("price", "decimal(10,2)"),
        ),
        time=TimeColumn("ts", "epoch_ms"),
    )
    values: dict[str, object] = {
        "name": "sales_by_kind",
        "table": "sales",
        "dimensions": DIMENSIONS,
        "time_dimensions": ("minute", "hour"),
        "measures": (
            Measure("count"),
            Measure("avg", "amount"),
            Measure("min", "amount"),
            Measure("max", "amount"),
            Measure("sum", "price"),
            Measure("count_distinct", "amount"),
        ),
        "segment": SegmentPolicy(
            window_ms=WINDOW_MS,
            allowed_lateness_ms=5_000,
            sliding_window_ms=2 * WINDOW_MS,
            sliding_window_max_ms=5 * WINDOW_MS,
        ),
        "late": LatePolicy(merge_after_ms=10_000),
    }
    return Schema(table, Cube(**{**values, **cube_changes}))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Event:
    """As it was meant; None stands for a malformed record."""

    event_ms: int
    kind: str | None
    place: int | None
    amount: int | None
    price: Decimal | None
    visitor: str | None = None

    @property
    def segment_ms(self) -> int:
        return self.event_ms // WINDOW_MS * WINDOW_MS


_MALFORMED = (
    b"",
    b"{",
    b"not json",
    b'{"ts":"yesterday"}',
    b'{"kind":"a"}',
    b"\xff\xfe",
    b'{"ts":1,"place":"x"}',
)


def random_event(random_: random.Random, around_ms: int) -> tuple[bytes | None, Event | None]:
    """Return an event that is mostly near `around_ms`, sometimes minutes late. One in forty is malformed, and
    None is a tombstone."""
    if random_.random() < 0.025:
        return (None if random_.random() < 0.2 else random_.choice(_MALFORMED)), None
    late_ms = random_.randrange(6 * WINDOW_MS) if random_.random() < 0.08 else random_.randrange(8_000)
    event = Event(
        event_ms=around_ms - late_ms,
        kind=random_.choice(("a", "b", "c", None)),
        place=random_.choice((1, 2, 3, None)),
        amount=random_.choice((None, random_.randrange(-50, 50))),
        price=random_.choice((None, Decimal(random_.randrange(10_000)) / 100)),
    )
    body = {
        "ts": event.event_ms,
        "kind": event.kind,
        "place": event.place,
        "amount": event.amount,
        "price": None if event.price is None else str(event.price),
    }
    return json.dumps(body).encode(), event
