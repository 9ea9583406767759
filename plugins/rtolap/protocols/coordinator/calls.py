"""Every request of the coordinator's protocol, once: method, path, body, and type of the response.

Both clients of `client` are made of these. Calls may be repeated: a second `create` of an equal definition,
`promote` of a promoted build, a reassignment that stands, … change nothing, and a second `start_build` only
takes the right of promotion from the first. A `drop` carries an id, by which its repetition is distinguished
from another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from pydantic import TypeAdapter

from rtolap.protocols.coordinator import messages as wire
from rtolap.protocols.rest.request import Body, Call, delete, get, path, post
from rtolap.protocols.watermark import messages as watermarks

HEARTBEAT_TIMEOUT_S = 2.0
ERROR_CHARACTERS_MAX = 4000  # of a failed build

T = TypeVar("T")

_NAMES = TypeAdapter(list[str])
_DEFINITION = TypeAdapter(wire.Definition)
_NOTHING: TypeAdapter[None] = TypeAdapter(None)
_CUBE, _CUBES = TypeAdapter(wire.CubeStatus), TypeAdapter(list[wire.CubeStatus])
_SEGMENT_COLUMNS = TypeAdapter(wire.SegmentColumns)
_SEGMENT_CUBOIDS = TypeAdapter(wire.SegmentCuboids)
_SEGMENT, _SEGMENTS = TypeAdapter(wire.SegmentInfo), TypeAdapter(list[wire.SegmentInfo])
_RECEIVERS = TypeAdapter(list[wire.ReceiverInfo])
_METRICS_TARGETS = TypeAdapter(list[wire.MetricsTargets])
_REPLICA_SET, _REPLICA_SETS = TypeAdapter(wire.ReplicaSetInfo), TypeAdapter(list[wire.ReplicaSetInfo])
_DRAIN = TypeAdapter(wire.Drain)
_CLUSTER, _HEALTH = TypeAdapter(wire.ClusterInfo), TypeAdapter(wire.Health)
_HEARTBEAT, _WATERMARK = TypeAdapter(wire.HeartbeatResponse), TypeAdapter(wire.WatermarkInfo)
_PURGED, _CLEANED = TypeAdapter(wire.PurgeResult), TypeAdapter(wire.CleanupResult)
_QUEUE, _SPEC = TypeAdapter(wire.Queue), TypeAdapter(wire.BuildSpecMessage)
_MERGE_PLANS, _MERGE = TypeAdapter(wire.MergePlans), TypeAdapter(wire.CommittedMerge)
_BATCH_PLAN, _BATCH = TypeAdapter(wire.BatchPlanMessage), TypeAdapter(wire.BatchProgress)
_ALTERATION = TypeAdapter(wire.Alteration)
_REASSIGNMENT = TypeAdapter(wire.Reassignment)
_APPLICATION = TypeAdapter(watermarks.ApplicationInfo)
_WATERMARKS, _HOSTS = TypeAdapter(watermarks.ApplicationWatermarks), TypeAdapter(watermarks.HostsInfo)
_CHANGED, _EXPLANATION = TypeAdapter(watermarks.HostsChanged), TypeAdapter(watermarks.Explanation)
_COMPLETENESS = TypeAdapter(wire.CompletenessInfo)
_UNITS, _HISTORY = TypeAdapter(watermarks.UnitsInfo), TypeAdapter(watermarks.ApplicationHistory)


# -- cluster --------------------------------------------------------------------------------------------


def health() -> Call[wire.Health]:
    """Request the health of this coordinator itself, whether it leads or not."""
    return Call("GET", "/health", _HEALTH, once=True)


def cluster(cube: str | None = None) -> Call[wire.ClusterInfo]:
    """Request the state of all, with that of all cubes or of one."""
    return Call("GET", path("cluster"), _CLUSTER, params=_of_cube(cube))


def receivers() -> Call[list[wire.ReceiverInfo]]:
    return get(_RECEIVERS, "receivers")


def metrics_targets() -> Call[list[wire.MetricsTargets]]:
    return get(_METRICS_TARGETS, "metrics-targets")


def replica_sets() -> Call[list[wire.ReplicaSetInfo]]:
    return get(_REPLICA_SETS, "replica-sets")


def put_replica_set(name: str, receivers: Sequence[str]) -> Call[wire.ReplicaSetInfo]:
    return Call("PUT", path("replica-sets", name), _REPLICA_SET, {"receivers": list(receivers)})


def drain_replica_set(name: str, request: wire.DrainRequest) -> Call[wire.Drain]:
    return post(_DRAIN, "replica-sets", name, "drain", body=request.model_dump(mode="json"))


def drain_progress(name: str) -> Call[wire.Drain]:
    return get(_DRAIN, "replica-sets", name, "drain")


def remove_replica_set(name: str) -> Call[None]:
    return delete(_NOTHING, "replica-sets", name)


def remove_receiver(receiver_id: str) -> Call[None]:
    return delete(_NOTHING, "receivers", receiver_id)


def heartbeat(request: wire.HeartbeatRequest) -> Call[wire.HeartbeatResponse]:
    """Send a heartbeat with a short time-out and without retries; the next one follows in a second."""
    return Call(
        "POST",
        path("receivers", request.receiver_id, "heartbeat"),
        _HEARTBEAT,
        request.model_dump(mode="json"),
        once=True,
        timeout_s=HEARTBEAT_TIMEOUT_S,
    )


# -- definitions ----------------------------------------------------------------------------------------


def tables() -> Call[list[str]]:
    return get(_NAMES, "tables")


def table(name: str) -> Call[wire.Definition]:
    return get(_DEFINITION, "tables", name)


def create_table(definition: wire.Definition) -> Call[None]:
    return post(_NOTHING, "tables", body=definition)


def drop_table(name: str) -> Call[None]:
    return delete(_NOTHING, "tables", name)


def lookups() -> Call[list[str]]:
    return get(_NAMES, "lookups")


def lookup(name: str) -> Call[wire.Definition]:
    return get(_DEFINITION, "lookups", name)


def create_lookup(definition: wire.Definition) -> Call[None]:
    return post(_NOTHING, "lookups", body=definition)


def drop_lookup(name: str) -> Call[None]:
    return delete(_NOTHING, "lookups", name)


# -- cubes ----------------------------------------------------------------------------------------------


def cubes() -> Call[list[wire.CubeStatus]]:
    return get(_CUBES, "cubes")


def cube(name: str) -> Call[wire.CubeStatus]:
    return get(_CUBE, "cubes", name)


def create_cube(definition: wire.Definition) -> Call[None]:
    return post(_NOTHING, "cubes", body=definition)


def drop_cube(name: str) -> Call[None]:
    return delete(_NOTHING, "cubes", name)


def _asked(by: str, reason: str) -> dict[str, object]:
    """Return who asks and why, or nothing where neither is given: older coordinators know neither."""
    return {name: text for name, text in (("by", by), ("reason", reason)) if text}


def enable_cube(
    name: str, assigner: str | None = None, by: str = "", reason: str = ""
) -> Call[wire.CubeStatus]:
    """Start consuming. `by`, `reason`: who asks, and why, which the cube's status says."""
    return post(_CUBE, "cubes", name, "enable", body={"assigner": assigner, **_asked(by, reason)})


def disable_cube(name: str, by: str = "", reason: str = "") -> Call[wire.CubeStatus]:
    return post(_CUBE, "cubes", name, "disable", body=_asked(by, reason))


def pause_cube(name: str, by: str = "", reason: str = "") -> Call[wire.CubeStatus]:
    return post(_CUBE, "cubes", name, "pause", body=_asked(by, reason))


def resume_cube(name: str, by: str = "", reason: str = "") -> Call[wire.CubeStatus]:
    return post(_CUBE, "cubes", name, "resume", body=_asked(by, reason))


def reassign(cube: str, request: wire.ReassignRequest) -> Call[wire.Reassignment]:
    body = request.model_dump(mode="json", exclude_none=True)  # older ones refuse a `warm_up` of null
    return post(_REASSIGNMENT, "cubes", cube, "reassign", body=body)


def alter_cube(cube: str, request: wire.AlterRequest) -> Call[wire.Alteration]:
    return post(_ALTERATION, "cubes", cube, "alter", body=request.model_dump(mode="json"))


def cancel_move(cube: str) -> Call[wire.CubeStatus]:
    return post(_CUBE, "cubes", cube, "move", "cancel")


def undo_move(cube: str) -> Call[wire.Reassignment]:
    return post(_REASSIGNMENT, "cubes", cube, "move", "undo")


def watermark(cube: str) -> Call[wire.WatermarkInfo]:
    return get(_WATERMARK, "cubes", cube, "watermark")


def purge(cube: str, before_ms: int) -> Call[wire.PurgeResult]:
    return post(_PURGED, "cubes", cube, "purge", body={"before_ms": before_ms})


def retention(cube: str) -> Call[wire.PurgeResult]:
    """Purge what the cube's own retention policy says is too old, by its low watermark."""
    return post(_PURGED, "cubes", cube, "retention")


def cleanup(cube: str) -> Call[wire.CleanupResult]:
    return post(_CLEANED, "cubes", cube, "cleanup")


# -- segments and builds --------------------------------------------------------------------------------


def segments(
    cube: str, *, state: str | None = None, start_ms: int | None = None, end_ms: int | None = None
) -> Call[list[wire.SegmentInfo]]:
    """Request segments by start: those in `state` that overlap `[start_ms, end_ms)`."""
    given = {"state": state, "start_ms": start_ms, "end_ms": end_ms}
    params = {name: str(value) for name, value in given.items() if value is not None}
    return Call("GET", path("cubes", cube, "segments"), _SEGMENTS, params=params)


def segment_columns(cube: str) -> Call[wire.SegmentColumns]:
    return get(_SEGMENT_COLUMNS, "cubes", cube, "segment-columns")


def segment(cube: str, segment: str) -> Call[wire.SegmentInfo]:
    return get(_SEGMENT, "cubes", cube, "segments", segment)


def segment_cuboids(cube: str, segment: str) -> Call[wire.SegmentCuboids]:
    return get(_SEGMENT_CUBOIDS, "cubes", cube, "segments", segment, "cuboids")


def queue(cube: str | None = None) -> Call[wire.Queue]:
    """Request the segments of all cubes, or of one, that wait for a build."""
    return Call("GET", path("queue"), _QUEUE, params=_of_cube(cube))


def _of_cube(cube: str | None) -> dict[str, str]:
    return {} if cube is None else {"cube": cube}


def start_build(cube: str, segment: str) -> Call[wire.BuildSpecMessage]:
    return post(_SPEC, "cubes", cube, "segments", segment, "builds")


def promote(cube: str, segment: str, build_id: str) -> Call[wire.SegmentInfo]:
    """Promote a build. Raises Refused where an earlier segment has to be promoted first: retry later."""
    return post(_SEGMENT, "cubes", cube, "segments", segment, "builds", build_id, "promote")


def fail_build(cube: str, segment: str, build_id: str, error: str) -> Call[wire.SegmentInfo]:
    body: Body = {"error": error[:ERROR_CHARACTERS_MAX]}
    return post(_SEGMENT, "cubes", cube, "segments", segment, "builds", build_id, "fail", body=body)


def requeue(cube: str, segment: str) -> Call[wire.SegmentInfo]:
    return post(_SEGMENT, "cubes", cube, "segments", segment, "requeue")


def plan_batch(
    cube: str, batch: str, start_ms: int, end_ms: int, source: wire.Definition
) -> Call[wire.BatchPlanMessage]:
    """Plan the segments of a range to be replaced by what another source says. `source`: `model.batch`."""
    body: Body = {"batch": batch, "start_ms": start_ms, "end_ms": end_ms, "source": source}
    return post(_BATCH_PLAN, "cubes", cube, "batches", body=body)


def apply_batch(cube: str, batch: str) -> Call[wire.BatchProgress]:
    """Hand over segments of a staged batch: again, as long as some are `left`. Raises NotYet before that."""
    return post(_BATCH, "cubes", cube, "batches", batch, "apply")


def batch_progress(cube: str, batch: str) -> Call[wire.BatchProgress]:
    return get(_BATCH, "cubes", cube, "batches", batch)


def plan_merges(cube: str, *, to: Sequence[str] = (), dry_run: bool = False) -> Call[wire.MergePlans]:
    """Plan merges of small segments. `to`: "day", "month"; none: what the cube declares."""
    return post(_MERGE_PLANS, "cubes", cube, "merges", body={"to": list(to), "dry_run": dry_run})


def commit_merge(cube: str, merge: str) -> Call[wire.CommittedMerge]:
    """Have the members of a written set name it. Raises NotYet before it is written, Refused where a member
    has changed since the plan."""
    return post(_MERGE, "cubes", cube, "merges", merge, "commit")


def accept_loss(cube: str, segment: str, by: str, reason: str) -> Call[wire.SegmentInfo]:
    """Let history go on without the events that neither receivers nor Kafka hold any more."""
    body: Body = {"by": by, "reason": reason}
    return post(_SEGMENT, "cubes", cube, "segments", segment, "accept-loss", body=body)


def close_segment(cube: str, segment: str) -> Call[wire.SegmentInfo]:
    """Request that the leaders close this segment and all before it, without waiting for the watermark."""
    return post(_SEGMENT, "cubes", cube, "segments", segment, "close")


# -- applications ---------------------------------------------------------------------------------------


def applications() -> Call[list[str]]:
    return get(_NAMES, "applications")


def application(name: str) -> Call[watermarks.ApplicationInfo]:
    return _of(name, get(_APPLICATION, "applications", name))


def create_application(definition: wire.Definition) -> Call[None]:
    return post(_NOTHING, "applications", body=definition)


def change_application(name: str, definition: wire.Definition) -> Call[None]:
    """Change the definition of a running application. Raises Refused if that is not safe."""
    return Call("PUT", path("applications", name), _NOTHING, body=definition, subject=name)


def drop_application(name: str) -> Call[None]:
    return _of(name, delete(_NOTHING, "applications", name))


def application_watermarks(name: str) -> Call[watermarks.ApplicationWatermarks]:
    return _of(name, get(_WATERMARKS, "applications", name, "watermarks"))


def application_hosts(name: str, level: str | None = None, limit: int = 20) -> Call[watermarks.HostsInfo]:
    """Request the hosts, the furthest behind first. `level` may be left out if there is one source."""
    params = {"limit": str(limit), **({} if level is None else {"level": level})}
    return Call("GET", path("applications", name, "hosts"), _HOSTS, params=params, subject=name)


def application_units(name: str, level: str | None = None, limit: int = 100) -> Call[watermarks.UnitsInfo]:
    """Request the units, the oldest work first."""
    params = {"limit": str(limit), **({} if level is None else {"level": level})}
    return Call("GET", path("applications", name, "units"), _UNITS, params=params, subject=name)


def application_history(
    name: str,
    *,
    since_ms: int | None = None,
    until_ms: int | None = None,
    level: str | None = None,
    samples: int | None = None,
) -> Call[watermarks.ApplicationHistory]:
    """Request at most that many `samples`, spread over the time from `since_ms` to `until_ms`."""
    given = {"since_ms": since_ms, "until_ms": until_ms, "level": level, "samples": samples}
    params = {key: str(value) for key, value in given.items() if value is not None}
    return Call("GET", path("applications", name, "history"), _HISTORY, params=params, subject=name)


def change_hosts(
    name: str, level: str, action: str, hosts: Sequence[str], end_ms: int | None = None
) -> Call[watermarks.HostsChanged]:
    """Change the hosts of a source. `action` is register, renew, drain or remove; see
    `watermark.HostsChange`."""
    body: Body = {"level": level, "action": action, "hosts": list(hosts), "end_ms": end_ms}
    return _of(name, post(_CHANGED, "applications", name, "hosts", body=body))


def explain_window(name: str, window_end_ms: int) -> Call[watermarks.Explanation]:
    params = {"window_end_ms": str(window_end_ms)}
    return Call("GET", path("applications", name, "explain"), _EXPLANATION, params=params, subject=name)


def application_completeness(name: str, cube: str, window_end_ms: int) -> Call[wire.CompletenessInfo]:
    """Request what is known now of a window of a cube that closes by the application."""
    params = {"cube": cube, "window_end_ms": str(window_end_ms)}
    return Call("GET", path("applications", name, "completeness"), _COMPLETENESS, params=params, subject=name)


def approve_windows(name: str, until_ms: int, by: str, reason: str) -> Call[watermarks.ApplicationInfo]:
    """Let the windows that end at or below `until_ms` close as they are. Recorded."""
    body: Body = {"until_ms": until_ms, "by": by, "reason": reason}
    return _of(name, post(_APPLICATION, "applications", name, "approvals", body=body))


def _of(application: str, call: Call[T]) -> Call[T]:
    """Return a call that the application's owner takes."""
    return replace(call, subject=application)
