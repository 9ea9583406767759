"""Sensors: one look in the worker, then they wait in the triggerer. Who waits in vain is told for what."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import BaseSensorOperator, Context
from airflow.sdk.exceptions import AirflowException, AirflowSensorTimeout, AirflowSkipException
from airflow.triggers.base import BaseTrigger

from rtolap.airflow.connection import DEFAULT_CONN_ID
from rtolap.airflow.hook import RtolapHook
from rtolap.airflow.triggers.queue import QueueTrigger
from rtolap.airflow.triggers.watermark import WatermarkTrigger
from rtolap.model.instants import instant_ms
from rtolap.wire.coordinator import PartitionWatermark
from rtolap.wire.coordinator_client import CoordinatorClient


class CoordinatorSensor(BaseSensorOperator):
    """Base of what waits for the coordinator's state; `timeout` is in seconds, as everywhere in Airflow.

    When the time is over it looks once more: then it succeeds after all, or says what it found instead.
    """

    def __init__(
        self, *, rtolap_conn_id: str = DEFAULT_CONN_ID, poke_interval: float = 5.0, **kwargs: Any
    ) -> None:
        super().__init__(poke_interval=poke_interval, **kwargs)
        self.rtolap_conn_id = rtolap_conn_id

    @abstractmethod
    def look(self, coordinator: CoordinatorClient) -> int | None:
        """The sensor's result, or None while it has to wait."""

    @abstractmethod
    def found(self, coordinator: CoordinatorClient) -> str:
        """After a wait in vain: what was expected and what is there, in words."""

    @abstractmethod
    def trigger(self) -> BaseTrigger: ...

    @abstractmethod
    def fired(self, context: Context, event: dict[str, Any]) -> int: ...

    def execute(self, context: Context) -> int:
        with RtolapHook(self.rtolap_conn_id).coordinator() as coordinator:
            result = self.look(coordinator)
        if result is not None:
            return result
        return self.defer(
            trigger=self.trigger(), method_name="fired", timeout=timedelta(seconds=self.timeout)
        )

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except (AirflowSensorTimeout, AirflowSkipException) as ended:
            if isinstance(ended, AirflowSkipException) and not isinstance(
                ended.__cause__, AirflowSensorTimeout
            ):
                raise
            with RtolapHook(self.rtolap_conn_id).coordinator() as coordinator:
                result = self.look(coordinator)
                if result is not None:
                    return result
                reason = f"waited {self.timeout:g} s in vain: {self.found(coordinator)}"
            raise type(ended)(reason) from ended


class RemotePersistedSensor(CoordinatorSensor):
    """Succeeds when a segment waits to be built: any, one of `cube`, or that `segment` of it."""

    template_fields: Sequence[str] = ("cube", "segment")

    def __init__(self, *, cube: str | None = None, segment: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cube = cube
        self.segment = segment

    def trigger(self) -> QueueTrigger:
        return QueueTrigger(
            cube=self.cube,
            segment=self.segment,
            poll_s=float(self.poke_interval),
            rtolap_conn_id=self.rtolap_conn_id,
        )

    def look(self, coordinator: CoordinatorClient) -> int | None:
        return len(self.trigger().wanted(coordinator.queue())) or None

    def found(self, coordinator: CoordinatorClient) -> str:
        if self.cube is None:
            return "the queue is empty; expected a REMOTE_PERSISTED segment of any cube"
        if self.segment is None:
            counts = coordinator.cube(self.cube).segments
            there = ", ".join(f"{number} {state}" for state, number in sorted(counts.items())) or "none"
            return f"no segment of {self.cube} is REMOTE_PERSISTED; its closed segments are: {there}"
        state = coordinator.segment(self.cube, self.segment).state
        return f"segment {self.segment} of {self.cube} is {state}; expected REMOTE_PERSISTED"

    def fired(self, context: Context, event: dict[str, Any]) -> int:
        return int(event["waiting"])


class LowWatermarkSensor(CoordinatorSensor):
    """Succeeds when the cube's low watermark is at or beyond `at_least` (ISO 8601 or milliseconds)."""

    template_fields: Sequence[str] = ("cube", "at_least")

    def __init__(self, *, cube: str, at_least: str | int | datetime, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cube = cube
        self.at_least = at_least

    def trigger(self) -> WatermarkTrigger:
        return WatermarkTrigger(
            cube=self.cube,
            at_least_ms=instant_ms(self.at_least),
            poll_s=float(self.poke_interval),
            rtolap_conn_id=self.rtolap_conn_id,
        )

    def look(self, coordinator: CoordinatorClient) -> int | None:
        reached_ms = coordinator.watermark(self.cube).low_watermark_ms
        return reached_ms if reached_ms is not None and reached_ms >= instant_ms(self.at_least) else None

    def found(self, coordinator: CoordinatorClient) -> str:
        wanted_ms = instant_ms(self.at_least)
        watermark = coordinator.watermark(self.cube)
        return (
            f"the low watermark of {self.cube} is {_iso(watermark.low_watermark_ms)}; expected "
            f"{_iso(wanted_ms)} or later; {_behind(watermark.partitions, wanted_ms)}"
        )

    def fired(self, context: Context, event: dict[str, Any]) -> int:
        if "error" in event:
            raise AirflowException(f"the low watermark of {self.cube} cannot be read: {event['error']}")
        return int(event["low_watermark_ms"])


def _iso(at_ms: int | None) -> str:
    if at_ms is None:
        return "unknown"
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()


def _behind(partitions: Mapping[int, PartitionWatermark], wanted_ms: int) -> str:
    """Which partitions hold the watermark, and where each stands."""
    if not partitions:
        return "no receiver has reported a partition: see `rtolap receivers list`"
    held = ", ".join(
        f"partition {number} is at {_iso(seen.watermark_ms)}{' and idle' if seen.idle else ''}"
        for number, seen in sorted(partitions.items())
        if seen.watermark_ms is None or seen.watermark_ms < wanted_ms
    )
    return held or "partitions without a report hold it: see `rtolap receivers list`"
