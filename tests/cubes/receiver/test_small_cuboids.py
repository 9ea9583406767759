"""Small cuboids beside fragments: read where they cover a statement, equal to the rows, bounded."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from rtolap.base.errors import Refused
from rtolap.columnar.schema import physical_schema
from rtolap.cubes.format.aggregate import merge_tables
from rtolap.cubes.format.fragment import open_fragment, write_fragment
from rtolap.cubes.receiver.answers.query_service import answer
from rtolap.cubes.receiver.core.ingest import CubeReceiver
from rtolap.cubes.receiver.core.partition_progress import ConsumerProgress
from rtolap.cubes.receiver.local import fragments
from rtolap.cubes.receiver.local.small_cuboids import TableCuboids, small_cuboids
from rtolap.cubes.receiver.local.tables import LocalSegment, LocalState, LocalTable
from rtolap.cubes.receiver.reports import cube_stats
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.cubes.receiver.views import CubeView
from rtolap.kafka.interfaces import OutRecord
from rtolap.metadata.records import CubeControl
from rtolap.model.cube import AggregationGroup, Cuboid, Measure, Schema, SegmentPolicy, cuboids
from rtolap.model.predicate import And, Compare, In, IsNull, Predicate
from rtolap.protocols.receiver.messages import ANSWER_KEY, HistorySnapshot, PartialAnswer, PartialQuery

from tests.support.cubes.builders import START_MS, small_schema
from tests.support.seeds import so_many
from tests.support.twins.clock import ManualClock
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryProducer

HOUR_MS = 3_600_000
MEASURES = (
    Measure("count"),
    Measure("avg", "amount"),
    Measure("min", "amount"),
    Measure("max", "amount"),
    Measure("sum", "price"),
    Measure("approx_distinct", "place"),
)
SCHEMA = small_schema(
    measures=MEASURES,
    segment=SegmentPolicy(window_ms=HOUR_MS),
    aggregation_groups=(AggregationGroup(("minute_start", "hour_start", "kind", "place")),),
)
ALL = tuple(partial.name for partial in SCHEMA.partials)
VIEW = CubeView(
    control=CubeControl(enabled=True, assignment={"rs": (0,)}, assignment_epoch=1, first_offsets={0: 0}),
    start_offsets={0: 0},
)
DIMENSIONS = ((), ("kind",), ("place",), ("minute_start",), ("hour_start", "kind"), ("kind", "place"))
FILTERS: tuple[Predicate | None, ...] = (
    None,
    Compare("kind", "eq", "k1"),
    Compare("kind", "eq", "never"),
    IsNull("kind"),
    And((Compare("place", "gt", 20), In("kind", ("k0", "k3")))),
    Compare("minute_start", "ge", "2023-11-14 22:20:00"),
)


class Core:
    """A core over Kafka in memory, whose cuboids are made when it is told to, however small its fragments."""

    def __init__(self, folder: Path, schema: Schema = SCHEMA, **settings: int) -> None:
        self.schema = schema
        self.broker = MemoryBroker()
        self.broker.create("sales", 1)
        self.settings = ReceiverSettings(disk_free_bytes_min=0, fragments_max=2, **settings)
        self.folder = folder
        self.core = self.start()

    def start(self) -> CubeReceiver:
        """A core on what the last one has left on the disk."""
        self.core = CubeReceiver(
            self.schema,
            replica_set="rs",
            consumer=MemoryConsumer(self.broker, "sales"),
            producer=MemoryProducer(self.broker),
            folder=self.folder,
            clock=ManualClock(START_MS),
            settings=self.settings,
        )
        return self.core

    def take(self, dice: random.Random, events: int, **fixed: object) -> None:
        for _ in range(events):
            row = {
                "ts": START_MS + dice.randrange(HOUR_MS // 4),
                "kind": dice.choice((None, "k0", "k1", "k2", "k3")),
                "place": dice.choice((None, *range(40))),
                "amount": dice.choice((None, -5, 7, 2**62)),
                "price": dice.choice((None, "1.25", "-99999999.99")),
                **fixed,
            }
            self.broker.append("sales", OutRecord(json.dumps(row).encode(), partition=0))
        while self.core.step(VIEW):
            pass
        self.core.checkpoint()

    def merge(self) -> None:
        while (job := fragments.merge_job(self.core.state.segments, self.settings)) is not None:
            assert self.core.apply_merged(job, fragments.merge(self.schema, self.core.file.fragments, job))

    def keep_cuboids(self) -> None:
        for table in fragments.cuboid_jobs(self.core.state, rows_min=1):
            fragments.keep_cuboids(self.schema, self.core.state, table, self.settings.cuboid_bytes_max)

    @property
    def tables(self) -> list[LocalTable]:
        return list(self.core.state.tables())

    def ask(
        self, dimensions: Iterable[str], predicate: Predicate | None = None, *, bare: bool = False
    ) -> tuple[list[str], PartialAnswer]:
        """`bare`: out of the same tables without cuboids beside them."""
        query = PartialQuery(self.schema.cube.name, tuple(dimensions), ALL, HistorySnapshot(), predicate)
        state = without_cuboids(self.core.state) if bare else self.core.state
        table: pa.Table = answer(
            self.schema, state, query, owned=(0,), receiver_id="r", progress=self.core.progress
        )
        said = msgspec.json.decode(table.schema.metadata[ANSWER_KEY], type=PartialAnswer)
        return sorted(map(repr, table.to_pylist())), said


def without_cuboids(state: LocalState) -> LocalState:
    segments = {
        start: replace(
            segment, tables=tuple(replace(each, cuboids=TableCuboids()) for each in segment.tables)
        )
        for start, segment in state.segments.items()
    }
    return replace(state, segments=segments)


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(2)))
def test_answers_out_of_cuboids_are_those_of_all_rows(seed: int, tmp_path: Path) -> None:
    """Of decimals, nulls, sketches, times and sums beyond 64 bits, while fragments come and are merged."""
    core, dice = Core(tmp_path), random.Random(seed)
    used = 0
    core.take(dice, 1500)  # of fewer events no cuboid is small enough
    for number in range(6):
        core.take(dice, dice.choice((1, 300, 1500)))
        if dice.random() < 0.5:
            core.merge()
        if dice.random() < 0.7 or number % 3 == 2:
            core.keep_cuboids()
        for dimensions in DIMENSIONS:
            for predicate in dice.sample(FILTERS, 3):
                found, said = core.ask(dimensions, predicate)
                assert found == core.ask(dimensions, predicate, bare=True)[0], f"{dimensions} {predicate}"
                used += sum(said.cuboids.values())
    assert used > 20, "a test that hardly uses them proves little"


def test_the_smallest_cuboid_that_covers_dimensions_and_filter_is_read_and_named(tmp_path: Path) -> None:
    core = Core(tmp_path)
    core.take(random.Random(1), 3000)
    core.keep_cuboids()
    (table,) = core.tables
    rows, said = core.ask(("kind",))
    assert len(rows) == said.rows_scanned == 5
    assert said.cuboids == {"kind": 1}
    assert core.ask(("kind",), Compare("hour_start", "le", "2030-01-01 00:00:00"))[1].cuboids == {
        "hour_start+kind": 1
    }
    assert core.ask(())[1].cuboids == {"_all": 1}
    said = core.ask(("kind",), Compare("place", "eq", 3))[1]
    assert said.cuboids == {}, "by kind and place there are too many rows: the index of values is asked"
    assert 0 < said.rows_scanned < table.rows / 10
    assert core.ask(("minute_start", "kind", "place"))[1].rows_scanned == table.rows
    assert core.ask(("kind",), Compare("kind", "eq", "k9"))[1].rows_scanned == 0, "statistics come first"


def test_only_small_cuboids_are_made_and_those_of_the_declared_groups(tmp_path: Path) -> None:
    schema = small_schema(
        segment=SegmentPolicy(window_ms=HOUR_MS),
        aggregation_groups=(AggregationGroup(("kind", "place"), mandatory=("kind",)),),
    )
    core = Core(tmp_path, schema)
    core.take(random.Random(1), 2000)
    made = small_cuboids(schema, core.tables[0].table, 1 << 20, TableCuboids())
    assert [one.cuboid.name for one in made] == ["kind"]
    assert {one.name for one in cuboids(schema.cube)[1:]} == {"kind", "kind+place"}


def test_their_bytes_are_bounded_and_shown(tmp_path: Path) -> None:
    core = Core(tmp_path, cuboid_bytes_max=3_000)
    for seed in range(4):
        core.take(random.Random(seed), 2000)
        core.keep_cuboids()
    cuboid_bytes = [table.cuboids.nbytes for table in core.tables]
    assert 0 < sum(cuboid_bytes) <= 3_000
    assert cube_stats(core.core, ManualClock(START_MS), is_leader=True).cuboid_bytes == sum(cuboid_bytes)
    assert core.ask(("kind",))[0] == core.ask(("kind",), bare=True)[0]
    for table in core.tables:
        assert table.cuboids.nbytes <= table.table.nbytes / 4


def test_a_cuboid_whose_sum_does_not_fit_its_type_is_not_made_and_statements_say_so(tmp_path: Path) -> None:
    schema = small_schema(
        segment=SegmentPolicy(window_ms=HOUR_MS),
        aggregation_groups=(AggregationGroup(("kind",)),),
    )
    core = Core(tmp_path, schema)
    core.take(random.Random(1), 900)
    (local,) = core.tables
    at = local.table.schema.get_field_index("__rows")
    most = pa.array([2**62] * local.rows, pa.int64())
    table = local.table.set_column(at, local.table.schema.field(at), most)
    assert small_cuboids(schema, table, 1 << 20, TableCuboids()) == []
    with pytest.raises(Refused, match="64 bits"):
        merge_tables(schema, [table], ("kind",), ("__rows",))


def test_a_changed_version_keeps_them_and_a_merged_fragment_gets_its_own(tmp_path: Path) -> None:
    core = Core(tmp_path)
    for seed in range(4):
        core.take(random.Random(seed), 800)
    core.keep_cuboids()
    assert len(core.tables) == 4
    assert all(table.cuboids.made for table in core.tables)
    assert replace(core.tables[0], versions=(2,)).cuboids is core.tables[0].cuboids
    core.merge()
    assert [table.cuboids.made for table in core.tables] == [False]
    assert core.ask(("kind",))[1].cuboids == {}
    (merged,) = core.tables
    by_kind = Cuboid(("kind",))
    assert sum(table.num_rows for table in merged.cuboids.of_members(by_kind)) == 4 * 5
    core.keep_cuboids()
    assert merged.cuboids.of_members(by_kind) == [], "nothing more is held of what went into it"
    rows, said = core.ask(("kind",))
    assert said.cuboids == {"kind": 1}
    assert rows == core.ask(("kind",), bare=True)[0]


def test_a_start_makes_them_again_once_the_fragments_are_verified(tmp_path: Path) -> None:
    core = Core(tmp_path)
    core.take(random.Random(1), 2000)
    core.keep_cuboids()
    before = core.ask(("kind",))[0]
    core.start().step(VIEW)
    assert fragments.cuboid_jobs(core.core.state, rows_min=1) == [], "nothing is made of unverified bytes"
    for fragment in fragments.unverified(core.core.state):
        fragment.verify()
    core.keep_cuboids()
    after, said = core.ask(("kind",))
    assert after == before
    assert said.cuboids == {"kind": 1}


@pytest.mark.parametrize("values", [1_000_000])
def test_beside_a_dimension_of_a_million_values_the_others_are_answered_out_of_cuboids(
    values: int, tmp_path: Path
) -> None:
    schema = small_schema(
        segment=SegmentPolicy(window_ms=HOUR_MS),
        aggregation_groups=(AggregationGroup(("hour_start", "kind", "place")),),
    )
    info = write_fragment(tmp_path, "wide", _wide(schema, values), schema)
    fragment = open_fragment(tmp_path / "wide.fragment", verify=True)
    local = LocalTable(fragment.table, info.events, {0: (0, values)}, (1,), fragment=fragment)
    state = LocalState({0: values}, {START_MS: LocalSegment(START_MS, (local,))}, assignment_epoch=1)
    fragments.keep_cuboids(schema, state, local, 1 << 24)

    def ask(dimensions: tuple[str, ...], predicate: Predicate | None) -> tuple[pa.Table, PartialAnswer]:
        partials = ("__rows", "amount__sum")
        query = PartialQuery(schema.cube.name, dimensions, partials, HistorySnapshot(), predicate)
        table = answer(
            schema, state, query, owned=(0,), receiver_id="r", progress=ConsumerProgress(idle_after_s=1.0)
        )
        return table, msgspec.json.decode(table.schema.metadata[ANSWER_KEY], type=PartialAnswer)

    table, said = ask(("place",), None)
    assert said.cuboids == {"place": 1}
    assert sorted(table.to_pylist(), key=lambda row: row["place"]) == [
        {
            "place": place,
            "__rows": len(range(place, values, 7)),
            "amount__sum": sum(range(place, values, 7)),
        }
        for place in range(7)
    ]
    table, said = ask(("kind", "place"), Compare("kind", "eq", "v123456"))
    assert table.to_pylist() == [{"kind": "v123456", "place": 123456 % 7, "__rows": 1, "amount__sum": 123456}]
    assert said.cuboids == {}
    table, said = ask((), Compare("kind", "ge", "v99"))
    named = np.flatnonzero(pc.greater_equal(_names(values), "v99"))
    assert table.to_pylist() == [{"__rows": len(named), "amount__sum": int(named.sum())}]


def _names(values: int) -> pa.StringArray:
    return pc.binary_join_element_wise("v", pa.array(np.arange(values)).cast(pa.string()), "")


def _wide(schema: Schema, values: int) -> pa.Table:
    """One event each of as many kinds, and seven places."""
    numbers = np.arange(values)
    target = physical_schema(schema, plain=False)
    columns = {
        "kind": pa.DictionaryArray.from_arrays(pa.array(numbers.astype(np.int32)), _names(values)),
        "place": pa.array((numbers % 7).astype(np.int32)),
        "__rows": pa.array(np.ones(values, np.int64)),
        "amount__sum": pa.array(numbers).cast(target.field("amount__sum").type),
    }
    times = pa.array(np.full(values, START_MS // HOUR_MS * HOUR_MS * 1000), pa.timestamp("us"))
    return pa.Table.from_arrays(
        [
            columns.get(
                field.name, times if pa.types.is_timestamp(field.type) else pa.nulls(values, field.type)
            )
            for field in target
        ],
        schema=target,
    )
