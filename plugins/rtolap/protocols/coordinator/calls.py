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

from rtolap.protocols.coordinator import messages as wire
from rtolap.protocols.rest.request import Body, Call, delete, get, path, post
from rtolap.protocols.watermark import messages as watermarks

HEARTBEAT_TIMEOUT_S = 2.0
ERROR_CHARACTERS_MAX = 4000  # of a failed build

T = TypeVar("T")

_NOTHING = type(None)


# -- cluster --------------------------------------------------------------------------------------------


def health() -> Call[wire.Health]:
    """Request the health of this coordinator itself, whether it leads or not."""
    return Call("GET", "/health", wire.Health, once=True)


def cluster(cube: str | None = None) -> Call[wire.ClusterInfo]:
    """Request the state of all, with that of all cubes or of one."""
    return get(wire.ClusterInfo, "cluster", params={"cube": cube})


def receivers() -> Call[list[wire.ReceiverInfo]]:
    return get(list[wire.ReceiverInfo], "receivers")


def metrics_targets() -> Call[list[wire.MetricsTargets]]:
    return get(list[wire.MetricsTargets], "metrics-targets")


def replica_sets() -> Call[list[wire.ReplicaSetInfo]]:
    return get(list[wire.ReplicaSetInfo], "replica-sets")


def put_replica_set(name: str, receivers: Sequence[str]) -> Call[wire.ReplicaSetInfo]:
    return Call("PUT", path("replica-sets", name), wire.ReplicaSetInfo, {"receivers": list(receivers)})


def drain_replica_set(name: str, request: wire.DrainRequest) -> Call[wire.Drain]:
    return post(wire.Drain, "replica-sets", name, "drain", body=request.model_dump(mode="json"))


def drain_progress(name: str) -> Call[wire.Drain]:
    return get(wire.Drain, "replica-sets", name, "drain")


def remove_replica_set(name: str) -> Call[None]:
    return delete(_NOTHING, "replica-sets", name)


def remove_receiver(receiver_id: str) -> Call[None]:
    return delete(_NOTHING, "receivers", receiver_id)


def heartbeat(request: wire.HeartbeatRequest) -> Call[wire.HeartbeatResponse]:
    """Send a heartbeat with a short time-out and without retries; the next one follows in a second."""
    return Call(
        "POST",
        path("receivers", request.receiver_id, "heartbeat"),
        wire.HeartbeatResponse,
        request.model_dump(mode="json"),
        once=True,
        timeout_s=HEARTBEAT_TIMEOUT_S,
    )


# -- definitions ----------------------------------------------------------------------------------------


def tables() -> Call[list[str]]:
    return get(list[str], "tables")


def table(name: str) -> Call[wire.Definition]:
    return get(wire.Definition, "tables", name)


def create_table(definition: wire.Definition) -> Call[None]:
    return post(_NOTHING, "tables", body=definition)


def drop_table(name: str) -> Call[None]:
    return delete(_NOTHING, "tables", name)


def lookups() -> Call[list[str]]:
    return get(list[str], "lookups")


def lookup(name: str) -> Call[wire.Definition]:
    return get(wire.Definition, "lookups", name)


def create_lookup(definition: wire.Definition) -> Call[None]:
    return post(_NOTHING, "lookups", body=definition)


def drop_lookup(name: str) -> Call[None]:
    return delete(_NOTHING, "lookups", name)


# -- cubes ----------------------------------------------------------------------------------------------


def cubes() -> Call[list[wire.CubeStatus]]:
    return get(list[wire.CubeStatus], "cubes")


def cube(name: str) -> Call[wire.CubeStatus]:
    return get(wire.CubeStatus, "cubes", name)


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
    return post(wire.CubeStatus, "cubes", name, "enable", body={"assigner": assigner, **_asked(by, reason)})


def disable_cube(name: str, by: str = "", reason: str = "") -> Call[wire.CubeStatus]:
    return post(wire.CubeStatus, "cubes", name, "disable", body=_asked(by, reason))


def pause_cube(name: str, by: str = "", reason: str = "") -> Call[wire.CubeStatus]:
    return post(wire.CubeStatus, "cubes", name, "pause", body=_asked(by, reason))


def resume_cube(name: str, by: str = "", reason: str = "") -> Call[wire.CubeStatus]:
    return post(wire.CubeStatus, "cubes", name, "resume", body=_asked(by, reason))


def reassign(cube: str, request: wire.ReassignRequest) -> Call[wire.Reassignment]:
    body = request.model_dump(mode="json", exclude_none=True)  # older ones refuse a `warm_up` of null
    return post(wire.Reassignment, "cubes", cube, "reassign", body=body)


def alter_cube(cube: str, request: wire.AlterRequest) -> Call[wire.Alteration]:
    return post(wire.Alteration, "cubes", cube, "alter", body=request.model_dump(mode="json"))


def cancel_move(cube: str) -> Call[wire.CubeStatus]:
    return post(wire.CubeStatus, "cubes", cube, "move", "cancel")


def undo_move(cube: str) -> Call[wire.Reassignment]:
    return post(wire.Reassignment, "cubes", cube, "move", "undo")


def watermark(cube: str) -> Call[wire.WatermarkInfo]:
    return get(wire.WatermarkInfo, "cubes", cube, "watermark")


def purge(cube: str, before_ms: int) -> Call[wire.PurgeResult]:
    return post(wire.PurgeResult, "cubes", cube, "purge", body={"before_ms": before_ms})


def retention(cube: str) -> Call[wire.PurgeResult]:
    """Purge what the cube's own retention policy says is too old, by its low watermark."""
    return post(wire.PurgeResult, "cubes", cube, "retention")


def cleanup(cube: str) -> Call[wire.CleanupResult]:
    return post(wire.CleanupResult, "cubes", cube, "cleanup")


# -- segments and builds --------------------------------------------------------------------------------


def segments(
    cube: str, *, state: str | None = None, start_ms: int | None = None, end_ms: int | None = None
) -> Call[list[wire.SegmentInfo]]:
    """Request segments by start: those in `state` that overlap `[start_ms, end_ms)`."""
    params = {"state": state, "start_ms": start_ms, "end_ms": end_ms}
    return get(list[wire.SegmentInfo], "cubes", cube, "segments", params=params)


def segment_columns(cube: str) -> Call[wire.SegmentColumns]:
    return get(wire.SegmentColumns, "cubes", cube, "segment-columns")


def segment(cube: str, segment: str) -> Call[wire.SegmentInfo]:
    return get(wire.SegmentInfo, "cubes", cube, "segments", segment)


def segment_cuboids(cube: str, segment: str) -> Call[wire.SegmentCuboids]:
    return get(wire.SegmentCuboids, "cubes", cube, "segments", segment, "cuboids")


def queue(cube: str | None = None) -> Call[wire.Queue]:
    """Request the segments of all cubes, or of one, that wait for a build."""
    return get(wire.Queue, "queue", params={"cube": cube})


def start_build(cube: str, segment: str) -> Call[wire.BuildSpecMessage]:
    return post(wire.BuildSpecMessage, "cubes", cube, "segments", segment, "builds")


def promote(cube: str, segment: str, build_id: str) -> Call[wire.SegmentInfo]:
    """Promote a build. Raises Refused where an earlier segment has to be promoted first: retry later."""
    return post(wire.SegmentInfo, "cubes", cube, "segments", segment, "builds", build_id, "promote")


def fail_build(cube: str, segment: str, build_id: str, error: str) -> Call[wire.SegmentInfo]:
    body: Body = {"error": error[:ERROR_CHARACTERS_MAX]}
    return post(wire.SegmentInfo, "cubes", cube, "segments", segment, "builds", build_id, "fail", body=body)


def requeue(cube: str, segment: str) -> Call[wire.SegmentInfo]:
    return post(wire.SegmentInfo, "cubes", cube, "segments", segment, "requeue")


def plan_batch(
    cube: str, batch: str, start_ms: int, end_ms: int, source: wire.Definition
) -> Call[wire.BatchPlanMessage]:
    """Plan the segments of a range to be replaced by what another source says. `source`: `model.batch`."""
    body: Body = {"batch": batch, "start_ms": start_ms, "end_ms": end_ms, "source": source}
    return post(wire.BatchPlanMessage, "cubes", cube, "batches", body=body)


def apply_batch(cube: str, batch: str) -> Call[wire.BatchProgress]:
    """Hand over segments of a staged batch: again, as long as some are `left`. Raises NotYet before that."""
    return post(wire.BatchProgress, "cubes", cube, "batches", batch, "apply")


def batch_progress(cube: str, batch: str) -> Call[wire.BatchProgress]:
    return get(wire.BatchProgress, "cubes", cube, "batches", batch)


def plan_merges(cube: str, *, to: Sequence[str] = (), dry_run: bool = False) -> Call[wire.MergePlans]:
    """Plan merges of small segments. `to`: "day", "month"; none: what the cube declares."""
    return post(wire.MergePlans, "cubes", cube, "merges", body={"to": list(to), "dry_run": dry_run})


def commit_merge(cube: str, merge: str) -> Call[wire.CommittedMerge]:
    """Have the members of a written set name it. Raises NotYet before it is written, Refused where a member
    has changed since the plan."""
    return post(wire.CommittedMerge, "cubes", cube, "merges", merge, "commit")


def accept_loss(cube: str, segment: str, by: str, reason: str) -> Call[wire.SegmentInfo]:
    """Let history go on without the events that neither receivers nor Kafka hold any more."""
    body: Body = {"by": by, "reason": reason}
    return post(wire.SegmentInfo, "cubes", cube, "segments", segment, "accept-loss", body=body)


def close_segment(cube: str, segment: str) -> Call[wire.SegmentInfo]:
    """Request that the leaders close this segment and all before it, without waiting for the watermark."""
    return post(wire.SegmentInfo, "cubes", cube, "segments", segment, "close")


# -- applications ---------------------------------------------------------------------------------------


def applications() -> Call[list[str]]:
    return get(list[str], "applications")


def application(name: str) -> Call[watermarks.ApplicationInfo]:
    return _of(name, get(watermarks.ApplicationInfo, "applications", name))


def create_application(definition: wire.Definition) -> Call[None]:
    return post(_NOTHING, "applications", body=definition)


def change_application(name: str, definition: wire.Definition) -> Call[None]:
    """Change the definition of a running application. Raises Refused if that is not safe."""
    return Call("PUT", path("applications", name), _NOTHING, body=definition, subject=name)


def drop_application(name: str) -> Call[None]:
    return _of(name, delete(_NOTHING, "applications", name))


def application_watermarks(name: str) -> Call[watermarks.ApplicationWatermarks]:
    return _of(name, get(watermarks.ApplicationWatermarks, "applications", name, "watermarks"))


def application_hosts(name: str, level: str | None = None, limit: int = 20) -> Call[watermarks.HostsInfo]:
    """Request the hosts, the furthest behind first. `level` may be left out if there is one source."""
    params = {"limit": limit, "level": level}
    return _of(name, get(watermarks.HostsInfo, "applications", name, "hosts", params=params))


def application_units(name: str, level: str | None = None, limit: int = 100) -> Call[watermarks.UnitsInfo]:
    """Request the units, the oldest work first."""
    params = {"limit": limit, "level": level}
    return _of(name, get(watermarks.UnitsInfo, "applications", name, "units", params=params))


def application_history(
    name: str,
    *,
    since_ms: int | None = None,
    until_ms: int | None = None,
    level: str | None = None,
    samples: int | None = None,
) -> Call[watermarks.ApplicationHistory]:
    """Request at most that many `samples`, spread over the time from `since_ms` to `until_ms`."""
    params = {"since_ms": since_ms, "until_ms": until_ms, "level": level, "samples": samples}
    return _of(name, get(watermarks.ApplicationHistory, "applications", name, "history", params=params))


def change_hosts(
    name: str, level: str, action: str, hosts: Sequence[str], end_ms: int | None = None
) -> Call[watermarks.HostsChanged]:
    """Change the hosts of a source. `action` is register, renew, drain or remove; see
    `watermark.HostsChange`."""
    body: Body = {"level": level, "action": action, "hosts": list(hosts), "end_ms": end_ms}
    return _of(name, post(watermarks.HostsChanged, "applications", name, "hosts", body=body))


def explain_window(name: str, window_end_ms: int) -> Call[watermarks.Explanation]:
    params = {"window_end_ms": window_end_ms}
    return _of(name, get(watermarks.Explanation, "applications", name, "explain", params=params))


def application_completeness(name: str, cube: str, window_end_ms: int) -> Call[wire.CompletenessInfo]:
    """Request what is known now of a window of a cube that closes by the application."""
    params = {"cube": cube, "window_end_ms": window_end_ms}
    return _of(name, get(wire.CompletenessInfo, "applications", name, "completeness", params=params))


def approve_windows(name: str, until_ms: int, by: str, reason: str) -> Call[watermarks.ApplicationInfo]:
    """Let the windows that end at or below `until_ms` close as they are. Recorded."""
    body: Body = {"until_ms": until_ms, "by": by, "reason": reason}
    return _of(name, post(watermarks.ApplicationInfo, "applications", name, "approvals", body=body))


def _of(application: str, call: Call[T]) -> Call[T]:
    """Return a call that the application's owner takes."""
    return replace(call, subject=application)
