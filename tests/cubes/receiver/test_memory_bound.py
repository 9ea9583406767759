"""What a receiver keeps in memory stays bounded, however fast and however varied records come."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from rtolap.cubes.receiver.answers.query_service import answer
from rtolap.cubes.receiver.core.ingest import CubeReceiver
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.cubes.receiver.states import ConsumerState
from rtolap.cubes.receiver.views import CubeView
from rtolap.kafka.interfaces import OutRecord
from rtolap.metadata.records import CubeControl
from rtolap.protocols.receiver.messages import HistorySnapshot, PartialQuery

from tests.support.arrow_memory import counted_allocations
from tests.support.cubes.builders import START_MS, small_schema
from tests.support.twins.clock import ManualClock
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryProducer

WIDE_BYTES = 2_000  # of one value that no other record has
EVENTS = 6_000
BATCH_BYTES = 256 << 10
FLUSH_BYTES = 1 << 20
# Tables in memory, and what one batch may add to them before the next look: its values once as columns.
TABLES_BYTES_MAX = FLUSH_BYTES + 2 * BATCH_BYTES
# While a flush merges and encodes, its input and its output are there at once, beside the file's image.
POOL_BYTES_MAX = 4 * TABLES_BYTES_MAX
VIEW = CubeView(
    control=CubeControl(enabled=True, assignment={"rs": (0,)}, assignment_epoch=1, first_offsets={0: 0}),
    start_offsets={0: 0},
)


@pytest.fixture
def pool() -> Iterator[pa.MemoryPool]:
    """Counts what Arrow allocates from here on."""
    with counted_allocations() as counting:
        yield counting


def _core(
    folder: Path, broker: MemoryBroker, clock: ManualClock | None = None, **settings: float
) -> CubeReceiver:
    values = {"flush_bytes": FLUSH_BYTES, "batch_bytes_max": BATCH_BYTES, "flush_rows": 1 << 40, **settings}
    return CubeReceiver(
        small_schema(),
        replica_set="rs",
        consumer=MemoryConsumer(broker, "sales"),
        producer=MemoryProducer(broker),
        folder=folder,
        clock=clock or ManualClock(START_MS),
        settings=ReceiverSettings(disk_free_bytes_min=0, **values),  # type: ignore[arg-type]
    )


def _broker(width: int = WIDE_BYTES) -> MemoryBroker:
    """Far more than may stay in memory, in two segments, every record a group of its own."""
    broker = MemoryBroker()
    broker.create("sales", 1)
    for number in range(EVENTS):
        body = {"ts": START_MS + number * 10, "kind": f"{number:0{width}}", "place": number, "amount": 1}
        broker.append("sales", OutRecord(json.dumps(body).encode(), partition=0))
    return broker


def _memory_bytes(core: CubeReceiver) -> int:
    return sum(table.nbytes for table in core.state.tables() if table.in_memory)


def _count(core: CubeReceiver) -> int:
    query = PartialQuery(core.schema.cube.name, (), ("__rows",), HistorySnapshot())
    table = answer(core.schema, core.state, query, owned=(0,), receiver_id="r", progress=core.progress)
    return int(sum(table.column("__rows").to_pylist()))


def test_wide_and_varied_records_are_written_out_before_memory_grows(
    tmp_path: Path, pool: pa.MemoryPool
) -> None:
    broker = _broker()
    core = _core(tmp_path, broker)
    most = batches = 0
    while core.step(VIEW):
        batches += 1
        most = max(most, _memory_bytes(core))
    assert EVENTS * WIDE_BYTES > 8 * FLUSH_BYTES
    assert batches > EVENTS * WIDE_BYTES // BATCH_BYTES // 2, "a batch ends where its bytes end"
    assert most < FLUSH_BYTES, "looked at after every batch: what has reached the bound is on disk"
    peak = pool.max_memory()
    assert peak is not None
    assert peak < POOL_BYTES_MAX, f"{peak} bytes at the peak"
    assert _count(core) == EVENTS


def test_many_small_groups_are_bounded_by_rows(tmp_path: Path) -> None:
    core = _core(tmp_path, _broker(1), flush_rows=500, batch_records_max=200)
    most = 0
    while core.step(VIEW):
        most = max(most, sum(table.rows for table in core.state.tables() if table.in_memory))
    assert most < 500
    assert _count(core) == EVENTS


def test_what_cannot_be_written_out_stops_the_consumer_instead_of_growing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock(START_MS)
    core = _core(tmp_path, _broker(), clock)

    def full(_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(core.file, "save", full)
        for _ in range(200):
            core.step(VIEW)
        assert core.consumer_state is ConsumerState.PAUSED
        assert "No space left" in core.reason
        table_bytes = _memory_bytes(core)
        assert FLUSH_BYTES <= table_bytes < TABLES_BYTES_MAX
        assert core.state.positions[0] < EVENTS
    clock.advance_ms(10_000)
    while core.step(VIEW):
        assert _memory_bytes(core) < FLUSH_BYTES
    assert _count(core) == EVENTS
