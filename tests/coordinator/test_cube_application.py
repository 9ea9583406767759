"""Cubes that close by an application: what may be declared, what may close, and what is known of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from rtolap.base.errors import Corrupted, DefinitionError
from rtolap.coordinator.assembly import CHECK_EVERY_TICKS
from rtolap.coordinator.closable import WINDOWS_KEPT, Standing, closed_by, due_ends
from rtolap.metadata import paths, segments
from rtolap.metadata.applications import ApplicationRecords
from rtolap.metadata.records import Approval, SegmentRecord, WatermarkRecord
from rtolap.metadata.store import Put
from rtolap.metadata.updates import put_or_create
from rtolap.model.completeness import Completeness
from rtolap.model.cube import SegmentPolicy
from rtolap.model.segment import SegmentRange
from rtolap.protocols.coordinator.messages import HeartbeatRequest

from tests.support.cubes.coordinator_harness import CUBE, HOUR_MS, NAME, TABLE, Cluster
from tests.support.cubes.metadata_contract import eventually
from tests.support.watermarks.application_reports import NAME as LOGS
from tests.support.watermarks.application_reports import application, declared, registered, takeover

MARK = {"application": LOGS, "source": "web", "sink": "store"}
HOSTED = {
    **TABLE,
    "columns": [*TABLE["columns"], {"name": "host", "type": "string"}],
    "host_column": "host",
}
POLICY = SegmentPolicy(window_ms=100, allowed_lateness_ms=10)


def approval(until_ms: int, by: str = "erika", at_ms: int = 0) -> Approval:
    return Approval(until_ms, by, "because", at_ms)


def created(cluster: Cluster, **cube: Any) -> None:
    cluster.client.create_table(HOSTED)
    cluster.client.create_cube({**CUBE, "watermark": MARK, **cube})


def hour(cluster: Cluster, number: int) -> int:
    """Ends of windows around the present, counted from the last full hour."""
    return (cluster.clock.now_ms() // HOUR_MS + number) * HOUR_MS


def published(cluster: Cluster) -> WatermarkRecord:
    """What is published once all events before the hour 0 have been read."""
    reporter = declared(cluster)
    registered(cluster, "a")
    created(cluster)
    reporter.progress(0, a=hour(cluster, 0))
    cluster.coordinator.tick()
    cluster.coordinator.tick()
    return cluster.metadata.published_watermark(NAME)


def windows(cluster: Cluster) -> tuple[Completeness, ...]:
    return cluster.metadata.published_watermark(NAME).windows


# -- pure ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("watermark_ms", "approvals", "decided_ms", "ends"),
    [
        (None, (), None, ()),
        (209, (), 100, ()),
        (210, (), 100, (200,)),
        (410, (), 100, (200, 300, 400)),
        (None, (approval(200),), 100, (200,)),
        (None, (approval(199),), 100, ()),
        (110, (approval(310),), 100, (200, 300)),
        (210, (), 200, ()),
        (110, (), 400, ()),
    ],
)
def test_windows_are_due_at_their_end_plus_lateness_or_when_let_go(
    watermark_ms: int | None, approvals: tuple[Approval, ...], decided_ms: int | None, ends: tuple[int, ...]
) -> None:
    assert due_ends(POLICY, Standing(watermark_ms, approvals), decided_ms) == ends


def test_after_a_leap_the_newest_windows_are_stated() -> None:
    ends = due_ends(POLICY, Standing(100_010), None)
    assert len(ends) == WINDOWS_KEPT
    assert ends[-1] == 100_000


def test_the_watermark_comes_before_an_approval_and_the_first_approval_before_later_ones() -> None:
    approvals = (approval(500, "later", at_ms=9), approval(300, "first", at_ms=3))
    assert closed_by(POLICY, Standing(110, approvals), 100) == ("watermark", None)
    assert closed_by(POLICY, Standing(109, approvals), 100) == ("approval", "first")
    assert closed_by(POLICY, Standing(109, approvals), 400) == ("approval", "later")


# -- definitions ---------------------------------------------------------------------------------------


def test_a_cube_of_an_unknown_application_is_refused(cluster: Cluster) -> None:
    with pytest.raises(DefinitionError, match="no such application"):
        created(cluster)


def test_a_rule_by_hosts_needs_a_column_that_names_them(cluster: Cluster) -> None:
    declared(cluster)
    cluster.client.create_table(TABLE)
    with pytest.raises(DefinitionError, match="needs the host of an event"):
        cluster.client.create_cube({**CUBE, "watermark": MARK})


def test_a_source_is_reported_by_one_cube_only(cluster: Cluster) -> None:
    declared(cluster)
    created(cluster)
    with pytest.raises(DefinitionError, match=f"found cube {NAME} reports as it"):
        cluster.client.create_cube({**CUBE, "name": "another", "watermark": MARK})
    cluster.client.create_cube({**CUBE, "watermark": MARK})  # the same again changes nothing


def test_the_readers_of_a_cube_rebuilt_are_of_later_generations(cluster: Cluster) -> None:
    reporter = declared(cluster)
    registered(cluster, "a")
    generation = (5 << 32) + 3
    source = {"level": "web", "partition": 0, "generation": generation, "progress": {"a": 1}}
    assert reporter.send(sources=[source])["refused"] == []
    created(cluster)
    control = cluster.metadata.control(NAME)
    assert (control.generation_base + 1) << 32 > generation


# -- what may close ------------------------------------------------------------------------------------


def test_windows_are_let_go_by_the_sinks_watermark_and_told_to_receivers(cluster: Cluster) -> None:
    reporter = declared(cluster)
    registered(cluster, "a", "b")
    created(cluster)
    end_ms = hour(cluster, 0)
    reporter.progress(0, a=end_ms + 1, b=end_ms - 1)
    cluster.coordinator.tick()
    cluster.coordinator.tick()
    assert end_ms not in [one.window_end_ms for one in windows(cluster)]
    assert cluster.metadata.published_watermark_ms(NAME) == end_ms - 1

    reporter.progress(0, b=end_ms)
    cluster.coordinator.tick()
    cluster.coordinator.tick()
    expected = Completeness(
        application=LOGS,
        window_end_ms=end_ms,
        closed_by="watermark",
        watermark_ms=end_ms,
        expected_missing_ppm=0,
        bound_ppm=0,
    )
    assert windows(cluster)[-1] == expected
    answer = cluster.coordinator.heartbeat(HeartbeatRequest(receiver_id="r", replica_set="s"))
    told = msgspec.convert(answer.windows[NAME][-1].model_dump(), Completeness)
    assert told == expected
    assert answer.low_watermark_ms[NAME] == end_ms


def test_what_was_let_go_stays_so_over_a_new_leader_and_keeps_its_numbers(cluster: Cluster) -> None:
    before = published(cluster)
    assert before.windows
    takeover(cluster)
    registered(cluster, "never-seen")
    cluster.coordinator.tick()
    cluster.coordinator.tick()
    assert cluster.metadata.published_watermark(NAME) == before


def test_an_approval_lets_windows_go_without_moving_the_watermark(cluster: Cluster) -> None:
    reporter = declared(cluster)
    registered(cluster, "a", "never-seen")
    created(cluster)
    end_ms = hour(cluster, 0)
    reporter.progress(0, a=end_ms)
    cluster.coordinator.tick()
    cluster.coordinator.tick()
    assert windows(cluster) == ()
    cluster.client.approve_windows(LOGS, end_ms, "erika", "never seen is never coming")
    cluster.coordinator.tick()
    newest = windows(cluster)[-1]
    explained = cluster.client.explain_window(LOGS, end_ms)
    assert (newest.window_end_ms, newest.closed_by, newest.approved_by) == (end_ms, "approval", "erika")
    assert newest.watermark_ms is None
    assert newest.expected_missing_ppm == explained.expected_missing_ppm["web"]
    assert newest.bound_ppm == explained.bound_ppm["web"] == 1_000_000
    assert cluster.metadata.published_watermark_ms(NAME) is None


def test_a_cube_whose_application_is_gone_waits_and_says_so(cluster: Cluster) -> None:
    before = published(cluster)
    ApplicationRecords(cluster.store).drop(LOGS)  # by somebody who does not ask for cubes
    takeover(cluster)
    cluster.coordinator.tick()
    problem = cluster.client.cube(NAME).problem
    assert problem is not None
    assert f"application {LOGS} does not exist" in problem
    assert cluster.metadata.published_watermark(NAME) == before
    cluster.client.create_application(application())
    cluster.coordinator.tick()
    assert cluster.client.cube(NAME).problem is None


def test_an_application_that_cannot_begin_stops_nobody_else(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    reporter = declared(cluster)
    registered(cluster, "a")
    cluster.client.create_application({**application(), "name": "aaa"})
    cluster.client.change_hosts("aaa", "web", "register", ["a"])
    created(cluster, name="a_cube", watermark={**MARK, "application": "aaa"})
    cluster.client.create_cube({**CUBE, "watermark": MARK})
    path = paths.application_hosts("aaa", "web")
    kept = cluster.store.get(path)
    assert kept is not None
    cluster.store.commit([Put(path, b"nothing of the kind", kept.version)])
    takeover(cluster)
    reporter.progress(0, a=hour(cluster, 0))
    caplog.clear()
    for _ in range(CHECK_EVERY_TICKS + 1):
        cluster.coordinator.tick()
    assert cluster.client.application_watermarks(LOGS).global_ms == hour(cluster, 0)
    assert cluster.client.cube(NAME).low_watermark_ms == hour(cluster, 0)
    assert cluster.client.cube(NAME).problem is None
    problem = cluster.client.cube("a_cube").problem
    assert problem is not None
    assert f"{path} does not hold a SourceHosts" in problem
    eventually(lambda: NAME in cluster.coordinator._views.watched(), "the checks run")
    said = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert len(said) <= 2, "one word of the application, and one of its cube"
    window = SegmentRange(hour(cluster, -1), hour(cluster, 0)).name
    cluster.client.close_segment("a_cube", window)
    assert cluster.metadata.control("a_cube").close_before_ms == hour(cluster, 0), "a person may close it"
    broken = cluster.store.get(path)
    assert broken is not None
    cluster.store.commit([Put(path, kept.data, broken.version)])
    cluster.coordinator.tick()
    assert cluster.client.cube("a_cube").problem is None


def test_what_is_wrong_with_a_cube_stops_no_other(cluster: Cluster) -> None:
    cluster.enabled()
    cluster.client.create_cube({**CUBE, "name": "a_cube"})
    path = paths.cube_watermark("a_cube")
    kept = cluster.store.get(path)
    cluster.store.commit([put_or_create(path, b"{", kept)])
    takeover(cluster)
    cluster.coordinator.tick()
    problem = cluster.coordinator.watermarks.problem("a_cube")
    assert problem is not None
    assert f"{path} does not hold" in problem
    assert NAME in cluster.coordinator.watermarks.all_published()


def test_a_forced_closing_keeps_what_was_known_when_it_was_asked_for(cluster: Cluster) -> None:
    declared(cluster)
    registered(cluster, "never-seen")
    created(cluster)
    window = SegmentRange(hour(cluster, -1), hour(cluster, 0))
    cluster.client.close_segment(NAME, window.name)
    known = cluster.metadata.control(NAME).close_completeness
    assert known is not None
    assert (known.closed_by, known.window_end_ms) == ("forced", window.end_ms)
    assert known.bound_ppm == 1_000_000
    earlier = SegmentRange(hour(cluster, -2), hour(cluster, -1))
    cluster.client.close_segment(NAME, earlier.name)
    assert cluster.metadata.control(NAME).close_completeness == known, "of the furthest that was asked for"


# -- from the closing to history -----------------------------------------------------------------------

KNOWN = Completeness(application=LOGS, window_end_ms=HOUR_MS, closed_by="watermark", bound_ppm=90)


def closed_at(cluster: Cluster) -> SegmentRecord:
    cluster.closed(0, events=10)
    window = SegmentRange(0, HOUR_MS)
    return cluster.metadata.update_segment(
        NAME, window, lambda record: msgspec.structs.replace(record, completeness=KNOWN)
    )


def test_completeness_goes_from_the_record_into_the_queue_the_spec_and_the_answer(cluster: Cluster) -> None:
    cluster.enabled()
    record = closed_at(cluster)
    said = msgspec.to_builtins(KNOWN)
    (entry,) = cluster.client.queue().entries
    spec = cluster.client.start_build(NAME, record.name)
    for one in (entry, spec, cluster.client.segment(NAME, record.name)):
        assert one.completeness is not None
        assert one.completeness.model_dump() == said


def test_a_manifest_with_another_completeness_is_not_promoted(cluster: Cluster) -> None:
    cluster.enabled()
    record = closed_at(cluster)
    build = cluster.build(record.name)
    with pytest.raises(Corrupted, match="other completeness"):
        cluster.client.promote(NAME, record.name, build)
    build = cluster.build(record.name, completeness=KNOWN, late_events=1)
    with pytest.raises(Corrupted, match="late events"):
        cluster.client.promote(NAME, record.name, build)


def test_late_events_are_those_beyond_the_first_version_over_all_later_ones(cluster: Cluster) -> None:
    cluster.enabled()
    record = closed_at(cluster)
    build = cluster.build(record.name, completeness=KNOWN, late_events=0)
    assert cluster.client.promote(NAME, record.name, build).late_events == 0
    for events, late, share_ppm in ((3, 3, 230_770), (7, 10, 500_000)):
        cluster.closed(0, by=10, events=events)
        build = cluster.build(record.name, completeness=KNOWN, late_events=late)
        ready = cluster.client.promote(NAME, record.name, build)
        assert (ready.late_events, ready.late_ppm) == (late, share_ppm)
        assert ready.completeness is not None


def test_of_several_closings_the_lesser_assurance_is_kept_and_a_late_delta_changes_nothing() -> None:
    record = SegmentRecord(cube="c", start_ms=0, end_ms=100)
    forced = msgspec.structs.replace(KNOWN, closed_by="forced")
    one = segments.close(record, {0: 1}, now_ms=0, by="a", completeness=KNOWN)
    assert one.completeness == KNOWN
    assert segments.close(one, {1: 1}, now_ms=0, by="b", completeness=forced).completeness == forced
    later = msgspec.structs.replace(one, version=1, target={})
    assert segments.close(later, {0: 9}, now_ms=0, by="a", completeness=forced).completeness == KNOWN
