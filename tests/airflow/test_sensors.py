"""Sensors without servers: what they say when the time is over."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.exceptions import (
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferralError,
    TaskDeferred,
)
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.sensors.cubes import LowWatermarkSensor, RemotePersistedSensor
from rtolap.protocols.coordinator.messages import (
    CubeStatus,
    PartitionWatermark,
    Queue,
    QueueEntry,
    WatermarkInfo,
)

DAY = "2013-01-02"
DAY_MS = 1_357_084_800_000
TIMED_OUT = ("__fail__", {"error": "Trigger timeout"})  # how Airflow resumes a task whose trigger is overdue


class FakeCoordinator:
    """The answers of a coordinator, as attributes."""

    def __init__(self) -> None:
        self.watermark_ms: int | None = None
        self.partitions: dict[int, PartitionWatermark] = {}
        self.waiting: tuple[QueueEntry, ...] = ()

    def __enter__(self) -> FakeCoordinator:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def watermark(self, cube: str) -> WatermarkInfo:
        return WatermarkInfo(cube=cube, low_watermark_ms=self.watermark_ms, partitions=self.partitions)

    def queue(self) -> Queue:
        return Queue(entries=self.waiting)

    def cube(self, name: str) -> CubeStatus:
        return CubeStatus(name=name, definition={}, enabled=True, paused=False, segments={"READY": 3})


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> FakeCoordinator:
    fake = FakeCoordinator()
    monkeypatch.setattr(RtolapHook, "coordinator", lambda _hook: fake)
    return fake


def day_is_complete(**more: Any) -> LowWatermarkSensor:
    return LowWatermarkSensor(task_id="t", cube="c", at_least=DAY, timeout=60, **more)


def seen(watermark_ms: int | None, idle: bool = False) -> PartitionWatermark:
    return PartitionWatermark(
        watermark_ms=watermark_ms, idle=idle, position=1, receiver_id="r0", reported_ms=0
    )


def test_a_sensor_that_need_not_wait_is_not_deferred(coordinator: FakeCoordinator) -> None:
    coordinator.watermark_ms = DAY_MS
    assert day_is_complete().execute({}) == DAY_MS
    coordinator.watermark_ms = DAY_MS - 1
    with pytest.raises(TaskDeferred) as deferral:
        day_is_complete().execute({})
    assert deferral.value.timeout.total_seconds() == 60
    with pytest.raises(TaskDeferred):
        RemotePersistedSensor(task_id="t").execute({})


def test_a_watermark_that_does_not_come_is_told_with_who_holds_it(coordinator: FakeCoordinator) -> None:
    coordinator.watermark_ms = DAY_MS - 1000
    coordinator.partitions = {0: seen(DAY_MS + 5), 1: seen(DAY_MS - 1000), 2: seen(None, idle=True)}
    with pytest.raises(AirflowSensorTimeout) as caught:
        day_is_complete().resume_execution(*TIMED_OUT, {})
    assert str(caught.value) == (
        "waited 60 s without success: the low watermark of c is 2013-01-01T23:59:59+00:00; expected "
        "2013-01-02T00:00:00+00:00 or later; partition 1 is at 2013-01-01T23:59:59+00:00, "
        "partition 2 is at unknown and idle"
    )


def test_a_cube_that_nobody_reads_is_told(coordinator: FakeCoordinator) -> None:
    with pytest.raises(AirflowSensorTimeout, match=r"is unknown; .*no receiver has reported"):
        day_is_complete().resume_execution(*TIMED_OUT, {})


def test_an_empty_queue_is_told_with_the_states_that_there_are(coordinator: FakeCoordinator) -> None:
    sensor = RemotePersistedSensor(task_id="t", cube="c", timeout=5)
    with pytest.raises(
        AirflowSensorTimeout, match=r"waited 5 s without success: no segment of c .* are: 3 READY"
    ):
        sensor.resume_execution(*TIMED_OUT, {})
    with pytest.raises(AirflowSensorTimeout, match="the queue is empty"):
        RemotePersistedSensor(task_id="t").resume_execution(*TIMED_OUT, {})


def test_what_came_true_in_the_last_moment_counts(coordinator: FakeCoordinator) -> None:
    coordinator.watermark_ms = DAY_MS + 7
    assert day_is_complete().resume_execution(*TIMED_OUT, {}) == DAY_MS + 7


def test_a_soft_sensor_is_skipped_for_the_same_reason(coordinator: FakeCoordinator) -> None:
    with pytest.raises(AirflowSkipException, match="waited 60 s without success"):
        day_is_complete(soft_fail=True).resume_execution(*TIMED_OUT, {})


def test_a_broken_trigger_is_not_taken_for_a_wait_in_vain(coordinator: FakeCoordinator) -> None:
    coordinator.watermark_ms = DAY_MS
    broken = ("__fail__", {"error": "Trigger failure"})
    with pytest.raises(TaskDeferralError):
        day_is_complete().resume_execution(*broken, {})
    with pytest.raises(AirflowSkipException):
        day_is_complete(soft_fail=True).resume_execution(*broken, {})
