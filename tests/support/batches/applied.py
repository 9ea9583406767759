"""A batch is applied on real servers: it takes the place of what the stream had said of an hour, at once.

Whoever uses it says how Spark stages the batch. The rows are `drawn_events`, all within `HOUR`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from rtolap.kafka.interfaces import OutRecord
from rtolap.kafka.producer import KafkaProducer
from rtolap.model.batch import BatchSource
from rtolap.model.segment import SegmentRange

from tests.support import commands
from tests.support.cubes.builders import START_MS, Event
from tests.support.cubes.services import Services, wait_for
from tests.support.query.prices import define_prices

JOBS = Path(__file__).resolve().parents[3] / "spark_jobs"
HOUR_MS = 3_600_000
HOUR = START_MS // HOUR_MS * HOUR_MS
Answer = dict[str | None, tuple[int, Decimal | None]]  # by kind: events and the sum of prices


class Said(NamedTuple):
    at_ms: int
    kind: str | None
    price: Decimal | None


def recounted(said: Iterable[Said]) -> Answer:
    found: Answer = {}
    for each in said:
        count, total = found.get(each.kind, (0, None))
        found[each.kind] = (count + 1, total if each.price is None else each.price + (total or 0))
    return found


class StreamedHours:
    """A cube of prices by the hour. The hours around `HOUR` are history, out of a stream."""

    def __init__(self, services: Services, cube: str, kafka: str, folder: Path) -> None:
        self.services, self.cube = services, cube
        self._producer = KafkaProducer(kafka, client_id="test")
        self.streamed = [
            Said(HOUR + hour * HOUR_MS + number * 1_000, f"k{number % 3}", Decimal(number) / 4)
            for hour in (-1, 0)
            for number in range(40)
        ]
        services.start_coordinators()
        services.start_receiver("r1", "only", "--checkpoint-interval-s", "1", "--idle-after-s", "60")
        services.start_query()
        wait_for("the receiver lives", lambda: len(services.coordinator.receivers()) == 1)
        commands.rtolap(services.environment, "create", str(define_prices(folder, cube)), "--enable")
        self.send(self.streamed)
        self.send([Said(HOUR + HOUR_MS, "k0", None)])
        self._build()

    def send(self, said: Iterable[Said]) -> None:
        records = [
            OutRecord(
                json.dumps(
                    {"ts": _text(each.at_ms), "kind": each.kind, "price": _optional(each.price)}
                ).encode(),
                partition=0,
            )
            for each in said
        ]
        self._producer.produce(self.cube, records)
        self._producer.flush(60)

    def answer(self) -> Answer:
        """Return what statements say of `HOUR`."""
        since, until = (_text(at_ms)[:-1].replace("T", " ") for at_ms in (HOUR, HOUR + HOUR_MS))
        condition = f"ts >= '{since}' AND ts < '{until}'"
        sql = f"SELECT kind, COUNT(*) n, SUM(price) total FROM {self.cube} WHERE {condition} GROUP BY kind"
        return {
            row["kind"]: (row["n"], None if row["total"] is None else Decimal(str(row["total"])))
            for row in self.services.arrow(sql).to_pylist()
        }

    def close(self) -> None:
        self._producer.close()

    def replace(
        self, source: BatchSource, stage: Callable[[Path], None], folder: Path, events: Iterable[Event]
    ) -> None:
        """Apply a batch of these events to `HOUR`, and hold every answer against a recount."""
        client, streamed = self.services.coordinator, [each for each in self.streamed if each.at_ms >= HOUR]
        late = Said(HOUR + 7, "late", Decimal("0.5"))
        batch = recounted([*(Said(each.event_ms, each.kind, each.price) for each in events), late])
        assert self.answer() == recounted(streamed)
        plan = client.plan_batch(
            self.cube, "b1", start_ms=HOUR, end_ms=HOUR + HOUR_MS, source=msgspec.to_builtins(source)
        )
        assert plan.replaced == 1
        file = folder / "batch.json"
        file.write_text(json.dumps(plan.spec))
        stage(file)
        assert self.answer() == recounted(streamed), "what is staged is nothing yet"
        assert client.apply_batch(self.cube, "b1").building == (SegmentRange(HOUR, HOUR + HOUR_MS).name,)
        self.send([late])
        wait_for("the late event", lambda: self.answer() == recounted([*streamed, late]), 120)
        with self._asked_meanwhile((recounted([*streamed, late]), batch)) as answers:
            assert self.services.build_queue(JOBS) == 1
            wait_for("the batch", lambda: self.answer() == batch, 120)
        assert answers, "nobody has asked meanwhile"
        progress = client.batch_progress(self.cube, "b1")
        assert (progress.ready, progress.left, progress.building) == (1, 0, ())
        assert self.answer() == batch

    @contextmanager
    def _asked_meanwhile(self, allowed: tuple[Answer, Answer]) -> Iterator[list[Answer]]:
        """Ask again and again. Each answer is one of the two, and never the first behind the second."""
        ended, answers = threading.Event(), list[Answer]()

        def ask() -> None:
            while not ended.is_set():
                answers.append(self.answer())
                assert answers[-1] in allowed, f"of neither: {answers[-1]}"
                assert allowed[1] not in answers or answers[-1] == allowed[1], "it went back"

        with ThreadPoolExecutor(1) as beside:
            asking = beside.submit(ask)
            try:
                yield answers
            finally:
                ended.set()
            asking.result()

    def _build(self) -> None:
        """Have Spark build the hours that the stream has passed, which close by themselves."""
        client = self.services.coordinator
        names = [SegmentRange(at_ms, at_ms + HOUR_MS).name for at_ms in (HOUR - HOUR_MS, HOUR)]

        def are_built() -> bool:
            self.services.build_queue(JOBS)
            return all(client.segment(self.cube, name).version == 1 for name in names)

        wait_for("the hours are built", are_built, 300)


def _text(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S") + "Z"


def _optional(value: Any) -> str | None:
    return None if value is None else str(value)
