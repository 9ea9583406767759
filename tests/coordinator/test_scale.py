"""What the coordinator does again and again costs no more than what has changed, at a reduced size."""

from __future__ import annotations

import functools
import random

import pytest
from rtolap.coordinator.heartbeats import LAG_WARN_MS, Heartbeats
from rtolap.metadata.records import CubeControl, ReceiverRecord
from rtolap.metadata.segment_format.pages import RECORD_BYTES_MAX
from rtolap.protocols.coordinator import messages as wire

from benchmarks.scale import coordinator_figures, history_figures
from benchmarks.scale_coordinators import spread_figures
from benchmarks.scale_figures import Figure
from tests.support.seeds import so_many
from tests.support.twins.clock import ManualClock

SETS = {"left": ("l1", "l2"), "right": ("r1", "r2")}
CUBES = ("a", "b", "c")
STATES = ("CONSUMING", "CONSUMING", "CONSUMING", "PAUSED", "FAILED")


def test_a_tick_without_a_change_sends_as_few_requests_for_many_cubes_as_for_few() -> None:
    few, many = (coordinator_figures(4, cubes, 4)[1] for cubes in (3, 40))
    assert few.what != many.what
    assert few.requests == many.requests


def test_health_sends_as_few_requests_for_many_cubes_as_for_few() -> None:
    few, many = (coordinator_figures(4, cubes, 4)[2] for cubes in (3, 40))
    assert few.what != many.what
    assert few.requests == many.requests


def test_each_coordinator_requests_in_a_tick_what_its_own_applications_need() -> None:
    one, four = spread_figures([1, 4], applications=24, hosts=5)
    assert one.requests is not None
    assert four.requests is not None
    assert four.requests < one.requests, "of the busiest one"
    assert f"{one.requests} requests" in four.note, "all of them together send no more than one does"


FIFTY_DAYS = 50 * 24  # of hourly segments: ten pages


@functools.cache
def figures_of(partitions: int, made: int) -> dict[str, Figure]:
    figures = history_figures(partitions=partitions, receivers=8, days=50, made=made)
    assert all("refused" not in figure.note for figure in figures)
    return {figure.what.replace(", 50 days", ""): figure for figure in figures}


def bytes_of(figures: dict[str, Figure], what: str) -> int:
    found = figures[what].bytes
    assert found is not None
    return found


def test_a_ready_record_is_as_small_with_ten_thousand_partitions_as_with_four() -> None:
    few, many = (bytes_of(figures_of(partitions, 2), "READY record") for partitions in (4, 10_000))
    assert many <= few + 64 <= RECORD_BYTES_MAX


@pytest.mark.parametrize("service", ["a receiver", "a query service"])
def test_a_service_starts_alike_with_a_short_and_a_long_history(service: str) -> None:
    short, long = figures_of(4, 24), figures_of(4, FIFTY_DAYS)
    started, held = f"{service} starts", f"{service} in memory after its start"
    assert short[started].requests == long[started].requests
    hundred_changes = 100 * len('[1200,"20231114220000_20231114230000"],')
    assert bytes_of(long, started) <= bytes_of(short, started) + hundred_changes
    assert bytes_of(long, held) <= bytes_of(short, held) + 20 * hundred_changes


def test_a_long_history_is_small_in_zookeeper() -> None:
    long = figures_of(4, FIFTY_DAYS)
    assert long["ZooKeeper"].note == "", "all of it was made"
    assert bytes_of(long, "ZooKeeper") < 300 * FIFTY_DAYS


def drawn_report(draw: random.Random, now_ms: int) -> wire.CubeReport:
    partitions = {
        number: wire.PartitionReport(
            position=draw.randrange(5),
            watermark_ms=draw.choice([None, now_ms, now_ms - LAG_WARN_MS, now_ms - 2 * LAG_WARN_MS]),
        )
        for number in draw.sample(range(4), draw.randrange(5))
    }
    return wire.CubeReport(state=draw.choice(STATES), reason=draw.choice(["", "why"]), partitions=partitions)


def expected_reasons(
    cube: str, control: CubeControl, request: wire.HeartbeatRequest, requests: list[wire.HeartbeatRequest]
) -> list[str]:
    """Say the same of one receiver and one cube, by looking at all other receivers."""
    assigned = control.assignment.get(request.replica_set, ())
    if not control.enabled or not assigned:
        return []
    report = request.cubes.get(cube)
    if report is None:
        return [f"{cube}: assigned, but not consumed"]
    reasons = []
    if report.state == "FAILED" or (report.state == "PAUSED" and not control.paused):
        reasons.append(f"{cube}: {report.state} {report.reason}".rstrip())
    if report.partitions and sorted(report.partitions) != sorted(assigned):
        reasons.append(f"{cube}: consumes {sorted(report.partitions)} where {sorted(assigned)} are assigned")
    for number, mine in sorted(report.partitions.items()):
        others = [
            other.cubes[cube].partitions[number]
            for other in sorted(requests, key=lambda other: other.receiver_id)
            if cube in other.cubes and number in other.cubes[cube].partitions
        ]
        best_ms = max(others, key=lambda other: other.position).watermark_ms
        if (
            best_ms is not None
            and mine.watermark_ms is not None
            and best_ms - mine.watermark_ms >= LAG_WARN_MS
        ):
            reasons.append(f"{cube}/{number}: {best_ms - mine.watermark_ms} ms behind its replica")
    return reasons


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(100)))
def test_the_health_of_all_receivers_is_that_of_each_looked_at_by_itself(seed: int) -> None:
    draw, clock = random.Random(seed), ManualClock(1_700_000_000_000)
    heartbeats = Heartbeats(clock)
    clock.advance_ms(60_000)
    records = {
        name: ReceiverRecord(name, "127.0.0.1", 7080, replica_set)
        for replica_set, names in SETS.items()
        for name in names
    }
    controls = {
        cube: CubeControl(
            enabled=draw.random() < 0.8,
            paused=draw.random() < 0.3,
            assignment={name: tuple(draw.sample(range(4), draw.randrange(4))) for name in SETS},
        )
        for cube in CUBES
    }
    requests = [
        wire.HeartbeatRequest(
            receiver_id=name,
            replica_set=record.replica_set,
            cubes={cube: drawn_report(draw, clock.now_ms()) for cube in CUBES if draw.random() < 0.8},
        )
        for name, record in records.items()
        if draw.random() < 0.9
    ]
    for request in requests:
        heartbeats.record(request)
    live = {name for name in records if draw.random() < 0.8}
    healths = heartbeats.healths(records, live, controls)
    assert set(healths) == set(records)
    by_name = {request.receiver_id: request for request in requests}
    for name, (health, reason) in healths.items():
        if name not in by_name:
            assert health == ("UNREACHABLE" if name in live else "DOWN")
            continue
        expected = [] if name in live else ["its ZooKeeper session is lost"]
        for cube in CUBES:
            expected += expected_reasons(cube, controls[cube], by_name[name], requests)
        assert (health, reason) == (("WARN", "; ".join(expected)) if expected else ("HEALTHY", ""))


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(50)))
def test_each_cube_has_the_reports_of_the_receivers_that_reported_it_last(seed: int) -> None:
    draw, clock = random.Random(seed), ManualClock(1_700_000_000_000)
    heartbeats = Heartbeats(clock)
    names = tuple(name for members in SETS.values() for name in members)
    last: dict[str, dict[str, wire.CubeReport]] = {}
    for _ in range(40):
        match draw.randrange(8):
            case 0:
                remaining = set(draw.sample(names, 3))
                records = {name: ReceiverRecord(name, "127.0.0.1", 7080, "left") for name in remaining}
                heartbeats.keep_only(records)
                last = {name: reports for name, reports in last.items() if name in remaining}
            case 1:
                cube = draw.choice(CUBES)
                heartbeats.forget(cube)
                for reports in last.values():
                    reports.pop(cube, None)
            case 2:
                heartbeats.clear()
                last = {}
            case _:
                name = draw.choice(names)
                cubes = draw.sample(CUBES, draw.randrange(len(CUBES) + 1))
                last[name] = {cube: drawn_report(draw, clock.now_ms()) for cube in cubes}
                request = wire.HeartbeatRequest(receiver_id=name, replica_set="left", cubes=last[name])
                heartbeats.record(request)
        for cube in CUBES:
            reports = [last[name][cube] for name in sorted(last) if cube in last[name]]
            expected: dict[int, list[tuple[int, int | None]]] = {}
            for report in reports:
                for partition, part in report.partitions.items():
                    expected.setdefault(partition, []).append((part.position, part.watermark_ms))
            observed = {
                partition: [(seen.position, seen.watermark_ms) for seen in observations]
                for partition, observations in heartbeats.observations(cube).items()
            }
            assert observed == expected
            assert len(heartbeats.failures(cube)) == sum(report.state == "FAILED" for report in reports)
