"""Retries, failover, and every way in which an answer must not be silently partial."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from rtolap.base.errors import Corrupted, StaleSnapshot, Unavailable
from rtolap.query.statement_service import QueryLimits, QueryService

from tests.support.query.query_world import QueryWorld

CHANGES_WORLD = True

COUNT = "select count(*) n from flights"


def count(service: QueryService) -> int:
    return int(service.execute(COUNT).table().to_pylist()[0]["n"])


def test_a_stale_snapshot_is_taken_again(world: QueryWorld, service: QueryService) -> None:
    world.stale_answers = 3
    outcome = service.execute(COUNT)
    assert outcome.table().to_pylist() == [{"n": 800}]
    assert outcome.stats[0].snapshots > 1


def test_snapshots_that_keep_going_stale_are_an_error(world: QueryWorld, service: QueryService) -> None:
    world.stale_answers = 1000
    with pytest.raises(StaleSnapshot):
        service.execute(COUNT)
    world.stale_answers = 0


def test_a_partition_held_by_two_replica_sets_is_never_counted_twice(
    world: QueryWorld, service: QueryService
) -> None:
    world.overlapping_answers = 2
    outcome = service.execute(COUNT)
    assert outcome.table().to_pylist() == [{"n": 800}]
    assert outcome.stats[0].snapshots == 3
    assert outcome.stats[0].positions == world.positions


def test_a_partition_that_stays_in_two_replica_sets_is_an_error(
    world: QueryWorld, service: QueryService
) -> None:
    world.overlapping_answers = 1000
    with pytest.raises(Unavailable, match="rs-a and rs-b both answer for partition 2 of flights") as caught:
        service.execute(COUNT)
    assert caught.value.code == "unavailable", "clients know it as one to retry"
    world.overlapping_answers = 0
    assert count(service) == 800


def test_another_receiver_answers_when_one_is_down(world: QueryWorld, service: QueryService) -> None:
    world.dead = {"rs-a-1", "rs-b-2"}
    outcome = service.execute(COUNT)
    assert outcome.table().to_pylist() == [{"n": 800}]
    assert outcome.stats[0].receivers == {"rs-a": "rs-a-2", "rs-b": "rs-b-1"}
    world.dead = set()


def test_a_replica_set_without_a_receiver_is_named(world: QueryWorld, service: QueryService) -> None:
    world.dead = {"rs-a-1", "rs-a-2"}
    with pytest.raises(Unavailable, match=r"rs-a does not answer for flights, partitions \[0, 1\]"):
        service.execute(COUNT)
    world.dead = set()
    assert count(service) == 800


def test_answers_never_go_backwards(world: QueryWorld, service: QueryService) -> None:
    count(service)
    count(service)
    asked = {receiver[:4]: query.at_least for receiver, query in world.asked[-2:]}
    assert asked == {
        "rs-a": {p: world.positions[p] for p in (0, 1)},
        "rs-b": {p: world.positions[p] for p in (2, 3)},
    }


def test_segments_out_of_range_are_neither_read_nor_asked_for(
    world: QueryWorld, service: QueryService
) -> None:
    outcome = service.execute("select count(*) from flights where ts >= '2013-01-02' and ts < '2013-01-03'")
    stats = outcome.stats[0]
    outcome.close()
    assert stats.pruned_segments
    assert all(name.startswith("20130102") for name in stats.history_segments)
    assert set(world.asked[-1][1].snapshot.versions) == set(stats.history_segments)


def test_the_smallest_fitting_cuboid_is_read(service: QueryService) -> None:
    narrow = service.execute("select day_start, count(*) from flights group by day_start")
    wide = service.execute("select gate, count(*) from flights where carrier = 'AA' group by gate")
    assert set(narrow.stats[0].cuboids) == {"day_start"}
    assert all("gate" in name for name in wide.stats[0].cuboids)
    narrow.close()
    wide.close()


def test_one_statement_sees_each_cube_once(world: QueryWorld, service: QueryService) -> None:
    before = len(world.asked)
    service.execute("select (select count(*) from flights), (select sum(delay) from flights)").close()
    assert len(world.asked) == before + 2  # one call per replica set


def test_too_many_queries_are_refused(world: QueryWorld) -> None:
    service = world.service(QueryLimits(queries_max=1, queue_wait_s=0.05))
    running = service.execute(COUNT)
    with pytest.raises(Unavailable, match="too many queries"):
        service.execute(COUNT)
    running.close()
    assert count(service) == 800
    service.close()


@pytest.mark.parametrize("damage", ["missing file", "damaged file", "missing manifest", "damaged manifest"])
def test_damaged_history_is_named_and_never_left_out(world: QueryWorld, damage: str) -> None:
    record = next(r for r in world.metadata.segments("flights").values() if r.version > 0)
    folder = Path(world.store.absolute(str(record.location)))
    file = folder / "manifest.json" if "manifest" in damage else folder / "day_start" / "part-0.parquet"
    original = file.read_bytes()
    if "missing" in damage:
        file.unlink()
    else:
        file.write_bytes(original[:-9] + b"?" + original[-8:])
    service = world.service()
    sql = "select day_start, count(*) from flights group by day_start"
    with pytest.raises(Corrupted, match=record.name):
        service.execute(sql)
    service.close()
    file.write_bytes(original)


def test_a_purged_segment_is_answered_by_nobody(world: QueryWorld) -> None:
    first = world.segments()[0]
    control = world.metadata.control("flights")
    world.metadata.update_control(
        "flights", lambda record: msgspec.structs.replace(record, horizon_ms=first.end_ms)
    )
    service = world.service()
    outcome = service.execute(COUNT)
    assert first.name not in outcome.stats[0].history_segments
    assert world.asked[-1][1].snapshot.horizon_ms == first.end_ms
    assert outcome.table().to_pylist()[0]["n"] == 800 - world.events_of({first.name}).num_rows
    service.close()
    world.metadata.update_control("flights", lambda record: control)
