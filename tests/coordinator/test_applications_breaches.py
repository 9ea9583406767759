"""A source that missed more than declared says so: as a problem, by windows, in a counter, of segments."""

from __future__ import annotations

import numpy as np
import pytest
from rtolap.coordinator.applications.explain import explain
from rtolap.coordinator.applications.running import RunningApplication
from rtolap.metadata.applications import ApplicationRecords
from rtolap.model.application import Application, ApplicationSource, Deficit, HostList, Registry, Rule, Sink
from rtolap.model.completeness import Completeness, is_breached
from rtolap.protocols.watermark.messages import HostsChange, ReportBatch, SourceReport

from tests.support.twins.clock import ManualClock
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore

MINUTE_MS = 60_000
START_MS = 1_700_000_000_000
HOSTS = ("steady", "waking")
DECLARED_PPM = 10_000


class World:
    """Two hosts, read every ten seconds; one logs a hundred events a second, the other heartbeats."""

    def __init__(self) -> None:
        web = ApplicationSource(
            name="web",
            rule=Rule(deficit=Deficit(DECLARED_PPM, 5 * MINUTE_MS)),
            hosts=HostList(registry=Registry(60 * MINUTE_MS), grace_ms=MINUTE_MS),
        )
        application = Application(
            name="logs", sources=(web,), sinks=(Sink("store", MINUTE_MS),), edges=(("web", "store"),)
        )
        self.clock = ManualClock(START_MS)
        self.records = ApplicationRecords(MemoryStore(MemoryEnsemble()))
        self.records.create(application)
        self.running = RunningApplication(application, self.records, self.clock)
        self.running.change_hosts(HostsChange(level="web", action="register", hosts=HOSTS))
        self.sequence = 0

    def report(self, hosts: list[int], latest_ms: list[int], events: list[int]) -> None:
        begins = self.sequence == 0
        source = SourceReport(
            "web",
            0,
            0,
            HOSTS if begins else (),
            0 if begins else len(HOSTS),
            np.array(hosts, "<i4").tobytes(),
            np.array(latest_ms, "<i8").tobytes(),
            events=np.array(events, "<i8").tobytes(),
        )
        self.sequence += 1
        batch = ReportBatch("reader", self.sequence, self.running.epoch, begins, (source,))
        assert self.running.report(batch).refused == ()
        self.running.tick()

    def go_on(self, minutes: int, *, waking: bool) -> None:
        for _ in range(minutes * 6):
            self.clock.advance_ms(10_000)
            now_ms = self.clock.now_ms()
            if waking:
                self.report([0, 1], [now_ms, now_ms], [1_000, 0])
            else:
                self.report([0], [now_ms], [1_000])


@pytest.fixture
def world() -> World:
    running = World()
    running.go_on(20, waking=True)
    assert running.running.source("web").breach_problem() is None
    return running


def test_a_source_that_woke_as_it_stalled_is_reported(world: World) -> None:
    stalled_ms = world.clock.now_ms()
    world.go_on(8, waking=False)
    end_ms = stalled_ms + 5 * MINUTE_MS
    assert explain(world.running, end_ms, world.clock.now_ms()).may_close, "nobody expects events of it"
    world.report([1], [stalled_ms + 5 * MINUTE_MS], [10_000])
    source = world.running.source("web")
    told = explain(world.running, end_ms, world.clock.now_ms())
    # 10 000 of its events beside 30 000 of the other's
    assert told.breached_ppm["web"] == pytest.approx(250_000, rel=0.05)
    problem = source.breach_problem()
    assert problem is not None
    assert f"{DECLARED_PPM} ppm at most were declared" in problem
    assert dict(source.counters())["breached_windows"] > 10
    assert explain(world.running, stalled_ms - MINUTE_MS, world.clock.now_ms()).breached_ppm == {}


def test_what_is_read_again_is_not_taken_for_missing(world: World) -> None:
    again_ms = world.clock.now_ms() - 10 * MINUTE_MS
    source = world.running.source("web")
    for behind_ms in range(0, 10 * MINUTE_MS, 10_000):
        report = SourceReport(
            "web",
            0,
            1,
            HOSTS if not behind_ms else (),
            0 if not behind_ms else len(HOSTS),
            np.array([0], "<i4").tobytes(),
            np.array([again_ms + behind_ms], "<i8").tobytes(),
            events=np.array([1_000], "<i8").tobytes(),
        )
        batch = ReportBatch("next", behind_ms // 10_000 + 1, world.running.epoch, not behind_ms, (report,))
        world.running.report(batch)
        world.running.tick()
    assert source.breach_problem() is None


@pytest.mark.parametrize(
    ("bound_ppm", "late_ppm", "breached"),
    [(1_000, 1_001, True), (1_000, 1_000, False), (None, 5, False), (1_000, None, False)],
)
def test_a_segment_is_breached_by_what_came_late(
    bound_ppm: int | None, late_ppm: int | None, breached: bool
) -> None:
    known = Completeness(
        application="logs", window_end_ms=START_MS, closed_by="watermark", bound_ppm=bound_ppm
    )
    assert is_breached(known, late_ppm) is breached
    assert not is_breached(None, late_ppm)
