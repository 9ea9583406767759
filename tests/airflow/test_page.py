"""The page says what the cluster reports, in sums and in words, and only to who may see it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import msgspec
import pytest
from fastapi import HTTPException
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.links import URL_PREFIX
from rtolap.airflow.page import routes
from rtolap.airflow.page.cubes import cube_page, cubes_of
from rtolap.airflow.page.figures import figures
from rtolap.airflow.page.messages import CubePage, FailedBuild, Overview
from rtolap.airflow.page.overview import overview_of
from rtolap.airflow.page.problems import problems_of
from rtolap.airflow.page.receivers import receivers_of
from rtolap.airflow.page.rights import reader
from rtolap.airflow.page.script import react_apps
from rtolap.airflow.plugin import app
from rtolap.base.errors import Unauthorized, Unavailable
from rtolap.model.segment import SegmentRange
from rtolap.protocols.agent.messages import ProcessStatus
from rtolap.protocols.coordinator.messages import (
    BuildInfo,
    ClusterInfo,
    CubeReport,
    CubeStatus,
    LateEventInfo,
    PartitionRange,
    PartitionReport,
    PartitionWatermark,
    QueueEntry,
    ReceiverInfo,
    ReplicaSetInfo,
    SegmentColumns,
    SegmentInfo,
    WatermarkInfo,
)
from rtolap.protocols.watermark.messages import ApplicationOwner

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def report(position: int, log_end: int | None, rate: float | None = None) -> PartitionReport:
    return PartitionReport(position=position, log_end=log_end, records_per_s=rate, held_bytes=1000)


def receiver(name: str, health: str = "HEALTHY", **partitions: dict[int, PartitionReport]) -> ReceiverInfo:
    cubes = {cube: CubeReport(state="CONSUMING", partitions=reports) for cube, reports in partitions.items()}
    return ReceiverInfo(
        receiver_id=name,
        host="localhost",
        port=7070,
        replica_set="rs-" + name[-1],
        health=health,  # type: ignore[arg-type]
        reason="" if health == "HEALTHY" else "its heartbeat is missing",
        last_seen_ms=NOW_MS - 1000,
        cubes=cubes,
    )


def cube(name: str, **fields: Any) -> CubeStatus:
    definition = {"table": "t", "segment": {"window_ms": HOUR_MS}}
    settings = {"enabled": True, "paused": False} | fields
    return CubeStatus(name=name, definition=definition, **settings)


def cluster(cubes: list[CubeStatus], receivers: list[ReceiverInfo], **fields: Any) -> ClusterInfo:
    sets = {one.replica_set: [one.receiver_id] for one in receivers}
    return ClusterInfo(
        leader_url="http://c0",
        coordinators=("http://c1", "http://c0"),
        receivers=tuple(receivers),
        replica_sets=tuple(ReplicaSetInfo(name=name, receivers=tuple(held)) for name, held in sets.items()),
        cubes=tuple(cubes),
        **fields,
    )


def segment(number: int, state: str = "READY", **fields: Any) -> SegmentInfo:
    start_ms = NOW_MS + number * HOUR_MS
    return SegmentInfo(
        cube="flights",
        segment=f"s{number:03d}",
        start_ms=start_ms,
        end_ms=start_ms + HOUR_MS,
        state=state,
        version=1,
        **fields,
    )


def queued(
    name: str, error: str | None = None, waits_for: str | None = None, *, building: bool = False
) -> QueueEntry:
    build = BuildInfo(build_id="b", version=1, started_ms=NOW_MS, location="x", error=error)
    return QueueEntry(
        cube="flights",
        segment=name,
        start_ms=0,
        end_ms=1,
        version=0,
        parts=1,
        events=1,
        building=building,
        build=build if error else None,
        waits_for=waits_for,
    )


def test_the_nearest_owner_counts_for_lag_and_no_replica_counts_a_rate_twice() -> None:
    owners = [
        receiver("r1", flights={0: report(90, 100, 50.0), 1: report(10, 10)}),
        receiver("r2", flights={0: report(97, 100, 49.0)}),
        receiver("r3", "DOWN", flights={0: report(100, 100, 900.0)}),
    ]
    assert figures(owners, "flights") == (50.0, 3, None)
    assert figures(owners, "others") == (None, 0, None)


def test_the_slowest_living_receiver_says_how_fresh_a_cube_is() -> None:
    def with_delay(name: str, delay_ms: int | None, health: str = "HEALTHY") -> ReceiverInfo:
        report = CubeReport(state="CONSUMING", freshness_ms=delay_ms)
        return receiver(name, health).model_copy(update={"cubes": {"flights": report}})

    living = [with_delay("r1", 40), with_delay("r2", 0), with_delay("r3", None)]
    found = cluster([cube("flights"), cube("clicks")], [*living, with_delay("r4", 9_000, "DOWN")])
    assert overview_of(found, (), (), now_ms=NOW_MS).freshness_ms == 40
    assert [row.freshness_ms for row in cubes_of(found, (), now_ms=NOW_MS).cubes] == [None, 40]
    assert overview_of(cluster([cube("flights")], []), (), (), now_ms=NOW_MS).freshness_ms is None


def test_late_events_are_listed_once_with_the_segments_that_they_missed() -> None:
    late = [LateEventInfo(partition=part, offset=10 + part, event_ms=NOW_MS + part) for part in (1, 0)]
    report = CubeReport(state="CONSUMING", late=tuple(late))
    receivers = [receiver(name).model_copy(update={"cubes": {"flights": report}}) for name in ("r1", "r2")]
    found = cluster([cube("flights"), cube("clicks")], receivers)
    watermark = WatermarkInfo(cube="flights", low_watermark_ms=None)
    columns = columns_of([])

    def page(name: str) -> CubePage:
        (status,) = (each for each in found.cubes if each.name == name)
        return cube_page(found, status, watermark, columns, (), now_ms=NOW_MS)

    start_ms = NOW_MS // HOUR_MS * HOUR_MS
    segment = SegmentRange(start_ms, start_ms + HOUR_MS).name
    assert [(each.partition, each.offset, each.segment) for each in page("flights").late] == [
        (0, 10, segment),
        (1, 11, segment),
    ]
    assert page("clicks").late == ()


def test_a_cluster_without_faults_has_no_problems() -> None:
    found = cluster([cube("flights", assignment={"rs-1": (0,)})], [receiver("r1")])
    assert problems_of(found, (queued("s000"),)) == ()


def test_each_kind_of_fault_is_named_with_what_to_do() -> None:
    found = cluster(
        [
            cube("flights", assignment={"rs-1": (0,)}, problem="its topic is gone", catching_up=(0, 3)),
            cube("clicks", refused={"not_json": 1200}, refused_example={"not_json": "<b>broken</b>"}),
            cube("closed", enabled=False, assignment={"rs-1": (0,)}),
        ],
        [receiver("r1", "DOWN"), receiver("r2", "WARN")],
        applications=(ApplicationOwner(application="shop"),),
    )
    problems = problems_of(found, (queued("s004", error="no space left"),))
    assert [(each.severity, each.cube, each.receiver) for each in problems] == [
        ("error", "", "r1"),
        ("error", "flights", ""),
        ("error", "flights", ""),
        ("error", "flights", ""),
        ("warning", "", ""),
        ("warning", "", "r2"),
        ("warning", "clicks", ""),
        ("warning", "flights", ""),
    ]
    words = "\n".join(f"{each.what} {each.action}" for each in problems)
    for said in (
        "its topic is gone",
        "0, 3",
        "1,200 records",
        "<b>broken</b>",
        "rs-1 has partitions and no living receiver: flights",
        "no space left",
        "shop has no coordinator",
        "its heartbeat is missing",
    ):
        assert said in words
    assert "closed" not in words
    assert all(each.action for each in problems)


def test_the_overview_sums_cubes_and_lists_each_service() -> None:
    found = cluster(
        [
            cube("a", segments={"READY": 3, "ACTIVE": 1}),
            cube("b", segments={"READY": 2}, paused=True),
            cube("c", enabled=False),
        ],
        [receiver("r1", a={0: report(5, 10, 2.0)}, b={0: report(1, 1, 3.0)})],
    )
    failed = ProcessStatus(key="loader.x", generation=1, state="FAILED", reason="exit 3", changed_ms=7)
    seen = overview_of(found, (), [failed], now_ms=NOW_MS)
    assert (seen.records_per_s, seen.lag_records, seen.held_bytes) == (5.0, 5, 2000)
    assert (seen.cubes, seen.cubes_enabled, seen.segments) == (3, 1, {"READY": 5, "ACTIVE": 1})
    assert [(each.role, each.name, each.state, each.detail) for each in seen.services] == [
        ("coordinator", "http://c0", "HEALTHY", "leads"),
        ("coordinator", "http://c1", "HEALTHY", "stands by"),
        ("receiver", "r1", "HEALTHY", "replica set rs-1"),
        ("process of the agent", "loader.x", "FAILED", "exit 3"),
    ]


def test_cubes_are_listed_by_name_with_their_problems() -> None:
    found = cluster([cube("b", problem="x"), cube("a", paused=True), cube("c", enabled=False)], [])
    listed = cubes_of(found, (), now_ms=NOW_MS)
    assert [(row.name, row.state, row.problems) for row in listed.cubes] == [
        ("a", "paused", 0),
        ("b", "on", 1),
        ("c", "off", 0),
    ]


def page_of(segments: list[SegmentInfo], queue: tuple[QueueEntry, ...] = ()) -> CubePage:
    watermark = WatermarkInfo(
        cube="flights",
        low_watermark_ms=NOW_MS,
        partitions={
            number: PartitionWatermark(
                watermark_ms=ms, idle=idle, position=1, receiver_id="r1", reported_ms=NOW_MS
            )
            for number, (ms, idle) in enumerate([(30, False), (10, False), (1, True), (None, False)])
        },
    )
    status = cube("flights", low_watermark_ms=NOW_MS, refused={"late": 2}, refused_example={})
    found = columns_of(segments)
    return cube_page(cluster([status], []), status, watermark, found, queue, now_ms=NOW_MS)


def columns_of(segments: list[SegmentInfo]) -> SegmentColumns:
    """As the coordinator answers them."""
    ordered = sorted(segments, key=lambda each: each.start_ms)
    return SegmentColumns(
        segment=tuple(each.segment for each in ordered),
        start_ms=tuple(each.start_ms for each in ordered),
        end_ms=tuple(each.end_ms for each in ordered),
        state=tuple(each.state for each in ordered),
        version=tuple(each.version for each in ordered),
        parts=tuple(len(each.parts) for each in ordered),
        events=tuple(each.events for each in ordered),
        late_events=tuple(each.late_events for each in ordered),
        noted=tuple(ordered),
    )


def test_partitions_that_hold_the_watermark_come_first_and_idle_ones_last() -> None:
    assert [each.partition for each in page_of([]).partitions] == [3, 1, 0, 2]


def test_segments_are_in_order_and_say_what_a_person_should_know() -> None:
    failed = BuildInfo(build_id="b", version=2, started_ms=1, location="x", error="out of memory")
    ended = BuildInfo(build_id="b", version=2, started_ms=1, location="x")
    found = page_of(
        [
            segment(4, batch="b7"),
            segment(2, build=ended),
            segment(1, "REMOTE_PERSISTED", build=failed),
            segment(3, lost=(PartitionRange(partition=1, start=5, end=9),)),
            segment(5, breached=True),
            segment(0, base_lost=True),
            segment(6, "REMOTE_PERSISTED"),
        ],
        (queued("s006", waits_for="an approval"), queued("s003", building=True)),
    ).segments
    assert found.segment == tuple(f"s{number:03d}" for number in range(7))
    assert page_of([], (queued("s003", "out of memory"), queued("s004"))).failed == (
        FailedBuild(segment="s003", version=0, error="out of memory"),
    )
    assert found.building == (False, False, False, True, False, False, False)
    assert found.note == (
        "its files are lost",
        "build failed: out of memory",
        "",
        "events were lost: 1:5-9",
        "batch b7",
        "more late events than its window's bound permits",
        "waits for an approval",
    )


def test_receivers_are_listed_with_their_partitions_and_moves_that_warm_up() -> None:
    moving = cube(
        "flights",
        assignment={"rs-1": (0, 1)},
        next_assignment={"rs-2": (0, 1)},
        next_epoch=4,
        move_waits=("r2",),
    )
    found = receivers_of(
        cluster([moving, cube("still")], [receiver("r2"), receiver("r1", flights={1: report(1, None)})]),
        now_ms=NOW_MS,
    )
    assert [(each.name, len(each.partitions)) for each in found.receivers] == [("r1", 1), ("r2", 0)]
    assert [(each.cube, each.after, each.waits) for each in found.moves] == [
        ("flights", {"rs-2": (0, 1)}, ("r2",))
    ]


def test_a_page_that_was_not_built_is_not_announced(tmp_path: Path) -> None:
    assert react_apps(URL_PREFIX, tmp_path / "page.js") == []


def test_another_script_has_another_address(tmp_path: Path) -> None:
    addresses = set()
    for text in ("one", "two"):
        path = tmp_path / f"{text}.js"
        path.write_text(text)
        (announced,) = react_apps(URL_PREFIX, path)
        assert announced["bundle_url"].startswith("/rtolap/page/script/")
        addresses.add(announced["bundle_url"])
    assert len(addresses) == 2


class OneCluster:
    """A coordinator that has one cube and no queue."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: object) -> None:
        """Nothing is open."""

    def cluster(self) -> ClusterInfo:
        return cluster([cube("flights")], [receiver("r1")])

    def queue(self) -> Any:
        return SimpleNamespace(entries=())


def nobody(_hook: RtolapHook, **_: float) -> Any:
    raise Unavailable("it does not answer", action="start it")


@pytest.fixture
def signed_in(monkeypatch: pytest.MonkeyPatch) -> TestClient:
    monkeypatch.setitem(app.dependency_overrides, reader, lambda: None)
    monkeypatch.setattr(RtolapHook, "coordinator", lambda _hook, **_: OneCluster())
    monkeypatch.setattr(RtolapHook, "agent", nobody)
    return TestClient(app)


def test_the_rest_is_shown_while_the_agent_does_not_answer(signed_in: TestClient) -> None:
    answer = signed_in.get("/page/overview")
    assert answer.headers["cache-control"] == "no-store"
    seen = msgspec.json.decode(answer.content, type=Overview)
    assert seen.cubes == 1
    assert "it does not answer" in seen.agent_error


def test_a_coordinator_that_does_not_answer_is_said_in_words(
    signed_in: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RtolapHook, "coordinator", nobody)
    answer = signed_in.get("/page/cubes")
    assert answer.status_code == 503
    assert "does not answer" in answer.json()["message"]


def test_a_token_that_a_service_does_not_take_is_not_the_end_of_a_persons_session(
    signed_in: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_hook: RtolapHook, **_: float) -> Any:
        raise Unauthorized("the bearer token is wrong")

    monkeypatch.setattr(RtolapHook, "coordinator", refused)
    answer = signed_in.get("/page/cubes")
    assert answer.status_code == 502, "the page takes 401 for the session's end"
    assert "the bearer token is wrong" in answer.json()["message"]


@pytest.mark.parametrize(
    ("path", "method"),
    [(route.path, *(route.methods or ())) for route in routes.router.routes if isinstance(route, APIRoute)],
)
def test_nobody_sees_a_route_of_the_page_who_may_not_read(
    path: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise HTTPException(403)

    monkeypatch.setitem(app.dependency_overrides, reader, refuse)
    named = path.replace("{cube}", "x").replace("{version}", "x")
    assert TestClient(app).request(method, named).status_code == 403
