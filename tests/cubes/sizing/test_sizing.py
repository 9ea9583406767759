"""Predicted sizes beside the sizes of what all events become, and advice beside the best there is."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from rtolap.base.errors import DefinitionError
from rtolap.columnar.schema import EVENT_MS, physical_schema
from rtolap.cubes.format.aggregate import aggregate_events, merge_tables, to_plain
from rtolap.cubes.format.build_batch import encoded
from rtolap.cubes.sizing.advice import CANDIDATES_MAX, Needed, advise, candidates, rows_read
from rtolap.cubes.sizing.estimate import CuboidSize, distinct_groups, segment_sample
from rtolap.cubes.sizing.sample import of_file, of_topic
from rtolap.events.decode import EventDecoder
from rtolap.kafka.interfaces import OutRecord
from rtolap.model.cube import AggregationGroup, Cube, Measure, Schema, SegmentPolicy, cuboids
from rtolap.model.formats.record_format import RecordFormat
from rtolap.model.table import Column, Table, TimeColumn

from tests.support.twins.clock import ManualClock
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryProducer

HOUR_MS = 3_600_000
START_MS = int(datetime(2026, 1, 5, 7, tzinfo=UTC).timestamp() * 1000)
EVENTS = 40_000


def schema_of(*groups: tuple[str, ...]) -> Schema:
    table = Table(
        name="visits",
        topic="visits",
        time=TimeColumn("at", "epoch_ms"),
        columns=(
            Column("at", "bigint"),
            Column("country", "string"),
            Column("page", "string"),
            Column("visitor", "int"),
            Column("ms", "bigint"),
        ),
    )
    cube = Cube(
        name="visits",
        table="visits",
        dimensions=("country", "page", "visitor"),
        time_dimensions=("minute", "hour"),
        aggregation_groups=tuple(AggregationGroup(include=each, mandatory=each) for each in groups),
        measures=(Measure("count"), Measure("sum", "ms"), Measure("max", "ms")),
        segment=SegmentPolicy(window_ms=HOUR_MS),
    )
    return Schema(table, cube)


GROUPS = (
    ("country",),
    ("page",),
    ("minute_start", "country"),
    ("country", "page"),
    ("hour_start", "visitor"),
)
SCHEMA = schema_of(*GROUPS)


def records(count: int, seed: int = 3) -> list[bytes]:
    """Return visits of one hour in the order of their times: few countries, a long tail of pages, visitors of
    whom most come once."""
    dice = np.random.default_rng(seed)
    times = np.sort(dice.integers(START_MS, START_MS + HOUR_MS, count))
    pages = np.minimum(dice.zipf(1.3, count), 50_000)
    countries, visitors = dice.integers(0, 40, count), dice.integers(0, 30_000, count)
    rows = [
        {"at": at, "country": f"c{country}", "page": f"/p/{page}", "visitor": visitor, "ms": at % 977}
        for at, country, page, visitor in zip(
            times.tolist(), countries.tolist(), pages.tolist(), visitors.tolist(), strict=True
        )
    ]
    return [json.dumps(row).encode() for row in rows]


ALL = records(EVENTS)


def decoded(values: list[bytes]) -> pa.Table:
    count = len(values)
    offsets = np.arange(count, dtype=np.int64)
    decoder = EventDecoder(SCHEMA)
    return decoder.decode(values, np.zeros(count, np.int32), offsets, now_ms=START_MS + HOUR_MS).table


@pytest.fixture(scope="module")
def real() -> dict[tuple[str, ...], tuple[int, int]]:
    """Rows and bytes of the cuboids that all events become."""
    ((_, base),) = aggregate_events(SCHEMA, decoded(ALL)).items()
    found = {}
    for cuboid in cuboids(SCHEMA.cube):
        target = physical_schema(SCHEMA, cuboid.dimensions, plain=True)
        table = merge_tables(SCHEMA, [base], cuboid.dimensions)
        plain = to_plain(SCHEMA, table.select(target.names)).cast(target).combine_chunks()
        found[cuboid.dimensions] = (table.num_rows, len(encoded(target, plain.to_batches())[0]))
    return found


def test_all_events_give_the_sizes_that_they_have(real: dict[tuple[str, ...], tuple[int, int]]) -> None:
    segment = segment_sample(SCHEMA, decoded(ALL))
    assert (segment.events, segment.covered) == (EVENTS, 1.0)
    for dimensions, (rows, size_bytes) in real.items():
        size = segment.size(dimensions)
        assert size.rows == size.sampled_rows == rows
        assert size.bytes == pytest.approx(size_bytes, rel=0.01)


def drawn_sample() -> tuple[list[bytes], int | None]:
    return random.Random(5).sample(ALL, EVENTS // 8), EVENTS


def last_minutes() -> tuple[list[bytes], int | None]:
    return ALL[-EVENTS // 8 :], None


@pytest.mark.parametrize("taken", [drawn_sample, last_minutes])
def test_an_eighth_of_the_events_predicts_rows_and_bytes_within_a_factor_of_two(
    taken: object, real: dict[tuple[str, ...], tuple[int, int]]
) -> None:
    assert callable(taken)
    values, per_segment = taken()
    segment = segment_sample(SCHEMA, decoded(values), per_segment)
    assert segment.all_events == pytest.approx(EVENTS, rel=0.15)
    for dimensions, (rows, size_bytes) in real.items():
        size = segment.size(dimensions)
        assert rows / 2 <= size.rows <= rows * 2, (dimensions, size.rows, rows)
        assert size_bytes / 2 <= size.bytes <= size_bytes * 2, (dimensions, size.bytes, size_bytes)


POPULATIONS = {
    "a hundred alike": lambda dice, events: dice.integers(0, 100, events),
    "a thousand alike": lambda dice, events: dice.integers(0, 1_000, events),
    "five thousand alike": lambda dice, events: dice.integers(0, 5_000, events),
    "mostly once": lambda dice, events: dice.integers(0, 1_000_000, events),
    "a tail of 1.1": lambda dice, events: np.minimum(dice.zipf(1.1, events), 1_000_000),
    "a tail of 2": lambda dice, events: dice.zipf(2.0, events),
    "geometric": lambda dice, events: dice.geometric(0.01, events),
    "few and many": lambda dice, events: np.where(
        dice.random(events) < 0.5, dice.integers(0, 50, events), dice.integers(100, 20_000, events)
    ),
}


@pytest.mark.parametrize("kind", POPULATIONS)
def test_groups_of_many_kinds_are_estimated_within_half_of_what_there_is(kind: str) -> None:
    dice = np.random.default_rng(1)
    population = POPULATIONS[kind](dice, 40_000)
    for share in (2, 4, 8):
        _, counts = np.unique(dice.choice(population, 40_000 // share, replace=False), return_counts=True)
        found = distinct_groups(counts.astype(np.int64), 40_000 // share, 40_000)
        assert 1 / 1.5 <= found / len(np.unique(population)) <= 1.5, share


def test_groups_are_no_more_than_events_and_no_fewer_than_sampled() -> None:
    once = np.ones(100, np.int64)
    assert distinct_groups(once, 100, 1_000) == pytest.approx(1_000)
    assert distinct_groups(once, 100, 100) == distinct_groups(once, 100, 50) == 100


# --- samples -----------------------------------------------------------------------------------------------


def test_a_file_and_a_topic_give_the_same_events_and_name_what_is_refused(tmp_path: Path) -> None:
    values = [*ALL[:300], b"{broken", b'{"at": "never"}']
    path = tmp_path / "visits.jsonl"
    path.write_bytes(b"\n".join(values) + b"\n\n")
    read = of_file(SCHEMA, path, START_MS + HOUR_MS)
    assert (read.events.num_rows, read.records, len(read.refused)) == (300, 302, 2)

    broker = MemoryBroker()
    broker.create("visits", 3)
    producer = MemoryProducer(broker)
    producer.produce(
        "visits", [OutRecord(value, partition=number % 3) for number, value in enumerate(values)]
    )
    producer.flush(1.0)
    consumed = of_topic(SCHEMA, MemoryConsumer(broker, "visits"), 1_000, ManualClock(START_MS + HOUR_MS))
    assert sorted(consumed.events[EVENT_MS].to_pylist()) == sorted(read.events[EVENT_MS].to_pylist())
    some = of_topic(SCHEMA, MemoryConsumer(broker, "visits"), 30, ManualClock(START_MS + HOUR_MS))
    assert some.records == 30
    assert max(some.events[EVENT_MS].to_pylist()) == max(read.events[EVENT_MS].to_pylist())


def test_a_sample_that_says_nothing_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "none"
    with pytest.raises(DefinitionError, match="cannot be read"):
        of_file(SCHEMA, path, START_MS)
    path.write_bytes(b"{broken\n")
    with pytest.raises(DefinitionError, match="no event that the cube takes"):
        of_file(SCHEMA, path, START_MS)
    binary = msgspec.structs.replace(SCHEMA.table, format=RecordFormat(type="avro"))
    with pytest.raises(DefinitionError, match="records of avro have no lines"):
        of_file(Schema(binary, SCHEMA.cube), path, START_MS)


# --- advice ------------------------------------------------------------------------------------------------


def drawn_lattice(dice: random.Random) -> tuple[list[CuboidSize], list[CuboidSize], dict[Needed, int]]:
    """Return a base cuboid, all others over four dimensions, and a workload."""
    cardinality = {name: dice.randrange(2, 60) for name in "abcd"}

    def size(dimensions: tuple[str, ...]) -> CuboidSize:
        rows = int(np.prod([cardinality[name] for name in dimensions])) if dimensions else 1
        return CuboidSize(dimensions, min(rows, 100_000), rows * 8, rows)

    others = [size(each) for count in range(4) for each in combinations("abcd", count)]
    workload = {frozenset(dice.sample("abcd", dice.randrange(0, 4))): dice.randrange(1, 50) for _ in range(5)}
    return [size(tuple("abcd"))], others, workload


def test_the_greedy_choice_saves_what_the_theorem_promises_and_mostly_the_best() -> None:
    dice, best_of = random.Random(9), 0
    for _ in range(60):
        stored, proposed, workload = drawn_lattice(dice)
        before = rows_read(stored, workload)
        chosen = advise(stored, proposed, workload, most=2)
        saved = before - rows_read([*stored, *(each.cuboid for each in chosen)], workload)
        best = max(before - rows_read([*stored, *pair], workload) for pair in combinations(proposed, 2))
        assert saved >= 0.63 * best
        assert saved == sum(each.saved_rows for each in chosen)
        best_of += saved == best
    assert best_of >= 40


def test_advice_keeps_within_its_bytes_and_stops_where_nothing_is_saved() -> None:
    dice = random.Random(2)
    for _ in range(40):
        stored, proposed, workload = drawn_lattice(dice)
        limit = dice.randrange(1, 20_000)
        chosen = advise(stored, proposed, workload, most=5, bytes_max=limit)
        assert sum(each.cuboid.bytes for each in chosen) <= limit
        everything = advise(stored, proposed, workload, most=20)
        assert all(each.saved_rows > 0 and each.statements > 0 for each in everything)
        with_all = [*stored, *(each.cuboid for each in everything)]
        assert rows_read(with_all, workload) == rows_read([*stored, *proposed], workload)


def test_candidates_are_what_statements_need_and_what_two_need_together() -> None:
    a, b, ab, abc = (frozenset(each) for each in ("a", "b", "ab", "abc"))
    assert candidates({a: 5, b: 1}, [abc]) == [ab, a, b]
    assert candidates({a: 5, b: 1}, [abc, ab]) == [a, b]
    many = {frozenset((f"d{number}",)): 1 for number in range(400)}
    assert len(candidates(many, [])) == CANDIDATES_MAX
