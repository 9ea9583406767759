"""Memory is written out by rows, by bytes and by time; fragments are merged in bounds, and answers stay."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rtolap.cubes.receiver.answers.query_service import answer
from rtolap.cubes.receiver.core.ingest import CubeReceiver
from rtolap.cubes.receiver.local import fragments
from rtolap.cubes.receiver.local.tables import LocalTable
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.cubes.receiver.views import CubeView
from rtolap.kafka.interfaces import OutRecord
from rtolap.metadata.records import CubeControl
from rtolap.protocols.receiver.messages import HistorySnapshot, PartialQuery

from tests.support.cubes.builders import START_MS, WINDOW_MS, small_schema
from tests.support.twins.clock import ManualClock
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryProducer

NEVER = 1 << 60
VIEW = CubeView(
    control=CubeControl(enabled=True, assignment={"rs": (0,)}, assignment_epoch=1, first_offsets={0: 0}),
    start_offsets={0: 0},
)


class Bench:
    """A core that flushes for no other reason than the one that a test gives it."""

    def __init__(self, folder: Path, **settings: float) -> None:
        self.clock = ManualClock(START_MS)
        self.broker = MemoryBroker()
        self.broker.create("sales", 1)
        self.sent: list[tuple[str, int, int]] = []
        never = ReceiverSettings(
            flush_rows=NEVER, flush_bytes=NEVER, checkpoint_interval_s=float(NEVER), disk_free_bytes_min=0
        )
        self.settings = replace(never, **settings)  # type: ignore[arg-type]
        self.core = CubeReceiver(
            small_schema(),
            replica_set="rs",
            consumer=MemoryConsumer(self.broker, "sales"),
            producer=MemoryProducer(self.broker),
            folder=folder,
            clock=self.clock,
            settings=self.settings,
        )

    def send(self, *kinds: str, segment: int = 0, place: int = 0) -> None:
        for kind in kinds:
            ts = START_MS + segment * WINDOW_MS
            row = {"ts": ts, "kind": kind, "place": place, "amount": len(kind)}
            self.broker.append("sales", OutRecord(json.dumps(row).encode(), partition=0))
            self.sent.append((kind, place, len(kind)))
        while self.core.step(VIEW):
            pass

    @property
    def flushed(self) -> list[LocalTable]:
        return [table for table in self.core.state.tables() if not table.in_memory]

    def merge_all(self) -> Iterator[fragments.MergeJob]:
        """What the worker beside the core does, until nothing is left to do."""
        while (job := fragments.merge_job(self.core.state.segments, self.settings)) is not None:
            yield job
            merged = fragments.merge(self.core.schema, self.core.file.fragments, job)
            assert self.core.apply_merged(job, merged)

    def answers_are_exact(self) -> bool:
        query = PartialQuery(
            self.core.schema.cube.name, ("kind", "place"), ("__rows", "amount__sum"), HistorySnapshot()
        )
        table = answer(
            self.core.schema, self.core.state, query, owned=(0,), receiver_id="r", progress=self.core.progress
        )
        found = {
            (row["kind"], row["place"]): (row["__rows"], row["amount__sum"]) for row in table.to_pylist()
        }
        expected: dict[tuple[str, int], tuple[int, int]] = {}
        for kind, place, amount in self.sent:
            count, total = expected.get((kind, place), (0, 0))
            expected[kind, place] = (count + 1, total + amount)
        return found == expected


def test_rows_are_counted_as_they_are_aggregated(tmp_path: Path) -> None:
    bench = Bench(tmp_path, flush_rows=3)
    bench.send(*["a"] * 50, *["b"] * 50)
    assert not bench.flushed, "a hundred events are two rows"
    bench.send("c")
    assert [table.rows for table in bench.flushed] == [3]
    assert bench.core.checkpointed == {0: 101}
    assert bench.answers_are_exact()


def test_bytes_flush_few_wide_rows(tmp_path: Path) -> None:
    bench = Bench(tmp_path, flush_bytes=100_000)
    bench.send("x" * 40_000)
    assert not bench.flushed
    bench.send("y" * 70_000)
    assert [table.rows for table in bench.flushed] == [2]
    assert bench.core.checkpointed == {0: 2}
    assert bench.answers_are_exact()


def test_time_flushes_what_little_has_come_and_nothing_when_nothing_has(tmp_path: Path) -> None:
    bench = Bench(tmp_path, checkpoint_interval_s=60.0)
    bench.send("a")
    bench.clock.advance_ms(59_999)
    bench.core.step(VIEW)
    assert not bench.flushed
    bench.clock.advance_ms(1)
    bench.core.step(VIEW)
    assert [table.rows for table in bench.flushed] == [1]
    assert bench.core.checkpointed == {0: 1}
    checkpoint = bench.core.file.load()
    bench.clock.advance_ms(600_000)
    bench.core.step(VIEW)
    assert bench.core.file.load() == checkpoint, "nothing is written when nothing has changed"
    assert bench.answers_are_exact()


def test_more_fragments_than_allowed_become_one_whose_files_replace_theirs(tmp_path: Path) -> None:
    bench = Bench(tmp_path, flush_rows=1, fragments_max=3)
    for kind in "abc":
        bench.send(kind)
    assert list(bench.merge_all()) == []
    bench.send("d", segment=0)
    bench.send("a", segment=1)
    (job,) = bench.merge_all()
    assert len(job.group) == 4, "those of the other segment are not counted and not touched"
    assert sorted(table.rows for table in bench.flushed) == [1, 4]
    bench.core.checkpoint()
    names = {table.fragment.info.name for table in bench.flushed if table.fragment is not None}
    assert {path.stem for path in bench.core.file.fragments.iterdir()} == names
    assert bench.answers_are_exact()


def test_fragments_are_merged_once_the_small_ones_have_half_of_the_rows_of_the_largest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, flush_rows=1, fragments_max=30)
    monkeypatch.setattr(fragments, "SPREAD_ROWS_MIN", 4)
    merged_rows: list[list[int]] = []
    for number in range(20):
        bench.send(f"kind {number}")
        merged_rows += ([table.rows for table in job.group] for job in bench.merge_all())
        assert bench.answers_are_exact()
    assert merged_rows == [
        [1, 1, 1, 1],
        *([4, 1, 1], [6, 1, 1, 1], [9, 1, 1, 1, 1, 1]),
    ]
    assert [table.rows for table in bench.flushed] == [14, *[1] * 6]


@pytest.mark.parametrize("bound", ["merge_rows_max", "merge_bytes_max"])
def test_a_merge_takes_no_more_than_its_bound(tmp_path: Path, bound: str) -> None:
    rng = random.Random(bound)
    most = {"merge_rows_max": 12, "merge_bytes_max": 20_000}[bound]
    bench = Bench(tmp_path, flush_rows=1, fragments_max=2, **{bound: most})
    for place in range(40):
        kinds = [f"{number}{'w' * rng.randrange(1_000)}" for number in range(rng.randrange(1, 6))]
        bench.send(*kinds, place=place)
        for job in bench.merge_all():
            assert len(job.group) > 1
            size = sum(t.rows if bound == "merge_rows_max" else t.nbytes for t in job.group)
            assert size <= most
        assert bench.answers_are_exact()
    assert 2 < len(bench.flushed) < 40, "those that fit are merged, those at the bound stay"


def test_a_complete_fragment_is_not_merged_again(tmp_path: Path) -> None:
    """Else each flush beside it would write it once more."""
    bench = Bench(tmp_path, flush_rows=1, fragments_max=2, merge_rows_max=8)
    written: dict[int, int] = {}
    for number in range(60):
        bench.send(f"kind {number}")
        for job in bench.merge_all():
            rows = sum(table.rows for table in job.group)
            assert all(2 * table.rows <= 8 for table in job.group)
            written[rows] = written.get(rows, 0) + rows
        assert bench.answers_are_exact()
    assert sum(written.values()) <= 5 * 60, "each row is written a few times only"
    assert len(bench.flushed) < 30
