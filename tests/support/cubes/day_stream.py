"""A cube of day segments, fed through Kafka with seeded events, and the plain recount of what was sent."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

import httpx
import msgspec
from confluent_kafka import Producer
from rtolap.model.cube import Cube, Measure, MergePolicy, RetentionPolicy, SegmentPolicy
from rtolap.model.segment import SegmentRange
from rtolap.model.table import Column, Table, TimeColumn
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.protocols.coordinator.messages import SegmentInfo

DAY_MS = 86_400_000
FIRST = date(2013, 1, 1)
PARTITIONS = 2
_SHOPS = ("a", "b", "c", None)

Answer = dict[tuple[str, str | None], tuple[int, Decimal | None]]  # (day, shop) → (events, sum of prices)


def declare_cube(coordinator: CoordinatorClient, table: Table, cube: Cube) -> None:
    """Create both, and enable the cube."""
    coordinator.create_table(msgspec.to_builtins(table))
    coordinator.create_cube(msgspec.to_builtins(cube))
    coordinator.enable_cube(cube.name)


def drop_cube(coordinator: CoordinatorClient, table: str, cube: str) -> None:
    coordinator.disable_cube(cube)
    coordinator.drop_cube(cube)
    coordinator.drop_table(table)


class DayStream:
    """Days are numbered from 1, which is `FIRST`. Topic, table and cube have one name.

    `ask` is SQL's endpoint: text → {"rows", "positions"}.
    """

    def __init__(
        self, name: str, kafka: str, coordinator: CoordinatorClient, ask: Callable[[str], dict[str, Any]]
    ) -> None:
        self.name = name
        self._coordinator = coordinator
        self._ask = ask
        self._random = random.Random(name)
        self._kafka = kafka
        self._sent: list[tuple[int, str | None, Decimal | None]] = []
        self._ends = dict.fromkeys(range(PARTITIONS), 0)

    def define(
        self,
        *,
        after: timedelta | None = None,
        merged_to: tuple[Literal["day", "month"], ...] = (),
        merged_after: timedelta = timedelta(days=1),
    ) -> None:
        """Create and enable; the topic exists already. `after`: the cube's retention. `merged_to`,
        `merged_after`: what its segments are merged to, and how far behind the low watermark."""
        table = Table(
            name=self.name,
            topic=self.name,
            time=TimeColumn("at", "epoch_ms"),
            columns=(Column("at", "bigint"), Column("shop", "string"), Column("price", "decimal(12,2)")),
        )
        after_ms = None if after is None else round(after.total_seconds() * 1000)
        cube = Cube(
            name=self.name,
            table=self.name,
            dimensions=("shop",),
            time_dimensions=("day",),
            measures=(Measure("count"), Measure("sum", "price")),
            segment=SegmentPolicy(window_ms=DAY_MS),
            retention=RetentionPolicy(after_ms=after_ms),
            merge=MergePolicy(to=merged_to, after_ms=round(merged_after.total_seconds() * 1000)),
        )
        declare_cube(self._coordinator, table, cube)

    def drop(self) -> None:
        drop_cube(self._coordinator, self.name, self.name)

    def send(self, *days: int, events: int = 100) -> None:
        """Send so many events a day, spread over the partitions, the last of each at noon."""
        producer = Producer({"bootstrap.servers": self._kafka})
        for day in days:
            start_ms = self.start_ms(day)
            for number in range(events):
                last = number >= events - PARTITIONS
                at_ms = start_ms + (DAY_MS // 2 if last else self._random.randrange(DAY_MS // 2))
                shop = self._random.choice(_SHOPS)
                price = None if number % 7 == 0 else Decimal(self._random.randrange(-999, 99_999)) / 100
                self._sent.append((day, shop, price))
                text = None if price is None else str(price)
                partition = number % PARTITIONS
                record = json.dumps({"at": at_ms, "shop": shop, "price": text})
                producer.produce(self.name, record, partition=partition)
                self._ends[partition] += 1
        assert producer.flush(30) == 0

    def start_ms(self, day: int) -> int:
        start = datetime(FIRST.year, FIRST.month, FIRST.day, tzinfo=UTC) + timedelta(days=day - 1)
        return round(start.timestamp() * 1000)

    def start(self, day: int) -> str:
        """Return the start of a day as ISO 8601, in UTC."""
        return datetime.fromtimestamp(self.start_ms(day) / 1000, UTC).isoformat()

    def segment(self, day: int) -> str:
        return SegmentRange(self.start_ms(day), self.start_ms(day + 1)).name

    def segments(self) -> dict[int, SegmentInfo]:
        """Return the record of each day, as far as there is one, with its vectors, which lists leave out."""
        listed = [info for info in self._coordinator.segments(self.name) if info.state_history]
        whole = [self._coordinator.segment(self.name, info.segment) for info in listed]
        return {(info.start_ms - self.start_ms(1)) // DAY_MS + 1: info for info in whole}

    def recount(self, without: frozenset[int] = frozenset()) -> Answer:
        """Recount everything sent, but for these days."""
        found: Answer = {}
        for day, shop, price in self._sent:
            if day in without:
                continue
            key = (self.start(day)[:10], shop)
            count, total = found.get(key, (0, None))
            found[key] = (count + 1, total if price is None else price + (total or 0))
        return found

    def answer(self) -> Answer | None:
        """Return the result by SQL, once it holds everything that was sent; None before."""
        text = f"SELECT day_start, shop, COUNT(*), SUM(price) FROM {self.name} GROUP BY day_start, shop"
        try:
            found = self._ask(text)
        except httpx.HTTPStatusError as error:
            if error.response.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
                return None  # no receiver answers yet
            raise
        if found["positions"].get(self.name) != {str(p): end for p, end in self._ends.items()}:
            return None
        return {
            (str(day)[:10], shop): (count, None if total is None else Decimal(total))
            for day, shop, count, total in found["rows"]
        }
