"""Short calls to the coordinator, one operator each. All may be repeated safely.

A cube or segment that nobody knows fails a task at once: see `airflow.errors`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any

from airflow.sdk import BaseOperator, BaseOperatorLink, Context
from airflow.sdk.exceptions import AirflowFailException

from rtolap.airflow.errors import final_at_once
from rtolap.airflow.hooks.connection import DEFAULT_CONN_ID
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.links import PageLink, SegmentsLink
from rtolap.model.completeness import BY_MAX, REASON_MAX
from rtolap.model.instants import instant_ms
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.protocols.coordinator.operations import requeue_window


class CubeOperator(BaseOperator):
    """Base of the calls that concern one cube."""

    template_fields: Sequence[str] = ("cube",)
    operator_extra_links: tuple[BaseOperatorLink, ...] = (SegmentsLink(), PageLink())

    def __init__(self, *, cube: str, rtolap_conn_id: str = DEFAULT_CONN_ID, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cube = cube
        self.rtolap_conn_id = rtolap_conn_id

    def execute(self, context: Context) -> Any:
        with final_at_once(), RtolapHook(self.rtolap_conn_id).coordinator() as coordinator:
            return self.call(coordinator)

    @abstractmethod
    def call(self, coordinator: CoordinatorClient) -> Any:
        """Return the result of the task."""


class PromoteOperator(CubeOperator):
    """Make a finished build the READY version. Raises Refused while an earlier segment waits: use retries."""

    template_fields: Sequence[str] = ("cube", "segment", "build_id")

    def __init__(self, *, segment: str, build_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.segment = segment
        self.build_id = build_id

    def call(self, coordinator: CoordinatorClient) -> int:
        return coordinator.promote(self.cube, self.segment, self.build_id).version


class PurgeOperator(CubeOperator):
    """Drop, for ever, the segments that end at or below `before` (ISO 8601 or milliseconds)."""

    template_fields: Sequence[str] = ("cube", "before")

    def __init__(self, *, before: str | int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.before = before

    def call(self, coordinator: CoordinatorClient) -> list[str]:
        result = coordinator.purge(self.cube, instant_ms(self.before))
        self.log.info("%s: horizon %s, purged %s", self.cube, result.horizon_ms, result.segments)
        return list(result.segments)


class RetentionOperator(CubeOperator):
    """Purge segments that are too old by the cube's own retention policy and its low watermark.

    An older revision of which nothing is left is dropped.
    """

    def call(self, coordinator: CoordinatorClient) -> list[str]:
        result = coordinator.retention(self.cube)
        if result.dropped:
            self.log.info("revision %s was dropped: all of it was purged before", result.dropped)
        self.log.info("%s: horizon %s, purged %s", self.cube, result.horizon_ms, result.segments)
        return list(result.segments)


class CleanupOperator(CubeOperator):
    """Delete files without a reference: staged files of promoted versions, folders of lost attempts."""

    def call(self, coordinator: CoordinatorClient) -> list[str]:
        result = coordinator.cleanup(self.cube)
        self.log.info(
            "%s: deleted %d folders, %d records", self.cube, len(result.folders), len(result.records)
        )
        for waiting in result.waiting:
            self.log.warning("%s: %s", self.cube, waiting)
        return list(result.folders)


class RequeueSegmentOperator(CubeOperator):
    """Queue one segment to be built again: a READY version from itself, one whose build has failed from its
    staged parts, of which receivers upload again what is lost.

    Result: {"cube", "segments"}, the arguments of a `SegmentsReadySensor`.
    """

    template_fields: Sequence[str] = ("cube", "segment")

    def __init__(self, *, segment: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.segment = segment

    def call(self, coordinator: CoordinatorClient) -> dict[str, Any]:
        queued = coordinator.requeue(self.cube, self.segment)
        self.log.info("%s of %s is %s and waits for a build", self.segment, self.cube, queued.state)
        return {"cube": self.cube, "segments": [self.segment]}


class SwitchCubeOperator(CubeOperator):
    """Turn a switch of the cube: `to` is enable, disable, pause or resume. While it is paused or disabled its
    receivers read nothing, and what they hold is answered.

    Who has started the run is recorded with the cube, with `reason`. A repetition changes nothing. Returns
    the state: on, paused or off.
    """

    template_fields: Sequence[str] = ("cube", "to", "reason")

    def __init__(self, *, to: str, reason: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.to = to
        self.reason = reason
        self.by = ""

    def execute(self, context: Context) -> Any:
        self.by = started_by(context)
        return super().execute(context)

    def call(self, coordinator: CoordinatorClient) -> str:
        turn = {
            "enable": partial(coordinator.enable_cube, self.cube, None),
            "disable": partial(coordinator.disable_cube, self.cube),
            "pause": partial(coordinator.pause_cube, self.cube),
            "resume": partial(coordinator.resume_cube, self.cube),
        }.get(self.to)
        if turn is None:
            raise AirflowFailException(
                f"no such switch: {self.to!r}; expected enable, disable, pause or resume"
            )
        status = turn(self.by[:BY_MAX], self.reason[:REASON_MAX])
        state = "off" if not status.enabled else "paused" if status.paused else "on"
        self.log.info("%s, asked by %s: %s is %s", self.to, self.by, self.cube, state)
        return state


def started_by(context: Context) -> str:
    """Return the name of the user who has started the run; `airflow` where none has."""
    return str(getattr(context.get("dag_run"), "triggering_user_name", None) or "airflow")


class RequeueOperator(CubeOperator):
    """Queue the READY segments that overlap `[start, end)` to be rebuilt. Others are left as they are.

    Result: {"cube", "segments"}, the arguments of a `SegmentsReadySensor`: those that were queued, and those
    that an earlier try has queued, which wait to be built.
    """

    template_fields: Sequence[str] = ("cube", "start", "end")

    def __init__(self, *, start: str | int, end: str | int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start = start
        self.end = end

    def call(self, coordinator: CoordinatorClient) -> dict[str, Any]:
        found = requeue_window(coordinator, self.cube, instant_ms(self.start), instant_ms(self.end))
        for segment, error in found.left.items():
            self.log.info("%s is left as it is: %s", segment, error)
        self.log.info(
            "%s: queued %d of %d READY segments, %d were queued already",
            *(self.cube, len(found.queued), len(found.queued) + len(found.left), len(found.waiting)),
        )
        return {"cube": self.cube, "segments": sorted([*found.queued, *found.waiting])}
