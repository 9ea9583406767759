"""Many open segments, values, askers and events at once: answers are those of a plain recount."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from rtolap.base.clock import SystemClock
from rtolap.cubes.format.aggregate import merge_tables
from rtolap.cubes.receiver.answers.query_service import answer
from rtolap.cubes.receiver.answers.result_cache import ResultCache
from rtolap.cubes.receiver.core.ingest import CubeReceiver
from rtolap.cubes.receiver.pace import StepPace
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.cubes.receiver.views import CubeView
from rtolap.kafka.interfaces import OutRecord
from rtolap.metadata.records import CubeControl
from rtolap.protocols.receiver.messages import HistorySnapshot, PartialQuery

from tests.support.cubes.builders import START_MS, WINDOW_MS, small_schema
from tests.support.cubes.later_executor import LaterExecutor
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryProducer

SCHEMA = small_schema()
VIEW = CubeView(
    control=CubeControl(enabled=True, assignment={"rs": (0, 1)}, assignment_epoch=1),
    start_offsets={0: 0, 1: 0},
)
OPEN_SEGMENTS = 200
BURST = 60_000
ASKERS, QUESTIONS = 50, 12


class Receiver:
    def __init__(self, folder: Path, **settings: int) -> None:
        self.broker = MemoryBroker()
        self.broker.create("sales", 2)
        self.beside = LaterExecutor()
        self.core = CubeReceiver(
            SCHEMA,
            replica_set="rs",
            consumer=MemoryConsumer(self.broker, "sales"),
            producer=MemoryProducer(self.broker),
            folder=folder,
            clock=SystemClock(),
            settings=ReceiverSettings(disk_free_bytes_min=0, **settings),
            flush_beside=self.beside,
        )
        self.cache = ResultCache(SCHEMA, 1 << 24)

    def send(self, count: int, *, segments: int, kinds: int) -> None:
        for number in range(count):
            ts = START_MS + number % segments * WINDOW_MS
            value = b'{"ts":%d,"kind":"k%d","place":%d,"amount":1}' % (ts, number % kinds, number % 7)
            self.broker.append("sales", OutRecord(value, partition=number % 2))

    def count_by(self, *dimensions: str) -> pa.Table:
        core = self.core
        return answer(
            SCHEMA,
            core.state,
            PartialQuery(SCHEMA.cube.name, dimensions, ("__rows",), HistorySnapshot()),
            owned=(0, 1),
            receiver_id="r",
            progress=core.progress,
            cache=self.cache,
        )


def events_in(table: pa.Table) -> int:
    return int(np.sum(table.column("__rows").to_numpy())) if table.num_rows else 0


def test_two_hundred_open_segments_are_flushed_and_answered_as_one(tmp_path: Path) -> None:
    receiver = Receiver(tmp_path, batch_records_max=500, flush_rows=3_000)
    receiver.send(6_000, segments=OPEN_SEGMENTS, kinds=5)
    seen = 0
    while receiver.core.step(VIEW):
        found = receiver.count_by("kind")
        assert events_in(found) == sum(receiver.core.state.positions.values()) > seen
        seen = events_in(found)
        if seen % 1_000 == 0:
            receiver.beside.run_all()
    assert len(receiver.core.state.segments) == OPEN_SEGMENTS
    assert {row["kind"]: row["__rows"] for row in receiver.count_by("kind").to_pylist()} == {
        f"k{number}": 6_000 // 5 for number in range(5)
    }


def test_a_burst_is_taken_in_whole_batches_and_counted_once(tmp_path: Path) -> None:
    receiver, pace, steps = Receiver(tmp_path, batch_records_max=20_000), StepPace(), 0
    receiver.send(BURST, segments=3, kinds=1_000)
    while receiver.core.step(VIEW):
        steps += 1
        pace.stepped(0.0, 1.0)
        assert pace.wait_s(1.0) == 0, "a core that is behind never waits"
    receiver.beside.run_all()
    assert steps == BURST // 20_000
    expected = Counter(f"k{number % 1_000}" for number in range(BURST))
    for _ in range(3):
        found = receiver.count_by("kind")
        assert Counter(dict(zip(*found.to_pydict().values(), strict=True))) == expected


def test_fifty_askers_at_a_time_see_prefixes_while_events_arrive(tmp_path: Path) -> None:
    receiver = Receiver(tmp_path, batch_records_max=300, flush_rows=500)
    receiver.send(4_500, segments=4, kinds=50)
    receiver.core.step(VIEW)
    wrong: list[str] = []
    answers = [0] * ASKERS

    def ask(number: int) -> None:
        dimensions = (("kind",), ("place",), (), ("kind", "place"))[number % 4]
        seen = 0
        for _ in range(QUESTIONS):
            found = events_in(receiver.count_by(*dimensions))
            if found < seen or found % 300:
                wrong.append(f"asker {number}: {found} after {seen}")
            seen = found
            answers[number] += 1

    askers = [threading.Thread(target=ask, args=(number,)) for number in range(ASKERS)]
    for asker in askers:
        asker.start()
    try:
        while receiver.core.step(VIEW):
            receiver.beside.run_all()
            share = sum(receiver.core.state.positions.values()) / 4_500  # of events, and of answers
            while sum(answers) < ASKERS * QUESTIONS * share and any(asker.is_alive() for asker in askers):
                time.sleep(0.001)
    finally:
        for asker in askers:
            asker.join()
    assert wrong == []
    assert answers == [QUESTIONS] * ASKERS
    assert events_in(receiver.count_by("kind")) == 4_500


@pytest.mark.parametrize("values", [1_000_000])
def test_a_dimension_of_a_million_values_merges_exactly(values: int) -> None:
    """Tables whose dictionaries share half of their values, as those of two checkpoints do."""
    schema = merge_tables(SCHEMA, [], ("kind",), ("__rows",)).schema
    tables = [_wide(schema, 0, values * 2 // 3), _wide(schema, values // 3, values * 2 // 3)]
    merged = merge_tables(SCHEMA, tables, ("kind",), ("__rows",))
    assert merged.num_rows == values // 3 + values * 2 // 3
    counts = Counter(dict(np.stack(np.unique(merged.column("__rows"), return_counts=True), 1).tolist()))
    shared = values * 2 // 3 - values // 3
    assert counts == {2: shared, 1: merged.num_rows - shared}
    few = merge_tables(SCHEMA, [table.slice(0, 3) for table in tables], ("kind",), ("__rows",))
    assert sorted(few.column("kind").to_pylist()) == sorted(
        [f"v{number}" for first in (0, values // 3) for number in range(first, first + 3)]
    )
    assert len(few.column("kind").chunk(0).dictionary) <= 100, "a result keeps no value that is not its own"


def _wide(schema: pa.Schema, first: int, count: int) -> pa.Table:
    names = pc.binary_join_element_wise("v", pa.array(np.arange(first, first + count)).cast(pa.string()), "")
    kinds = pa.DictionaryArray.from_arrays(pa.array(np.arange(count, dtype=np.int32)), names)
    return pa.Table.from_arrays([kinds, pa.array(np.ones(count, np.int64))], schema=schema)
