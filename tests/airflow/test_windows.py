"""Windows in Airflow, without servers: sensors, questions and approvals by what the coordinator says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import msgspec
import pytest
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferred,
)
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.operators.window_approval import NO_REASON, ApproveWindowOperator, WindowApprovalOperator
from rtolap.airflow.overdue import oldest, windows_to_ask_about
from rtolap.airflow.sensors.cubes import WindowCompleteSensor
from rtolap.airflow.triggers.answer import AnswerTrigger
from rtolap.airflow.triggers.cubes import WindowTrigger
from rtolap.airflow.windows import Window
from rtolap.airflow.words import question, state_of
from rtolap.base.errors import DefinitionError
from rtolap.model.application import CubeWatermark
from rtolap.model.cube import Cube, SegmentPolicy
from rtolap.model.instants import instant_ms
from rtolap.protocols.coordinator.messages import CompletenessInfo, CubeStatus, Queue, QueueEntry, SegmentInfo
from rtolap.protocols.watermark.messages import (
    BY_MAX,
    REASON_MAX,
    ApplicationInfo,
    ApplicationWatermarks,
    ApprovalInfo,
    Explanation,
    HostBehind,
    HostsInfo,
)

END = "2013-01-02T00:00:00+00:00"
END_MS = 1_357_084_800_000
HOUR_MS = 3_600_000
REASON = "web is at 2013-01-01T23:20:00Z: 3 of 1000 hosts behind by up to 40m: a, b, c"
TIMED_OUT = ("__fail__", {"error": "Trigger timeout"})
SEGMENT = "20130101230000_20130102000000"


class FakeCoordinator:
    """Windows up to `complete_ms`, or approved, may close. Cube `hourly` closes by it, `plain` does not."""

    def __init__(self) -> None:
        self.complete_ms = 0
        self.now_ms = END_MS + HOUR_MS
        self.approvals: list[ApprovalInfo] = []
        self.open: list[SegmentInfo] = []
        self.waiting: tuple[QueueEntry, ...] = ()
        self.lateness_ms = 0

    def __enter__(self) -> FakeCoordinator:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def explain_window(self, application: str, window_end_ms: int) -> Explanation:
        approved = any(one.until_ms >= window_end_ms for one in self.approvals)
        complete = window_end_ms <= self.complete_ms
        return Explanation(
            application=application,
            window_end_ms=window_end_ms,
            may_close=complete or approved,
            approved=approved and not complete,
            reasons=() if complete else (REASON,),
            expected_missing_ppm={"web": 0 if complete else 3000},
            bound_ppm={"web": 10 if complete else 3200},
        )

    def applications(self) -> list[str]:
        return ["logs", "others"]

    def application(self, name: str) -> ApplicationInfo:
        return ApplicationInfo(
            name=name, definition={}, epoch=1, clients=0, units=0, approvals=tuple(self.approvals)
        )

    def approve_windows(self, name: str, until_ms: int, by: str, reason: str) -> None:
        self.approvals.append(ApprovalInfo(until_ms=until_ms, by=by, reason=reason, at_ms=0))

    def application_watermarks(self, name: str) -> ApplicationWatermarks:
        assert name == "logs"
        approved_ms = max((one.until_ms for one in self.approvals), default=None)
        return ApplicationWatermarks(
            application=name, epoch=1, now_ms=self.now_ms, approved_until_ms=approved_ms
        )

    def cubes(self) -> list[CubeStatus]:
        return [self.cube("hourly"), self.cube("plain"), self.cube("orphan")]

    def cube(self, name: str) -> CubeStatus:
        application = {"hourly": "logs", "orphan": "gone"}.get(name)
        mark = CubeWatermark(application, "web", "store") if application else None
        policy = SegmentPolicy(window_ms=HOUR_MS, allowed_lateness_ms=self.lateness_ms)
        cube = Cube(name=name, table="t", dimensions=(), watermark=mark, segment=policy)
        return CubeStatus(name=name, definition=msgspec.to_builtins(cube), enabled=True, paused=False)

    def segments(self, cube: str, *, state: str) -> list[SegmentInfo]:
        assert state == "ACTIVE"
        return [segment for segment in self.open if segment.cube == cube]

    def queue(self, cube: str | None = None) -> Queue:
        return Queue(entries=tuple(entry for entry in self.waiting if cube in (None, entry.cube)))


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> FakeCoordinator:
    fake = FakeCoordinator()
    monkeypatch.setattr(RtolapHook, "coordinator", lambda _hook: fake)
    return fake


# -- the sensor ---------------------------------------------------------------------------------------------


def sensor(**more: Any) -> WindowCompleteSensor:
    named = more or {"application": "logs", "window_end": END}
    return WindowCompleteSensor(task_id="t", timeout=60, **named)


def test_a_window_that_may_close_is_not_waited_for(coordinator: FakeCoordinator) -> None:
    coordinator.complete_ms = END_MS
    assert sensor().execute({}) == {
        "application": "logs",
        "window_end": END,
        "approved": False,
        "expected_missing_ppm": {"web": 0},
        "bound_ppm": {"web": 10},
    }


def test_a_window_that_waits_defers_until_its_end_is_reached(coordinator: FakeCoordinator) -> None:
    coordinator.complete_ms = END_MS - 1
    with pytest.raises(TaskDeferred) as deferral:
        sensor().execute({})
    trigger = deferral.value.trigger.made()
    assert isinstance(trigger, WindowTrigger)
    assert trigger.window == Window("logs", END_MS)
    assert deferral.value.timeout.total_seconds() == 60


def test_a_wait_in_vain_says_which_hosts_hold_the_window(coordinator: FakeCoordinator) -> None:
    with pytest.raises(AirflowSensorTimeout) as caught:
        sensor().resume_execution(*TIMED_OUT, {})
    assert str(caught.value) == (
        f"waited 60 s without success: the window of logs that ends at {END} waits: {REASON} "
        "(web: 3000 ppm expected to be missing, at most 3200 ppm)"
    )


def test_a_soft_sensor_is_skipped_with_the_same_reason(coordinator: FakeCoordinator) -> None:
    soft = sensor(application="logs", window_end=END, soft_fail=True)
    with pytest.raises(AirflowSkipException, match="3 of 1000 hosts behind by up to 40m: a, b, c"):
        soft.resume_execution(*TIMED_OUT, {})


def test_what_fired_is_the_result(coordinator: FakeCoordinator) -> None:
    coordinator.approve_windows("logs", END_MS, "ada", "dead hosts")
    said = coordinator.explain_window("logs", END_MS).model_dump(mode="json")
    result = sensor().fired({}, {"explanation": said})
    assert (result["approved"], result["expected_missing_ppm"]) == (True, {"web": 3000})


def test_a_segment_waits_for_its_allowed_lateness_but_not_after_an_approval(
    coordinator: FakeCoordinator,
) -> None:
    coordinator.lateness_ms = 2 * HOUR_MS
    coordinator.complete_ms = END_MS + 2 * HOUR_MS - 1
    of_segment = sensor(cube="hourly", segment=SEGMENT)
    with pytest.raises(TaskDeferred) as deferral:
        of_segment.execute({})
    assert deferral.value.trigger.made().window == Window("logs", END_MS, 2 * HOUR_MS)
    coordinator.complete_ms += 1
    assert not of_segment.execute({})["approved"]
    coordinator.complete_ms = END_MS
    coordinator.approve_windows("logs", END_MS - 1, "ada", "the one before")
    with pytest.raises(TaskDeferred):
        of_segment.execute({})
    coordinator.approve_windows("logs", END_MS, "ada", "this one")
    result = of_segment.execute({})
    assert (result["application"], result["window_end"], result["approved"]) == ("logs", END, True)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"application": "logs"}, "the window is not given"),
        ({"cube": "hourly"}, "the window is not given"),
        ({"application": "logs", "window_end": END, "cube": "hourly"}, "the window is not given"),
        ({"application": "logs", "window_end": "tomorrow"}, "not an instant"),
        ({"cube": "plain", "segment": SEGMENT}, "closes by no application"),
        ({"cube": "hourly", "segment": "s1"}, "not a segment name"),
    ],
)
def test_an_unclear_window_is_refused(
    coordinator: FakeCoordinator, named: dict[str, str], message: str
) -> None:
    with pytest.raises(AirflowFailException, match=message):
        sensor(**named).execute({})


# -- asking and recording -----------------------------------------------------------------------------------


RETRIES = 3


def ask() -> WindowApprovalOperator:
    return WindowApprovalOperator(task_id="ask", application="logs", window_end=END, retries=RETRIES)


def context(try_number: int = 1, max_tries: int = RETRIES) -> Any:
    tries = {"try_number": try_number, "max_tries": max_tries}
    ti = SimpleNamespace(id=UUID(int=7), dag_id="d", run_id="r", task_id="ask", map_index=-1, **tries)
    return {"ti": ti, "task_instance": ti}


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The question, once it is asked."""
    found: dict[str, Any] = {}
    monkeypatch.setattr(
        "airflow.providers.standard.operators.hitl.upsert_hitl_detail",
        lambda **detail: found.update(detail),
    )
    return found


def test_a_question_says_what_the_window_waits_for_and_waits_for_both(
    coordinator: FakeCoordinator, written: dict[str, Any]
) -> None:
    with pytest.raises(TaskDeferred) as deferral:
        ask().execute(context())
    assert written["subject"] == f"Approve the window of logs that ends at {END}?"
    assert REASON in written["body"]
    assert (written["options"], written["defaults"]) == (["Approve", "Reject"], None)
    assert list(written["params"]) == ["reason"]
    trigger = deferral.value.trigger
    assert isinstance(trigger, AnswerTrigger)
    assert (trigger.ti_id, trigger.window_end_ms) == (str(UUID(int=7)), END_MS)
    assert deferral.value.timeout is None
    assert deferral.value.method_name == "execute_complete"


def test_nobody_is_asked_about_a_window_that_may_close(coordinator: FakeCoordinator) -> None:
    coordinator.complete_ms = END_MS
    with pytest.raises(AirflowSkipException, match="nobody is asked"):
        ask().execute(context())


def test_a_question_is_withdrawn_by_its_window(coordinator: FakeCoordinator) -> None:
    coordinator.complete_ms = END_MS
    said = coordinator.explain_window("logs", END_MS).model_dump(mode="json")
    with pytest.raises(AirflowSkipException, match="withdrawn"):
        ask().execute_complete(context(), {"explanation": said, "ti_id": str(UUID(int=7))})


@pytest.mark.parametrize(
    "foreign",
    [
        {"ti_id": str(UUID(int=8)), "chosen_options": ["Approve"], "params_input": {}},
        {"ti_id": str(UUID(int=8)), "explanation": {}},
        {"waited_for": ["a.Trigger", {}], "said": {"explanation": {}}},
        {"process_key": "p", "generation": 1, "state": "SUPERSEDED"},
    ],
)
def test_an_answer_to_another_question_is_none(
    foreign: dict[str, Any],
) -> None:
    with pytest.raises(TaskDeferred) as deferral:
        ask().execute_complete(context(), foreign)
    assert isinstance(deferral.value.trigger, AnswerTrigger)


@pytest.mark.parametrize(
    ("try_number", "max_tries", "asks"),
    [
        (1, RETRIES, True),
        (2, RETRIES, False),  # the first try was lost, perhaps with an answer
        (2, 1 + RETRIES, True),  # cleared after the first
        (3, 1 + RETRIES, False),
    ],
)
def test_a_retry_waits_for_the_answer_to_what_was_asked_before(
    coordinator: FakeCoordinator, written: dict[str, Any], try_number: int, max_tries: int, asks: bool
) -> None:
    with pytest.raises(TaskDeferred) as deferral:
        ask().execute(context(try_number, max_tries))
    assert isinstance(deferral.value.trigger, AnswerTrigger)
    assert bool(written) == asks


def test_a_retry_asks_if_no_try_before_has(coordinator: FakeCoordinator, written: dict[str, Any]) -> None:
    with pytest.raises(TaskDeferred):
        ask().execute_complete(context(2), {"unasked": True, "ti_id": str(UUID(int=7))})
    assert REASON in written["body"]


def test_a_question_has_no_answer_by_default() -> None:
    for forbidden in ({"defaults": "Approve"}, {"response_timeout": None}):
        with pytest.raises(TypeError):
            WindowApprovalOperator(task_id="ask", application="logs", window_end=END, **forbidden)


def answered(*chosen: str, user: dict[str, str] | None, **form: str) -> dict[str, Any]:
    return {"chosen_options": list(chosen), "params_input": form, "responded_by_user": user}


ADA = {"id": "ada", "name": "ada"}


def let_go(answer: dict[str, Any]) -> ApproveWindowOperator:
    return ApproveWindowOperator(task_id="let_go", application="logs", window_end=END, answer=answer)


def test_an_approval_is_recorded_once_under_the_responders_name(coordinator: FakeCoordinator) -> None:
    operator = let_go(answered("Approve", user=ADA, reason=" dead hosts "))
    for _ in range(2):
        assert operator.execute(context())["by"] == "ada"
    ((until_ms, by, reason),) = [(one.until_ms, one.by, one.reason) for one in coordinator.approvals]
    assert (until_ms, by, reason) == (END_MS, "ada", "dead hosts (Airflow: d, run r)")


def test_a_responder_whose_id_is_no_name_is_recorded_with_both(coordinator: FakeCoordinator) -> None:
    let_go(answered("Approve", user={"id": "7", "name": "Ada L."})).execute(context())
    assert coordinator.approvals[0].by == "Ada L. (7)"
    assert coordinator.approvals[0].reason.startswith(NO_REASON)


def test_a_long_reason_is_cut_and_says_still_where_it_was_given(coordinator: FakeCoordinator) -> None:
    long = {"id": "7" * 300, "name": "ada"}
    for _ in range(2):
        let_go(answered("Approve", user=long, reason="x" * 5_000)).execute(context())
    (one,) = coordinator.approvals
    assert (len(one.by), len(one.reason)) == (BY_MAX, REASON_MAX)
    assert one.reason.endswith("x… (Airflow: d, run r)")


@pytest.mark.parametrize(
    "answer", [answered("Approve", user=None), answered("Reject", user=ADA), answered(user=ADA)]
)
def test_without_a_persons_approval_nothing_goes(
    coordinator: FakeCoordinator, answer: dict[str, Any]
) -> None:
    with pytest.raises(AirflowFailException, match="nobody has approved"):
        let_go(answer).execute(context())
    assert coordinator.approvals == []


def test_names_of_hosts_cannot_change_a_questions_layout() -> None:
    behind = HostBehind(host="a|`**b**", latest_ms=None, behind_ms=None, share_ppm=5)
    hosts = HostsInfo(
        application="logs", level="web", list_epoch=1, counting=1, unseen=1, holding=1, behind=(behind,)
    )
    said = Explanation(
        application="logs", window_end_ms=END_MS, may_close=False, reasons=("x",), hosts={"web": hosts}
    )
    _, body = question(said)
    assert "| `a¦'**b**` | unknown | never seen | 5 ppm |" in body
    assert state_of(said) == f"the window of logs that ends at {END} waits: x"


# -- which windows are asked about --------------------------------------------------------------------------


def opened(end_ms: int, cube: str = "hourly") -> SegmentInfo:
    return SegmentInfo(
        cube=cube, segment="s", start_ms=end_ms - HOUR_MS, end_ms=end_ms, state="ACTIVE", version=0
    )


def queued(closed_by: Any, version: int = 1) -> QueueEntry:
    known = CompletenessInfo(application="logs", window_end_ms=END_MS, closed_by=closed_by)
    return QueueEntry(
        cube="hourly",
        segment=SEGMENT,
        start_ms=END_MS - HOUR_MS,
        end_ms=END_MS,
        version=version,
        parts=1,
        events=1,
        completeness=known,
    )


def asked_about(coordinator: Any, policy: str = "build") -> list[Window]:
    return windows_to_ask_about(coordinator, "30m", 10, policy)


def test_a_window_is_asked_about_when_patience_is_over(coordinator: FakeCoordinator) -> None:
    coordinator.open = [opened(END_MS), opened(END_MS, cube="plain"), opened(END_MS, cube="orphan")]
    coordinator.now_ms = END_MS + 30 * 60_000 - 1
    assert asked_about(coordinator) == []
    coordinator.now_ms += 1
    assert asked_about(coordinator) == [Window("logs", END_MS)]
    coordinator.complete_ms = END_MS
    assert asked_about(coordinator) == []


def test_what_was_closed_by_force_is_asked_about_where_builds_wait_for_approval(
    coordinator: FakeCoordinator,
) -> None:
    coordinator.waiting = (queued("forced"), queued("watermark"))
    assert asked_about(coordinator) == []
    assert asked_about(coordinator, "approve") == [Window("logs", END_MS)]
    coordinator.waiting = (queued("watermark"), queued("approval"), queued("forced", version=2))
    assert asked_about(coordinator, "approve") == []
    with pytest.raises(DefinitionError, match="no such policy"):
        asked_about(coordinator, "perhaps")


def test_of_each_application_the_oldest_windows_come_first() -> None:
    windows = [Window("b", 3), Window("a", 2), Window("a", 3), Window("a", 1, 7), Window("a", 1, 5)]
    assert oldest(windows, 2) == [Window("a", 1, 7), Window("a", 2), Window("b", 3)]


def test_a_window_has_one_run_with_a_name_that_airflow_allows() -> None:
    assert Window("logs", END_MS).run_id == f"logs__{END}"
    assert instant_ms(Window("logs", END_MS + 5).conf()["window_end"]) == END_MS + 5
