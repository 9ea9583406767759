"""A statement that comes again reads only what is new, and its answer is that of all rows."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from rtolap.cubes.format.aggregate import to_plain
from rtolap.cubes.receiver.answers.query_service import answer
from rtolap.cubes.receiver.answers.result_cache import ResultCache, merged_plainly, shape_of
from rtolap.cubes.receiver.core.ingest import CubeReceiver
from rtolap.cubes.receiver.local import fragments
from rtolap.cubes.receiver.local.small_cuboids import TableCuboids
from rtolap.cubes.receiver.local.tables import LocalTable
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.cubes.receiver.views import CubeView
from rtolap.kafka.interfaces import OutRecord
from rtolap.metadata.records import CubeControl
from rtolap.model.cube import AggregationGroup, Measure
from rtolap.model.predicate import Compare, In, Predicate
from rtolap.protocols.receiver.messages import ANSWER_KEY, HistorySnapshot, PartialAnswer, PartialQuery

from tests.support.cubes.builders import START_MS, WINDOW_MS, small_schema
from tests.support.seeds import so_many
from tests.support.twins.clock import ManualClock
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryProducer

MEASURES = (
    Measure("count"),
    Measure("avg", "amount"),
    Measure("min", "amount"),
    Measure("max", "amount"),
    Measure("sum", "price"),
    Measure("approx_distinct", "place"),
)
SCHEMA = small_schema(
    measures=MEASURES, aggregation_groups=(AggregationGroup(("minute_start", "kind", "place")),)
)
VIEW = CubeView(
    control=CubeControl(enabled=True, assignment={"rs": (0,)}, assignment_epoch=1, first_offsets={0: 0}),
    start_offsets={0: 0},
)
FILTERS: tuple[Predicate | None, ...] = (
    None,
    Compare("kind", "eq", "k1"),
    Compare("place", "gt", 20),
    In("kind", ("k0", "k3")),
)
ALL = tuple(partial.name for partial in SCHEMA.partials)
QUERIES = tuple(
    PartialQuery(SCHEMA.cube.name, dimensions, ALL, HistorySnapshot(), predicate)
    for dimensions in ((), ("kind",), ("kind", "place"), ("minute_start",))
    for predicate in FILTERS
)


class Core:
    """A core over Kafka in memory that consumes, flushes and merges when it is told to."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.dice = random.Random(seed)
        self.broker = MemoryBroker()
        self.broker.create("sales", 1)
        self.settings = ReceiverSettings(fragments_max=2, disk_free_bytes_min=0)
        self.core = CubeReceiver(
            SCHEMA,
            replica_set="rs",
            consumer=MemoryConsumer(self.broker, "sales"),
            producer=MemoryProducer(self.broker),
            folder=folder,
            clock=ManualClock(START_MS),
            settings=self.settings,
        )

    def take(self, events: int) -> None:
        for _ in range(events):
            row = {
                "ts": START_MS + self.dice.randrange(3 * WINDOW_MS),
                "kind": self.dice.choice((None, "k0", "k1", "k2", "k3")),
                "place": self.dice.randrange(40),
                "amount": self.dice.choice((None, -5, 7, 2**62)),
                "price": self.dice.choice((None, "1.25", "-99999999.99")),
            }
            self.broker.append("sales", OutRecord(json.dumps(row).encode(), partition=0))
        while self.core.step(VIEW):
            pass

    def merge(self) -> None:
        while (job := fragments.merge_job(self.core.state.segments, self.settings)) is not None:
            merged = fragments.merge(SCHEMA, self.core.file.fragments, job)
            assert self.core.apply_merged(job, merged)

    def keep_cuboids(self) -> None:
        for table in fragments.cuboid_jobs(self.core.state, rows_min=1):
            fragments.keep_cuboids(SCHEMA, self.core.state, table, self.settings.cuboid_bytes_max)

    @property
    def tables(self) -> list[LocalTable]:
        return list(self.core.state.tables())


def bare(tables: Iterable[LocalTable]) -> list[LocalTable]:
    """The same tables without cuboids beside them."""
    return [replace(table, cuboids=TableCuboids()) for table in tables]


def rows(table: pa.Table) -> list[str]:
    """In any order; lists of a sketch as they are, for they are sorted."""
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(2, 3)))
def test_answers_are_those_of_all_rows_whatever_happens_in_between(seed: int, tmp_path: Path) -> None:
    core = Core(tmp_path, seed)
    cache = ResultCache(SCHEMA, 1 << 20, table_rows_min=core.dice.choice((1, 30)))
    spared = 0
    for _ in range(60):
        act = core.dice.random()
        if act < 0.7:
            core.take(core.dice.choice((1, 5, 60)))
        elif act < 0.85:
            core.core.checkpoint()
        else:
            core.merge()
            core.keep_cuboids()
        for query in core.dice.sample(QUERIES, 2):
            tables = core.dice.sample(core.tables, max(0, len(core.tables) - core.dice.choice((0, 0, 0, 1))))
            found, plain = cache.merged(query, tables), merged_plainly(SCHEMA, query, bare(tables))
            assert rows(found.table) == rows(plain.table), f"seed {seed}: {query}"
            spared += plain.rows_scanned - found.rows_scanned
    assert spared > 0


def test_a_statement_that_comes_again_reads_its_result_and_what_is_new(tmp_path: Path) -> None:
    core, cache, query = Core(tmp_path), ResultCache(SCHEMA, 1 << 20), QUERIES[4]
    core.take(3000)
    row_count = sum(table.rows for table in core.tables)
    assert cache.merged(query, core.tables).rows_scanned == row_count
    assert cache.merged(query, core.tables).rows_scanned == row_count, (
        "nothing is kept of one that comes once"
    )
    assert cache.merged(query, core.tables).rows_scanned == 5
    core.take(1)
    assert cache.merged(query, core.tables).rows_scanned <= 5 + 1
    core.core.checkpoint()
    assert cache.merged(query, core.tables).rows_scanned == 5, "what was flushed was read before"


def test_a_query_ahead_sends_no_rows_and_leaves_their_results_behind(tmp_path: Path) -> None:
    core, cache, query = Core(tmp_path), ResultCache(SCHEMA, 1 << 20), QUERIES[4]

    def answered(query: PartialQuery) -> tuple[pa.Table, PartialAnswer]:
        table = answer(
            SCHEMA,
            core.core.state,
            query,
            owned=(0,),
            receiver_id="r",
            progress=core.core.progress,
            cache=cache,
        )
        return table, msgspec.json.decode(table.schema.metadata[ANSWER_KEY], type=PartialAnswer)

    core.take(3000)
    for _ in range(2):
        table, _ = answered(msgspec.structs.replace(query, ahead=True))
        assert not table.num_rows
    core.take(1)
    table, said = answered(query)
    assert said.rows_scanned <= 5 + 1, "what was asked for ahead is not read again"
    assert said.positions == {0: 3001}
    plain = to_plain(SCHEMA, merged_plainly(SCHEMA, query, bare(core.tables)).table)
    assert rows(table) == rows(plain)


def test_results_beyond_their_bytes_are_forgotten(tmp_path: Path) -> None:
    bytes_max = 200_000
    core, cache = Core(tmp_path), ResultCache(SCHEMA, bytes_max, table_rows_min=1)
    core.take(2000)
    places = [
        PartialQuery(SCHEMA.cube.name, ("kind",), ALL, HistorySnapshot(), Compare("place", "le", n))
        for n in range(99)
    ]
    shapes = []
    for query in places:
        for _ in range(2):
            cache.merged(query, core.tables)
        shapes.append(shape_of(query))
        result_bytes = sum(table.results.nbytes(shape) for table in core.tables for shape in shapes)
        assert result_bytes <= bytes_max * 1.5
    row_count = sum(table.rows for table in core.tables)
    assert cache.merged(places[-1], core.tables).rows_scanned < row_count
    assert cache.merged(places[0], core.tables).rows_scanned >= row_count / 2, "it was asked for longest ago"


def test_of_a_result_that_has_no_room_nothing_is_kept(tmp_path: Path) -> None:
    core, cache = Core(tmp_path), ResultCache(SCHEMA, 20_000, table_rows_min=1)
    core.take(2000)
    query = PartialQuery(SCHEMA.cube.name, ("kind", "place"), ALL, HistorySnapshot())
    for _ in range(4):
        found = cache.merged(query, core.tables)
        assert found.rows_scanned == sum(table.rows for table in core.tables)
        assert rows(found.table) == rows(merged_plainly(SCHEMA, query, core.tables).table)
        core.take(10)
    assert sum(table.results.nbytes(shape_of(query)) for table in core.tables) == 0


def test_statements_that_differ_in_a_value_alone_are_told_apart(tmp_path: Path) -> None:
    core, cache = Core(tmp_path), ResultCache(SCHEMA, 1 << 20, table_rows_min=1)
    core.take(500)
    for place in (1, 2, 1.5, 1, 2, 1.5):
        query = PartialQuery(
            SCHEMA.cube.name, (), ("__rows",), HistorySnapshot(), Compare("place", "le", place)
        )
        expected = rows(merged_plainly(SCHEMA, query, core.tables).table)
        assert rows(cache.merged(query, core.tables).table) == expected
