"""The replay is deterministic, complete and knows its offsets; the recount counts prefixes of it."""

from __future__ import annotations

from datetime import datetime, timedelta

import duckdb
import msgspec
import pytest
from rtolap.base.errors import DefinitionError, Refused
from rtolap.demo.flights import Replay, ReplayPlan
from rtolap.demo.recount import QUERIES, Recount, normal

PLAN = ReplayPlan(partitions=4, days=3, malformed=18, late_share=0.02)


@pytest.fixture(scope="module")
def replay() -> Replay:
    return Replay(PLAN)


def records(replay: Replay, start: int = 0, end: int | None = None) -> list[tuple[int, bytes | None]]:
    return [
        record
        for batch in replay.batches(start, end)
        for record in zip(batch.partitions, batch.values, strict=True)
    ]


def test_the_same_plan_gives_the_same_bytes(replay: Replay) -> None:
    assert records(replay) == records(Replay(PLAN))
    assert records(replay) != records(Replay(PLAN._replace(seed=7)))


def test_every_flight_is_sent_once_and_malformed_ones_beside_them(replay: Replay) -> None:
    assert replay.flights == 842 + 943 + 914
    assert replay.records == replay.flights + 18
    assert len(records(replay)) == replay.records
    assert records(replay)[100:200] == records(replay, 100, 200)


def test_offsets_count_each_partition_in_sending_order(replay: Replay) -> None:
    counts = dict.fromkeys(range(4), 0)
    laid_out = replay.connection.execute("SELECT p, o FROM replay ORDER BY seq").fetchall()
    for partition, offset in laid_out:
        assert offset == counts[partition]
        counts[partition] += 1
    assert counts == replay.end_offsets()
    assert [partition for partition, _ in laid_out] == [partition for partition, _ in records(replay)]


def test_some_flights_come_after_their_day_has_closed(replay: Replay) -> None:
    newest, late = datetime(2013, 1, 1), 0
    for (scheduled,) in replay.connection.execute(
        "SELECT sched_dep FROM replay WHERE accepted ORDER BY seq"
    ).fetchall():
        late += newest - scheduled > timedelta(hours=25)
        newest = max(newest, scheduled)
    assert 10 <= late <= 80


def test_records_carry_the_declared_columns(replay: Replay) -> None:
    decoded = [msgspec.json.decode(value) for _, value in records(replay, 0, 20) if value]
    assert set(decoded[0]) == {
        "sched_dep", "carrier", "flight", "tailnum", "origin", "dest",
        "dep_delay", "arr_delay", "air_time", "distance", "distance_km",
    }  # fmt: skip
    assert decoded[0]["sched_dep"] == "2013-01-01T05:15:00"
    assert decoded[0]["distance_km"] == "2253.081600"


def test_a_recount_holds_exactly_the_accepted_records_below_the_positions(replay: Replay) -> None:
    recount = Recount(replay, {0: 10, 1: 0, 2: 0, 3: 0})
    positions = {0: 10 + 30, 1: 0, 2: 55}
    seen = {0: 0, 1: 0, 2: 0, 3: 0}
    flights = 0
    for partition, value in records(replay):
        below = {0: 30, 2: 55}.get(partition, 0)
        if seen[partition] < below and value and b"distance_km" in value:
            flights += 1
        seen[partition] += 1
    assert recount.events(positions) == flights
    totals = recount.answer(QUERIES[0], positions)
    assert totals[0][0] == flights


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.name)
def test_every_demo_query_can_be_recounted_for_nothing_and_for_everything(
    replay: Replay, query: object
) -> None:
    recount = Recount(replay, dict.fromkeys(range(4), 0))
    assert recount.answer(query, replay.end_offsets())  # type: ignore[arg-type]
    recount.answer(query, {})  # type: ignore[arg-type]


def test_positions_of_foreign_partitions_are_refused(replay: Replay) -> None:
    with pytest.raises(Refused, match="partitions"):
        Recount(replay, {0: 0}).answer(QUERIES[0], {9: 1})


def test_cells_of_different_engines_compare_to_the_last_digit() -> None:
    row = duckdb.sql(
        "SELECT 1.50::DECIMAL(38,6), 3::DECIMAL(38,0), 2.0::DOUBLE, DATE '2013-01-01', NULL"
    ).fetchall()
    assert normal(row) == (("1.5", 3, 2, "2013-01-01", None),)
    assert normal([(0.1 + 0.2,)]) != normal([(0.3,)])


def test_an_impossible_plan_is_refused() -> None:
    with pytest.raises(DefinitionError):
        Replay(ReplayPlan(days=366))
