"""A cube of records whose schemas a registry has: while it is away nothing is counted, passed or refused."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from rtolap.base.errors import Unavailable
from rtolap.cubes.receiver.core.ingest import CubeReceiver
from rtolap.cubes.receiver.local.align import VersionedRange
from rtolap.cubes.receiver.local.realign import RangeReader
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.cubes.receiver.views import CubeView
from rtolap.kafka.interfaces import OutRecord
from rtolap.kafka.schema_registry import RegisteredSchema
from rtolap.metadata.records import CubeControl
from rtolap.model.cube import Schema
from rtolap.model.formats.record_format import RecordFormat

from tests.support.cubes.builders import START_MS, small_schema
from tests.support.formats.avro import encode, framed
from tests.support.formats.declared import KnownSchemas
from tests.support.twins.clock import ManualClock
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryProducer

SCHEMA = {
    "type": "record",
    "name": "Sale",
    "fields": [{"name": "ts", "type": "long"}, {"name": "kind", "type": "string"}],
}
VIEW = CubeView(
    control=CubeControl(enabled=True, assignment={"rs": (0,)}, assignment_epoch=1, first_offsets={0: 0}),
    start_offsets={0: 0},
)


def test_while_the_registry_is_away_no_offset_passes_and_the_status_says_why(tmp_path: Path) -> None:
    plain, broker, clock = small_schema(), MemoryBroker(), ManualClock(START_MS)
    form = RecordFormat(type="avro", registry="default")
    schema = Schema(msgspec.structs.replace(plain.table, format=form), plain.cube)
    for topic in ("sales", "sales.dead-letters"):
        broker.create(topic, 1)
    records = [framed(1, encode(SCHEMA, {"ts": START_MS + n, "kind": "a"})) for n in range(5)]
    for value in (*records, b"broken", framed(2, b"")):
        broker.append("sales", OutRecord(value, partition=0, timestamp_ms=START_MS))
    registry = KnownSchemas({1: RegisteredSchema(json.dumps(SCHEMA))})
    registry.away = True
    registries = {"default": registry}.__getitem__

    def consumer() -> MemoryConsumer:
        return MemoryConsumer(broker, "sales", with_create_ms=True)

    core = CubeReceiver(
        schema,
        replica_set="rs",
        consumer=consumer(),
        producer=MemoryProducer(broker),
        folder=tmp_path,
        clock=clock,
        settings=ReceiverSettings(disk_free_bytes_min=0),
        registries=registries,
    )
    reader = RangeReader(schema, consumer, clock, 100, lambda: None, registries)
    wanted = [VersionedRange(0, 0, 7, 1)]
    reasons = []
    for _ in range(6):
        try:
            core.step(VIEW)
        except Unavailable:
            reasons.append(core.reason)
    assert len(reasons) >= 2, "it is tried again and again"
    assert all("schema registry default" in reason for reason in reasons)
    assert core.state.positions.get(0, 0) == 0
    assert not list(core.state.tables())
    assert 0 not in core.progress.counters
    with pytest.raises(Unavailable):
        reader.read(START_MS, wanted)

    registry.away = False
    while core.step(VIEW):
        pass
    assert core.state.positions == {0: 7}
    assert sum(table.events for table in core.state.tables()) == 5
    assert core.progress.counters[0].rejected == {"bad_framing": 1, "unknown_schema": 1}
    assert core.reason == ""
    assert sum(table.events for table in reader.read(START_MS, wanted)) == 5
