"""Whether an event lies too far in the future is the record's own affair, not that of when it is read."""

from __future__ import annotations

import json
from pathlib import Path

from rtolap.cubes.receiver.core.ingest import CubeReceiver
from rtolap.cubes.receiver.local.align import VersionedRange
from rtolap.cubes.receiver.local.realign import RangeReader
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.cubes.receiver.views import CubeView
from rtolap.kafka.interfaces import OutRecord
from rtolap.metadata.records import CubeControl

from tests.support.cubes.builders import START_MS, small_schema
from tests.support.twins.clock import ManualClock
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryProducer

DAY_MS = 86_400_000  # what the table allows


def test_replicas_replays_and_realignments_accept_the_same_events(tmp_path: Path) -> None:
    schema, broker = small_schema(), MemoryBroker()
    broker.create("sales", 1)
    broker.create("sales.dead-letters", 1)
    body = json.dumps({"ts": START_MS, "kind": "a", "place": 1, "amount": 1}).encode()
    for created_ms in (START_MS - DAY_MS, START_MS - DAY_MS - 1, START_MS):
        broker.append("sales", OutRecord(body, partition=0, timestamp_ms=created_ms))

    def consumer() -> MemoryConsumer:
        return MemoryConsumer(broker, "sales", with_create_ms=True)

    view = CubeView(
        control=CubeControl(enabled=True, assignment={"rs": (0,)}, assignment_epoch=1, first_offsets={0: 0}),
        start_offsets={0: 0},
    )
    counted = []
    for read_ms in (0, START_MS, START_MS + 1000 * DAY_MS):
        clock = ManualClock(read_ms)
        core = CubeReceiver(
            schema,
            replica_set="rs",
            consumer=consumer(),
            producer=MemoryProducer(broker),
            folder=tmp_path / str(read_ms),
            clock=clock,
            settings=ReceiverSettings(disk_free_bytes_min=0),
        )
        while core.step(view):
            pass
        counted.append(sum(table.events for table in core.state.tables()))
        assert core.progress.counters[0].rejected == {"time_in_future": 1}
        again = RangeReader(schema, consumer, clock, 100, lambda: None).read(
            START_MS, [VersionedRange(0, 0, 3, 1)]
        )
        counted.append(sum(table.events for table in again))
    assert counted == [2] * 6
