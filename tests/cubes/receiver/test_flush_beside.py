"""A checkpoint that is written beside the core: events go on, answers stay exact, crashes lose nothing."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from rtolap.cubes.format import fragment as fragment_format
from rtolap.cubes.receiver.answers.query_service import answer
from rtolap.cubes.receiver.core.ingest import CubeReceiver
from rtolap.cubes.receiver.local import fragments
from rtolap.cubes.receiver.local.tables import LocalTable
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.cubes.receiver.states import ConsumerState
from rtolap.cubes.receiver.views import CubeView
from rtolap.kafka.interfaces import OutRecord
from rtolap.metadata.records import CubeControl
from rtolap.protocols.receiver.messages import HistorySnapshot, PartialQuery

from tests.support.cubes.builders import START_MS, small_schema
from tests.support.cubes.later_executor import LaterExecutor
from tests.support.twins.clock import ManualClock
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryProducer

VIEW = CubeView(
    control=CubeControl(enabled=True, assignment={"rs": (0,)}, assignment_epoch=1, first_offsets={0: 0}),
    start_offsets={0: 0},
)


class Bench:
    """A core that flushes on a thread that works when it is told to."""

    def __init__(self, folder: Path, flush_rows: int = 5) -> None:
        self.folder, self.flush_rows = folder, flush_rows
        self.clock = ManualClock(START_MS)
        self.broker = MemoryBroker()
        self.broker.create("sales", 1)
        self.sent: Counter[str] = Counter()
        self.start()

    def start(self) -> None:
        """As after a crash: what was still to be written is lost."""
        self.beside = LaterExecutor()
        self.core = CubeReceiver(
            small_schema(),
            replica_set="rs",
            consumer=MemoryConsumer(self.broker, "sales"),
            producer=MemoryProducer(self.broker),
            folder=self.folder,
            clock=self.clock,
            settings=ReceiverSettings(flush_rows=self.flush_rows, disk_free_bytes_min=0, retry_s=1.0),
            flush_beside=self.beside,
        )

    def send(self, *kinds: str) -> None:
        for kind in kinds:
            row = {"ts": START_MS, "kind": kind, "place": 1, "amount": 1}
            self.broker.append("sales", OutRecord(json.dumps(row).encode(), partition=0))
        self.sent.update(kinds)
        while self.core.step(VIEW):
            pass

    def assert_exact(self) -> None:
        query = PartialQuery(self.core.schema.cube.name, ("kind",), ("__rows",), HistorySnapshot())
        core = self.core
        table = answer(core.schema, core.state, query, owned=(0,), receiver_id="r", progress=core.progress)
        assert {row["kind"]: row["__rows"] for row in table.to_pylist()} == dict(self.sent)

    @property
    def tables(self) -> list[LocalTable]:
        return list(self.core.state.tables())

    @property
    def flushed(self) -> list[int]:
        return [table.rows for table in self.tables if not table.in_memory]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_events_go_on_while_a_checkpoint_is_written(bench: Bench) -> None:
    bench.send(*"abcde")
    assert not bench.flushed, "it is being written"
    bench.send("f", "a")
    bench.assert_exact()
    assert bench.core.checkpointed == {}
    assert bench.beside.run_all() == 1
    bench.core.step(VIEW)
    assert bench.flushed == [5]
    assert bench.core.checkpointed == {0: 5}, "of the moment at which it was drafted"
    bench.assert_exact()


def test_what_is_being_written_is_not_merged_with_later_tables(tmp_path: Path) -> None:
    bench = Bench(tmp_path, flush_rows=30)
    bench.send(*(f"k{number}" for number in range(30)))
    for kind in "xyzx" * 4:
        bench.send(kind)
    assert len(bench.tables) == 1 + 2, "twice eight of them have become one"
    bench.beside.run_all()
    bench.core.step(VIEW)
    assert bench.flushed == [30]
    bench.assert_exact()


def test_the_next_one_waits_for_it(bench: Bench) -> None:
    bench.send(*"abcde")
    bench.send(*"fghij")
    assert bench.flushed == [5], "or memory would have no bound"
    bench.beside.run_all()
    bench.core.step(VIEW)
    assert bench.flushed == [5, 5]
    bench.assert_exact()


@pytest.mark.parametrize("written", [False, True])
def test_a_crash_meanwhile_loses_nothing_and_counts_nothing_twice(bench: Bench, written: bool) -> None:
    bench.send(*"abcde")
    bench.send("f")
    if written:
        bench.beside.run_all()
    bench.start()
    while bench.core.step(VIEW):
        pass
    assert bench.flushed == ([5] if written else [])
    bench.assert_exact()


def test_a_checkpoint_on_demand_takes_over_the_one_under_way(bench: Bench) -> None:
    bench.send(*"abcde")
    bench.send("f")
    bench.core.checkpoint()
    assert sorted(bench.flushed) == [1, 5]
    assert bench.core.checkpointed == {0: 6}
    bench.start()
    bench.core.step(VIEW)
    assert sorted(bench.flushed) == [1, 5]
    bench.assert_exact()


def test_what_was_realigned_meanwhile_stays_and_the_file_goes_with_the_next_checkpoint(bench: Bench) -> None:
    bench.send(*"abcde")
    (sealed,) = bench.tables
    again = LocalTable(sealed.table, sealed.events, sealed.ranges, sealed.versions)
    bench.beside.run_all()
    assert bench.core.apply_realigned(START_MS, [sealed], (again,))
    bench.core.step(VIEW)
    assert len(list(bench.core.file.fragments.glob("*" + fragment_format.SUFFIX))) >= 1
    bench.core.checkpoint()
    assert bench.flushed == [5]
    named = {entry.name for entry in bench.core.file.load().fragments}  # type: ignore[union-attr]
    there = {path.stem for path in bench.core.file.fragments.glob("*" + fragment_format.SUFFIX)}
    assert there == named
    bench.assert_exact()


def test_a_failure_beside_pauses_the_consumer_until_a_checkpoint_works(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(fragments, "write_fragment", full)
        bench.send(*"abcde")
        bench.beside.run_all()
        bench.core.step(VIEW)
        bench.core.step(VIEW)
        assert bench.core.consumer_state is ConsumerState.PAUSED
        assert "no space left" in bench.core.reason
        bench.send("f")
        assert bench.core.state.positions == {0: 5}
    bench.clock.advance_ms(1_000)
    bench.core.step(VIEW)
    assert bench.flushed == [5]
    bench.send("g")
    assert bench.core.consumer_state is not ConsumerState.PAUSED
    bench.assert_exact()
