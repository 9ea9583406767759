"""Merged sets of history: answers stay what they were, and each row is read once."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import duckdb
import pytest
from rtolap.base.errors import Corrupted
from rtolap.cubes.format.manifest import MANIFEST_NAME
from rtolap.metadata.merging import units
from rtolap.metadata.merging.units import HistoryUnit
from rtolap.metadata.records import SegmentRecord
from rtolap.model.merging.intervals import interval_of
from rtolap.model.segment import SegmentRange
from rtolap.query.cubes import history
from rtolap.query.cubes.history import MemoryBounds
from rtolap.query.statement_service import QueryService

from tests.query.test_oracle import random_query
from tests.support.cubes.flights import flights_world
from tests.support.query.oracles.sql_oracle import asked_of, open_oracle, rows_of
from tests.support.query.query_world import QueryWorld
from tests.support.seeds import so_many

QUERIES = so_many(40)
SQL = "select carrier, count(*), sum(distance), count(distinct origin) from flights group by carrier"


@pytest.fixture
def world() -> Iterator[QueryWorld]:
    """All of it in history."""
    with contextlib.closing(flights_world(11, 600)) as made:
        rng = random.Random(3)
        for cube in made.schemas:
            for segment in made.segments(cube):
                if segment.name not in made.built[cube]:
                    made.build(segment, rng, cube)
        yield made


@pytest.fixture
def oracle(world: QueryWorld) -> Iterator[duckdb.DuckDBPyConnection]:
    with open_oracle(world) as opened:
        yield opened


def days(world: QueryWorld) -> list[list[SegmentRange]]:
    by_day: dict[SegmentRange, list[SegmentRange]] = {}
    for segment in world.segments():
        by_day.setdefault(interval_of("day", segment.start_ms), []).append(segment)
    return [segments for segments in by_day.values() if len(segments) > 1]


def equal_to_the_raw_rows(
    service: QueryService, oracle: duckdb.DuckDBPyConnection, seed: int, what: str
) -> None:
    rng = random.Random(seed)
    for number in range(QUERIES // 4):
        sql = random_query(rng)
        got, expected = rows_of(service.execute(sql).table()), rows_of(asked_of(oracle, sql))
        assert got == expected, f"{what}, seed {seed}, query {number}: {sql}"


@pytest.mark.seeded
@pytest.mark.parametrize("result_bytes", [0, 1 << 20])
def test_answers_stay_equal_while_segments_merge_and_are_replaced(
    world: QueryWorld, oracle: duckdb.DuckDBPyConnection, result_bytes: int
) -> None:
    rng = random.Random(5)
    bounds = MemoryBounds(result_bytes=result_bytes)
    with contextlib.closing(world.service(bounds=bounds)) as service:
        equal_to_the_raw_rows(service, oracle, 1, "before")
        for number, segments in enumerate(days(world)):
            world.merge("day", segments, rng)
            equal_to_the_raw_rows(service, oracle, 10 + number, f"{number + 1} days merged")
        world.merge("month", [each for day in days(world) for each in day], rng)
        equal_to_the_raw_rows(service, oracle, 30, "a month merged")
        late = days(world)[0][1]
        world.build(late, rng, version=2)
        equal_to_the_raw_rows(service, oracle, 40, "a member replaced")
        world.merge("day", days(world)[0], rng)
        equal_to_the_raw_rows(service, oracle, 50, "merged again")


def test_a_set_answers_where_all_of_its_members_are_wanted(world: QueryWorld) -> None:
    day = days(world)[0]
    rng = random.Random(1)
    for segments in days(world):
        world.merge("day", segments, rng)
    records = world.metadata.nodes.segments("flights")
    wanted = list(records.values())
    merged = units.history_units(wanted)
    assert [unit.level for unit in merged] == ["day"] * len(days(world))
    assert sorted(record.name for unit in merged for record in unit.records) == sorted(records)
    alone = units.history_units(record for record in wanted if record.start_ms != day[0].start_ms)
    assert [unit.is_base_only for unit in alone[: len(day) - 1]] == [True] * (len(day) - 1)
    assert [unit.level for unit in alone[len(day) - 1 :]] == ["day"] * (len(days(world)) - 1)


def test_members_answer_from_their_base_when_their_other_cuboids_are_gone(
    world: QueryWorld, oracle: duckdb.DuckDBPyConnection
) -> None:
    rng = random.Random(1)
    for segments in days(world):
        world.merge("day", segments, rng)
    world.store.claim()
    base = "+".join(world.schema.cube.all_dimensions)
    for record in world.metadata.nodes.segments("flights").values():
        for folder in world.store.folders(str(record.location)):
            if folder != base:
                world.store.delete_tree(f"{record.location}/{folder}")
    with contextlib.closing(world.service()) as service:
        for seed in (1, 2):
            equal_to_the_raw_rows(service, oracle, seed, "without the members' small cuboids")


def test_a_shared_location_that_is_read_once_for_each_member_is_noticed(
    world: QueryWorld, oracle: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    divide = units.history_units

    def careless(records: list[SegmentRecord]) -> list[HistoryUnit]:
        return [unit for unit in divide(records) for _ in unit.records]

    monkeypatch.setattr(history, "history_units", careless)
    world.merge("day", days(world)[0], random.Random(1))
    with contextlib.closing(world.service()) as service:
        assert rows_of(service.execute(SQL).table()) != rows_of(asked_of(oracle, SQL))


def test_a_set_of_other_members_is_not_read(world: QueryWorld) -> None:
    first, second = days(world)[:2]
    merged = [world.merge("day", each, random.Random(number)) for number, each in enumerate((first, second))]
    paths = [f"{each.location}/{MANIFEST_NAME}" for each in merged]
    world.store.write(paths[0], world.store.read(paths[1]))
    with contextlib.closing(world.service()) as service, pytest.raises(Corrupted, match="members of its set"):
        service.execute(SQL).table()


@pytest.mark.parametrize("verb", ["explain", "explain analyze"])
def test_explain_shows_the_sets_that_a_statement_reads_as_one_segment_each(
    world: QueryWorld, verb: str
) -> None:
    rng = random.Random(1)
    for segments in days(world):
        world.merge("day", segments, rng)
    left = len(world.segments()) - sum(map(len, days(world)))
    bounds = MemoryBounds(result_bytes=0)
    with contextlib.closing(world.service(bounds=bounds)) as service:
        rows = service.execute(f"{verb} {SQL}").table().to_pylist()
        (cuboid,) = (str(row["value"]) for row in rows if row["item"] == "cuboid")
        assert f"({len(days(world)) + left} segments)" in cuboid
