"""The memory of watermarks, against a plain list of all samples; and over REST."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from rtolap.base.errors import DefinitionError, NotFound
from rtolap.coordinator.applications import history as room
from rtolap.coordinator.applications.history import (
    COARSE_ROWS,
    COARSE_STEP_MS,
    FINE_ROWS,
    HOSTS_KEPT,
    History,
    Sample,
)
from rtolap.metadata.records import UnitKey
from rtolap.model.validation.application import LEVELS_MAX
from rtolap.watermark.snapshot import NEVER
from rtolap.watermark.topology import LevelMarks, Marks
from rtolap.watermark_client.client import WatermarkClient

from tests.support.cubes.coordinator_harness import TOKEN, Cluster
from tests.support.watermarks.application_reports import takeover
from tests.support.watermarks.definitions import hosts_source

LEVELS = ("web", "sessions", "store")
BEGAN_MS = 1_000_000_000_000
ALWAYS = (0, 2**62)


def marks(*instants_ms: int | None) -> Marks:
    found = {level: LevelMarks(ms, ms) for level, ms in zip(LEVELS, instants_ms, strict=True)}
    return Marks(found, min((ms for ms in instants_ms if ms is not None), default=None))


def filled(samples: int, step_ms: int = 1000, levels: tuple[str, ...] = LEVELS) -> History:
    history = History(levels)
    for at in range(samples):
        history.record(Sample(BEGAN_MS + at * step_ms, Marks({}, at)))
    return history


def test_the_last_are_kept_by_the_second_and_those_before_by_half_minutes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert (FINE_ROWS * 1000, COARSE_ROWS * COARSE_STEP_MS) == (3_600_000, 86_400_000)
    fine, coarse = FINE_ROWS // 20, COARSE_ROWS // 20  # of an hour and a day, as a twentieth takes no time
    monkeypatch.setattr(room, "FINE_ROWS", fine)
    monkeypatch.setattr(room, "COARSE_ROWS", coarse)
    samples = coarse * COARSE_STEP_MS // 1000 + 500
    history = filled(samples)
    at_ms = history.rows(*ALWAYS, 10**9)["at_ms"]
    steps = np.diff(at_ms)
    assert (steps > 0).all()
    assert steps[-fine + 1 :].tolist() == [1000] * (fine - 1)
    assert set(steps[: -fine - 1].tolist()) == {COARSE_STEP_MS}
    assert history.oldest_ms == at_ms[0]
    now_ms = BEGAN_MS + (samples - 1) * 1000
    assert now_ms - at_ms[0] == pytest.approx(coarse * COARSE_STEP_MS, abs=COARSE_STEP_MS)


def test_every_sample_comes_back_as_it_was_told() -> None:
    rng = random.Random(7)
    history, told = History(LEVELS), []
    for at in range(500):
        hosts = [(f"h{rng.randrange(40)}-{at % 3}", rng.choice([NEVER, at])) for _ in range(rng.randrange(9))]
        units = [(UnitKey("sessions", "p", rng.randrange(9)), rng.randrange(at + 1)) for _ in range(3)]
        ms = [None if rng.random() < 0.1 else rng.randrange(10**6) for _ in LEVELS]
        sample = Sample(BEGAN_MS + at, marks(*ms), {"web": at % 7}, {"web": hosts}, {"sessions": units})
        history.record(sample)
        told.append(sample)
    for row, sample in zip(history.rows(*ALWAYS, 10**9), told, strict=True):
        assert row["at_ms"] == sample.at_ms
        assert row["holding"].tolist() == [sample.holding["web"], 0, 0]
        for at, level in enumerate(LEVELS):
            mark = sample.marks.levels[level]
            assert row["marks_ms"][at].tolist() == [
                NEVER if ms is None else ms for ms in (mark.input_ms, mark.output_ms)
            ]
            for kind, held in (("host", sample.hosts), ("unit", sample.units)):
                said = [
                    (history.names.names[name], ms)
                    for name, ms in zip(row[kind][at].tolist(), row[kind + "_ms"][at].tolist(), strict=True)
                    if name >= 0
                ]
                assert said == list(held.get(level, ()))[: row[kind].shape[1]]


@pytest.mark.parametrize("rows_max", [1, 2, 7, 50, 99, 100])
def test_fewer_rows_are_spread_over_the_time_and_end_with_the_newest(rows_max: int) -> None:
    rows = filled(100).rows(*ALWAYS, rows_max)
    assert rows.size == rows_max
    assert rows["at_ms"][-1] == BEGAN_MS + 99_000
    assert np.diff(rows["at_ms"]).max(initial=0) <= 2 * -(-100 // rows_max) * 1000


def test_only_the_span_that_was_asked_for_is_answered() -> None:
    rows = filled(100).rows(BEGAN_MS + 10_000, BEGAN_MS + 19_999, 1000)
    assert rows["global_ms"].tolist() == list(range(10, 20))
    assert filled(3).rows(0, BEGAN_MS - 1, 10).size == 0
    assert History(LEVELS).oldest_ms is None


def test_a_clock_that_is_set_back_loses_no_sample() -> None:
    history = filled(10)
    history.record(Sample(BEGAN_MS - 3_600_000, Marks({}, 42)))
    assert history.rows(*ALWAYS, 100)["global_ms"].tolist() == [*range(10), 42]
    assert history.oldest_ms == BEGAN_MS


def test_memory_is_bounded_whatever_the_number_of_levels_and_of_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert History(tuple(map(str, range(LEVELS_MAX)))).bytes_max <= room.BYTES_MAX
    assert History(LEVELS).bytes_max <= 4 * 1024 * 1024
    monkeypatch.setattr(room, "FINE_ROWS", 20)
    monkeypatch.setattr(room, "COARSE_ROWS", 5)
    history = History(LEVELS)
    for at in range(5_000):  # other hosts in every sample
        hosts = [(f"h{at}-{place}", at) for place in range(HOSTS_KEPT)]
        history.record(Sample(BEGAN_MS + at * 1000, Marks({}), hosts={"web": hosts}))
    assert len(history.names) < 2 * 1024
    last = history.rows(*ALWAYS, 100)[-1]
    assert [history.names.names[at] for at in last["host"][0]] == [f"h4999-{at}" for at in range(5)]


def test_levels_that_an_application_keeps_keep_their_history() -> None:
    history = History(LEVELS)
    for at in range(FINE_ROWS + 100):  # more than once around
        held = {"web": [("a", at)]}
        history.record(Sample(BEGAN_MS + at * 1000, marks(at, at + 1, at + 2), {"web": at}, held))
    before = history.rows(*ALWAYS, 10**9)
    changed = history.changed(("enrich", "store", "web"))
    after = changed.rows(*ALWAYS, 10**9)
    for column in ("number", "at_ms", "global_ms"):
        assert (after[column] == before[column]).all()
    assert (after["marks_ms"][:, 1] == before["marks_ms"][:, 2]).all()
    assert (after["marks_ms"][:, 2] == before["marks_ms"][:, 0]).all()
    assert (after["host_ms"][:, 2] == before["host_ms"][:, 0]).all()
    assert (after["marks_ms"][:, 0] == NEVER).all()
    assert (after["host"][:, :2] < 0).all()
    changed.record(Sample(BEGAN_MS + 10**8, Marks({}), hosts={"enrich": [("b", 7)]}))
    last = changed.rows(*ALWAYS, 10**9)[-1]
    assert (changed.names.names[last["host"][0][0]], last["number"]) == ("b", before["number"][-1] + 1)


# -- over REST ------------------------------------------------------------------------------------------

APPLICATION: dict[str, Any] = {
    "name": "logs",
    "sources": [hosts_source("web", lease_ms=86_400_000, unit_lease_ms=86_400_000)],
    "operators": [{"name": "sessions", "unit_lease_ms": 86_400_000}],
    "sinks": [{"name": "store"}],
    "edges": [["web", "sessions"], ["sessions", "store"]],
}


@pytest.fixture
def stalled(cluster: Cluster) -> Cluster:
    """Ten seconds in which host b stands still and unit w/1 of the sessions has work from the beginning."""
    cluster.client.create_application(APPLICATION)
    cluster.client.change_hosts("logs", "web", "register", ["a", "b"])
    began_ms = cluster.clock.now_ms()
    transport = cluster.http._transport
    with WatermarkClient(["http://testserver"], TOKEN, "logs", transport=transport) as client:
        for _ in range(10):
            client.report_progress("web", 0, 0, ["a", "b"], [cluster.clock.now_ms(), began_ms])
            client.set_oldest_work("sessions", "w", 1, began_ms - 5_000)
            client.set_oldest_work("sessions", "w", 2, None)
            client.flush()
            cluster.coordinator.tick()
            cluster.clock.advance_ms(1000)
    return cluster


def test_who_held_a_watermark_is_known_for_every_sample(stalled: Cluster) -> None:
    found = stalled.client.application_history("logs")
    assert found.since_ms == found.at_ms[0]
    assert list(found.levels) == ["web", "sessions", "store"]
    web, sessions = found.levels["web"], found.levels["sessions"]
    assert (web.role, sessions.role, found.levels["store"].role) == ("source", "operator", "sink")
    last = len(found.at_ms) - 1
    traces = {trace.host: dict(zip(trace.at, trace.latest_ms, strict=True)) for trace in web.hosts}
    began_ms = web.input_ms[last]
    assert traces["b"][last] == began_ms
    assert found.at_ms[last] - traces["a"][last] == 0
    assert web.holding[last] == 1
    [unit] = sessions.units  # w/2 has no work
    assert (unit.processor, unit.key_group, set(unit.oldest_work_ms)) == ("w", 1, {began_ms - 5_000})
    assert sessions.output_ms[last] == found.global_ms[last] == began_ms - 5_000
    one = stalled.client.application_history("logs", level="store", since_ms=found.at_ms[-3], samples=2)
    assert (list(one.levels), len(one.at_ms), one.since_ms) == (["store"], 2, found.since_ms)


def test_where_events_are_counted_those_that_owe_most_are_remembered(cluster: Cluster) -> None:
    """Seven hosts with an event a second die first, then one with a thousand stands still."""
    rule = {"deficit": {"missing_events_ppm": 100, "window_ms": 60_000}}
    [web] = APPLICATION["sources"]
    cluster.client.create_application({**APPLICATION, "sources": [{**web, "rule": rule}]})
    names = ["alive", "large", *(f"small-{at}" for at in range(7))]
    cluster.client.change_hosts("logs", "web", "register", names)
    with WatermarkClient(["http://testserver"], TOKEN, "logs", transport=cluster.http._transport) as client:
        for second in range(90):
            moving = names[: 9 if second < 40 else 2 if second < 60 else 1]
            counts = [1000 if name in ("alive", "large") else 1 for name in moving]
            client.report_progress("web", 0, 0, moving, [cluster.clock.now_ms()] * len(moving), counts)
            client.flush()
            cluster.coordinator.tick()
            cluster.clock.advance_ms(1000)
    hosts = cluster.client.application_history("logs", samples=1).levels["web"].hosts
    assert "large" in {trace.host for trace in hosts}
    assert "large" not in {one.host for one in cluster.client.application_hosts("logs", limit=5).behind}


def test_units_are_listed_with_the_oldest_work_first(stalled: Cluster) -> None:
    found = stalled.client.application_units("logs")
    assert found.counts == {"web": 0, "sessions": 2, "store": 0}
    assert [(one.level, one.processor, one.key_group, one.holds) for one in found.units] == [
        ("sessions", "w", 1, True),
        ("sessions", "w", 2, False),
    ]
    assert found.units[0].behind_ms == found.now_ms - found.units[0].oldest_work_ms
    assert not any(one.awaited for one in found.units)
    assert len(stalled.client.application_units("logs", "sessions", limit=1).units) == 1
    assert stalled.client.application_units("logs", "store").units == ()


def test_what_cannot_be_answered_is_refused(stalled: Cluster) -> None:
    for wrong in ({"level": "nothing"}, {"since_ms": 2, "until_ms": 1}, {"samples": 0}, {"since_ms": -1}):
        with pytest.raises(DefinitionError):
            stalled.client.application_history("logs", **wrong)
    with pytest.raises(DefinitionError, match="web, sessions, store"):
        stalled.client.application_units("logs", "nothing")
    with pytest.raises(NotFound):
        stalled.client.application_history("nothing")


def test_a_new_leader_remembers_from_its_own_beginning_and_names_who_has_not_spoken(stalled: Cluster) -> None:
    before = stalled.client.application_history("logs")
    takeover(stalled)
    stalled.clock.advance_ms(1000)
    stalled.coordinator.tick()
    after = stalled.client.application_history("logs")
    assert after.epoch > before.epoch
    assert after.since_ms is not None
    assert after.since_ms > before.at_ms[-1]
    assert after.global_ms[-1] == before.global_ms[-1]
    [trace] = after.levels["web"].hosts
    assert (trace.host, set(trace.latest_ms)) == ("partition 0", {None})
    assert {(one.processor, one.key_group) for one in after.levels["sessions"].units} == {("w", 1), ("w", 2)}
    assert all(one.awaited for one in stalled.client.application_units("logs").units)


def test_an_application_that_is_changed_keeps_its_history(stalled: Cluster) -> None:
    before = stalled.client.application_history("logs")
    later = {**APPLICATION, "operators": [*APPLICATION["operators"], {"name": "enrich"}]}
    later["edges"] = [["web", "sessions"], ["sessions", "enrich"], ["enrich", "store"]]
    answer = stalled.http.put("/api/v1/applications/logs", json=later)
    assert answer.status_code == 200, answer.text
    after = stalled.client.application_history("logs")
    assert after.at_ms == before.at_ms
    assert after.levels["sessions"] == before.levels["sessions"]
    assert set(after.levels["enrich"].output_ms) == {None}


def test_a_new_application_of_the_name_remembers_nothing_of_the_old_one(stalled: Cluster) -> None:
    stalled.client.drop_application("logs")
    stalled.client.create_application(APPLICATION)
    found = stalled.client.application_history("logs")
    assert (found.since_ms, found.at_ms) == (None, ())
