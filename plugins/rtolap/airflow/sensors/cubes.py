"""Sensors of cubes. A sensor that times out says what it waited for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from airflow.sdk import BaseOperatorLink, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from rtolap.airflow.links import PageLink, WindowLink
from rtolap.airflow.rebuilt import FAILED_AFTER_S, RebuildWatch, Rebuilt
from rtolap.airflow.sensors.base import CoordinatorSensor
from rtolap.airflow.triggers.cubes import QueueTrigger, RebuiltTrigger, WatermarkTrigger, WindowTrigger
from rtolap.airflow.windows import Window, explain, named_window, outcome
from rtolap.airflow.words import iso, state_of
from rtolap.model.instants import instant_ms
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.protocols.coordinator.messages import PartitionWatermark
from rtolap.protocols.watermark.messages import Explanation


class RemotePersistedSensor(CoordinatorSensor):
    """Succeeds when a segment waits to be built: any segment, one of `cube`, or that `segment` of the
    cube."""

    template_fields: Sequence[str] = ("cube", "segment")

    def __init__(self, *, cube: str | None = None, segment: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cube = cube
        self.segment = segment

    def trigger(self, coordinator: CoordinatorClient) -> QueueTrigger:
        return self._queued()

    def _queued(self) -> QueueTrigger:
        return QueueTrigger(
            cube=self.cube,
            segment=self.segment,
            poll_s=float(self.poke_interval),
            rtolap_conn_id=self.rtolap_conn_id,
        )

    def poll(self, coordinator: CoordinatorClient) -> int | None:
        return len(self._queued().wanted(coordinator.queue())) or None

    def found(self, coordinator: CoordinatorClient) -> str:
        if self.cube is None:
            return "the queue is empty; expected a REMOTE_PERSISTED segment of any cube"
        if self.segment is None:
            counts = coordinator.cube(self.cube).segments
            states = ", ".join(f"{number} {state}" for state, number in sorted(counts.items())) or "none"
            return f"no segment of {self.cube} is REMOTE_PERSISTED; its segments are: {states}"
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

    def trigger(self, coordinator: CoordinatorClient) -> WatermarkTrigger:
        return WatermarkTrigger(
            cube=self.cube,
            at_least_ms=instant_ms(self.at_least),
            poll_s=float(self.poke_interval),
            rtolap_conn_id=self.rtolap_conn_id,
        )

    def poll(self, coordinator: CoordinatorClient) -> int | None:
        reached_ms = coordinator.watermark(self.cube).low_watermark_ms
        return reached_ms if reached_ms is not None and reached_ms >= instant_ms(self.at_least) else None

    def found(self, coordinator: CoordinatorClient) -> str:
        wanted_ms = instant_ms(self.at_least)
        watermark = coordinator.watermark(self.cube)
        return (
            f"the low watermark of {self.cube} is {iso(watermark.low_watermark_ms)}; expected "
            f"{iso(wanted_ms)} or later; {_behind(watermark.partitions, wanted_ms)}"
        )

    def fired(self, context: Context, event: dict[str, Any]) -> int:
        if "error" in event:
            raise AirflowException(f"the low watermark of {self.cube} cannot be read: {event['error']}")
        return int(event["low_watermark_ms"])


class SegmentsReadySensor(CoordinatorSensor):
    """Succeeds when all of `segments` of `cube`, which were queued to be built, are READY, and fails with the
    names and the errors of those that will not be. Result: {"cube", "ready"}.

    A segment will not be READY when it is purged, or when its builds have failed for `failed_after_s`.
    """

    template_fields: Sequence[str] = ("cube", "segments")

    def __init__(
        self, *, cube: str, segments: Sequence[str], failed_after_s: float = FAILED_AFTER_S, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.cube = cube
        self.segments = segments
        self.failed_after_s = failed_after_s

    def trigger(self, coordinator: CoordinatorClient) -> RebuiltTrigger:
        return RebuiltTrigger(
            cube=self.cube,
            segments=list(self.segments),
            failed_after_s=self.failed_after_s,
            poll_s=float(self.poke_interval),
            rtolap_conn_id=self.rtolap_conn_id,
        )

    def poll(self, coordinator: CoordinatorClient) -> dict[str, Any] | None:
        seen = self._seen(coordinator)
        self.log.info("%s: %s", self.cube, seen.text)
        return None if seen.waiting else self._result(list(seen.ready), seen.failed)

    def found(self, coordinator: CoordinatorClient) -> str:
        return f"{self.cube}: {self._seen(coordinator).text}"

    def fired(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        return self._result(event["ready"], event["failed"])

    def _seen(self, coordinator: CoordinatorClient) -> Rebuilt:
        if not self.segments:
            return Rebuilt((), {}, {})
        return RebuildWatch(self.segments, self.failed_after_s).look(coordinator.segments(self.cube), 0.0)

    def _result(self, ready: list[str], failed: Mapping[str, str]) -> dict[str, Any]:
        if failed:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
            raise AirflowFailException(
                f"{len(failed)} of {len(self.segments)} segments of {self.cube} were not rebuilt: {reasons}"
            )
        self.log.info("%s: %d segments are READY: %s", self.cube, len(ready), ", ".join(ready) or "none")
        return {"cube": self.cube, "ready": ready}


class WindowCompleteSensor(CoordinatorSensor):
    """Succeeds when a window of an application may close: its events are there to its rule's bound, or a
    person has approved it.

    It takes either `application` and `window_end` (ISO 8601 or milliseconds; it waits for `lateness_ms`
    beyond), or a `cube` that closes by an application and a `segment` of it. `windows.outcome` describes the
    result.
    """

    template_fields: Sequence[str] = ("application", "window_end", "lateness_ms", "cube", "segment")
    operator_extra_links: tuple[BaseOperatorLink, ...] = (WindowLink(), PageLink())

    def __init__(
        self,
        *,
        application: str | None = None,
        window_end: str | int | datetime | None = None,
        lateness_ms: int | str = 0,
        cube: str | None = None,
        segment: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.application = application
        self.window_end = window_end
        self.lateness_ms = lateness_ms
        self.cube = cube
        self.segment = segment

    def trigger(self, coordinator: CoordinatorClient) -> WindowTrigger:
        window = self._window(coordinator)
        return WindowTrigger(
            application=window.application,
            window_end_ms=window.end_ms,
            lateness_ms=window.lateness_ms,
            poll_s=float(self.poke_interval),
            rtolap_conn_id=self.rtolap_conn_id,
        )

    def poll(self, coordinator: CoordinatorClient) -> dict[str, Any] | None:
        explanation = self._explain(coordinator)
        self.log.info(state_of(explanation))
        return outcome(explanation) if explanation.may_close else None

    def found(self, coordinator: CoordinatorClient) -> str:
        return state_of(self._explain(coordinator))

    def fired(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        if "error" in event:
            raise AirflowException(f"whether the window may close cannot be asked: {event['error']}")
        explanation = Explanation.model_validate(event["explanation"])
        self.log.info(state_of(explanation))
        return outcome(explanation)

    def _explain(self, coordinator: CoordinatorClient) -> Explanation:
        return explain(coordinator, self._window(coordinator))

    def _window(self, coordinator: CoordinatorClient) -> Window:
        return named_window(
            coordinator,
            application=self.application,
            window_end=self.window_end,
            cube=self.cube,
            segment=self.segment,
            lateness_ms=self.lateness_ms,
        )


def _behind(partitions: Mapping[int, PartitionWatermark], wanted_ms: int) -> str:
    """Return the partitions that hold the watermark, and the position of each."""
    if not partitions:
        return "no receiver has reported a partition: see `rtolap receivers list`"
    holders = ", ".join(
        f"partition {number} is at {iso(seen.watermark_ms)}{' and idle' if seen.idle else ''}"
        for number, seen in sorted(partitions.items())
        if seen.watermark_ms is None or seen.watermark_ms < wanted_ms
    )
    return holders or "partitions without a report hold it: see `rtolap receivers list`"
