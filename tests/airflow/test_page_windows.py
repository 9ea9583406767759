"""Windows that wait, on the page of a cube: what is missing, and that a person is asked about them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.overdue import windows_to_ask_about
from rtolap.airflow.page.rights import ANSWERED_ON_THE_PAGE, may_answer, reader
from rtolap.airflow.page.windows import WINDOWS_MAX, CubeWindows, windows_of
from rtolap.airflow.plugin import app
from rtolap.base.decoding import convert
from rtolap.base.errors import Unavailable
from rtolap.model.cube import Cube
from rtolap.model.segment import SegmentRange
from rtolap.protocols.coordinator.messages import CompletenessInfo, QueueEntry, SegmentInfo
from rtolap.protocols.watermark.messages import Explanation, HostBehind, HostsInfo

from tests.airflow.test_windows import END_MS, HOUR_MS, REASON, FakeCoordinator

NOW_MS = END_MS + HOUR_MS


def opened(hours_ago: int) -> SegmentInfo:
    """A segment of the hour that ends so long before END_MS, that was never closed."""
    end_ms = END_MS - hours_ago * HOUR_MS
    known = SegmentRange(end_ms - HOUR_MS, end_ms)
    return SegmentInfo(
        cube="hourly",
        segment=known.name,
        start_ms=known.start_ms,
        end_ms=end_ms,
        state="ACTIVE",
        version=0,
    )


def forced(hours_ago: int, missing_ppm: int | None = 700) -> QueueEntry:
    """A segment that was closed by force, and waits for its first build."""
    of = opened(hours_ago)
    known = CompletenessInfo(
        application="logs", window_end_ms=of.end_ms, closed_by="forced", expected_missing_ppm=missing_ppm
    )
    return QueueEntry(
        cube="hourly",
        segment=of.segment,
        start_ms=of.start_ms,
        end_ms=of.end_ms,
        version=1,
        parts=1,
        events=1,
        completeness=known,
    )


def seen(coordinator: FakeCoordinator, cube: str = "hourly") -> CubeWindows:
    told: Any = coordinator
    return windows_of(told, convert(coordinator.cube(cube).definition, Cube), now_ms=NOW_MS)


def test_a_window_says_what_is_missing_and_which_hosts_owe_it() -> None:
    coordinator = FakeCoordinator()
    coordinator.open = [opened(1)]
    plain = coordinator.explain_window
    behind = HostBehind(host="h7", latest_ms=END_MS - HOUR_MS, behind_ms=HOUR_MS, holds=True, share_ppm=900)
    hosts = HostsInfo(
        application="logs", level="web", list_epoch=1, counting=9, unseen=0, holding=1, behind=(behind,)
    )

    def explained(application: str, window_end_ms: int) -> Explanation:
        return plain(application, window_end_ms).model_copy(update={"hosts": {"web": hosts}})

    coordinator.explain_window = explained  # type: ignore[method-assign]
    coordinator.approve_windows("logs", END_MS - 9 * HOUR_MS, "ada", "the host is gone")
    (window,) = seen(coordinator).windows
    assert window.segments == (opened(1).segment,)
    assert window.reasons == (REASON,)
    ((source, missing_ppm, bound_ppm),) = [msgspec.structs.astuple(share) for share in window.shares]
    assert (source, missing_ppm, bound_ppm) == ("web", 3000, 3200)
    ((source, host, latest_ms, behind_ms, share_ppm, _),) = map(msgspec.structs.astuple, window.hosts)
    assert (source, host, latest_ms, behind_ms, share_ppm) == ("web", "h7", END_MS - HOUR_MS, HOUR_MS, 900)
    assert window.hosts_behind == 1
    assert [(each.by, each.reason) for each in seen(coordinator).approvals] == [("ada", "the host is gone")]


def test_what_was_recorded_when_a_segment_was_closed_by_force_is_shown_with_its_window() -> None:
    coordinator = FakeCoordinator()
    coordinator.waiting = (forced(2),)
    (window,) = seen(coordinator).windows
    assert window.recorded[opened(2).segment].expected_missing_ppm == 700
    assert window.segments == (opened(2).segment,)


hours = st.sets(st.integers(-3, 30), max_size=20)


@given(
    open_hours=hours,
    forced_hours=hours,
    complete=st.integers(-2, 31),
    approved=st.none() | st.integers(-2, 31),
)
def test_the_windows_are_those_that_a_person_is_asked_about(
    open_hours: set[int], forced_hours: set[int], complete: int, approved: int | None
) -> None:
    coordinator = FakeCoordinator()
    coordinator.open = [opened(each) for each in sorted(open_hours)]
    coordinator.waiting = tuple(forced(each) for each in sorted(forced_hours - open_hours))
    coordinator.complete_ms = END_MS - complete * HOUR_MS
    if approved is not None:
        coordinator.approve_windows("logs", END_MS - approved * HOUR_MS, "ada", "gone")
    told: Any = coordinator
    asked = windows_to_ask_about(told, "0s", 100, "approve")
    found = seen(coordinator)
    assert [window.run_id for window in found.windows] == [each.run_id for each in asked[:WINDOWS_MAX]]
    assert found.later >= max(0, len(asked) - WINDOWS_MAX)
    assert found.later == 0 or len(found.windows) == WINDOWS_MAX
    for window, each in zip(found.windows, asked, strict=False):
        assert window.conf == each.conf()


def test_a_cube_that_closes_by_its_partitions_has_none() -> None:
    assert seen(FakeCoordinator(), "plain") == CubeWindows(now_ms=NOW_MS)


@pytest.mark.parametrize("away", [False, True])
def test_the_route_says_why_windows_are_not_known(monkeypatch: pytest.MonkeyPatch, away: bool) -> None:
    coordinator = FakeCoordinator()
    coordinator.open = [opened(1)]
    monkeypatch.setitem(app.dependency_overrides, reader, lambda: None)
    monkeypatch.setattr(RtolapHook, "coordinator", lambda _hook, **_: coordinator)
    if away:

        def fails(_name: str) -> Any:
            raise Unavailable("its owner does not answer")

        coordinator.application_watermarks = fails  # type: ignore[method-assign]
    answer = TestClient(app).get("/page/cubes/hourly/windows").raise_for_status()
    found = msgspec.json.decode(answer.content, type=CubeWindows)
    assert (found.application, found.error != "", len(found.windows)) == ("logs", away, 0 if away else 1)


def test_who_may_answer_is_what_airflow_says_of_each_dag(monkeypatch: pytest.MonkeyPatch) -> None:
    class OneDag:
        def is_authorized_dag(self, *, method: str, access_entity: Any, details: Any, user: str) -> bool:
            assert (method, access_entity.value, user) == ("PUT", "HITL_DETAIL", "ada")
            return bool(details.id == "rtolap_window_approval")

    monkeypatch.setattr("rtolap.airflow.page.rights.get_auth_manager", OneDag)
    assert may_answer("ada") == ("rtolap_window_approval",)
    assert len(ANSWERED_ON_THE_PAGE) > 1
