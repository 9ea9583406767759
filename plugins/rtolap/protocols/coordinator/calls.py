"""Every request of the coordinator's protocol, once: method, path, body, and type of the response.

Both clients (`client`, `async_client`) are made of these. Calls may be repeated: a second `create`
of an equal definition, `promote` of a promoted build, a reassignment that stands, … change nothing, and a
second `start_build` only takes the right of promotion from the first. A `drop` carries an id, by which its
repetition is distinguished from another one.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import TypeAdapter

from rtolap.protocols.coordinator import messages as wire
from rtolap.protocols.rest.request import Body, Call, delete, get, path, post

HEARTBEAT_TIMEOUT_S = 2.0
ERROR_CHARACTERS_MAX = 4000  # of a failed build

_NAMES = TypeAdapter(list[str])
_DEFINITION = TypeAdapter(wire.Definition)
_NOTHING: TypeAdapter[None] = TypeAdapter(None)
_CUBE, _CUBES = TypeAdapter(wire.CubeStatus), TypeAdapter(list[wire.CubeStatus])
_SEGMENT, _SEGMENTS = TypeAdapter(wire.SegmentInfo), TypeAdapter(list[wire.SegmentInfo])
_RECEIVERS = TypeAdapter(list[wire.ReceiverInfo])
_METRICS_TARGETS = TypeAdapter(list[wire.MetricsTargets])
_REPLICA_SET, _REPLICA_SETS = TypeAdapter(wire.ReplicaSetInfo), TypeAdapter(list[wire.ReplicaSetInfo])
_CLUSTER, _HEALTH = TypeAdapter(wire.ClusterInfo), TypeAdapter(wire.Health)
_HEARTBEAT, _WATERMARK = TypeAdapter(wire.HeartbeatResponse), TypeAdapter(wire.WatermarkInfo)
_PURGED, _CLEANED = TypeAdapter(wire.PurgeResult), TypeAdapter(wire.CleanupResult)
_QUEUE, _SPEC = TypeAdapter(wire.Queue), TypeAdapter(wire.BuildSpecMessage)
_REASSIGNMENT = TypeAdapter(wire.Reassignment)


# -- cluster --------------------------------------------------------------------------------------------


def health() -> Call[wire.Health]:
    """One coordinator's own word, leader or not."""
    return Call("GET", "/health", _HEALTH, once=True)


def cluster() -> Call[wire.ClusterInfo]:
    return get(_CLUSTER, "cluster")


def receivers() -> Call[list[wire.ReceiverInfo]]:
    return get(_RECEIVERS, "receivers")


def metrics_targets() -> Call[list[wire.MetricsTargets]]:
    return get(_METRICS_TARGETS, "metrics-targets")


def replica_sets() -> Call[list[wire.ReplicaSetInfo]]:
    return get(_REPLICA_SETS, "replica-sets")


def put_replica_set(name: str, receivers: Sequence[str]) -> Call[wire.ReplicaSetInfo]:
    return Call("PUT", path("replica-sets", name), _REPLICA_SET, {"receivers": list(receivers)})


def heartbeat(request: wire.HeartbeatRequest) -> Call[wire.HeartbeatResponse]:
    """One attempt, short: the next heartbeat comes in a second anyway."""
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


def enable_cube(name: str, assigner: str | None = None) -> Call[wire.CubeStatus]:
    return post(_CUBE, "cubes", name, "enable", body={"assigner": assigner})


def disable_cube(name: str) -> Call[wire.CubeStatus]:
    return post(_CUBE, "cubes", name, "disable")


def pause_cube(name: str) -> Call[wire.CubeStatus]:
    return post(_CUBE, "cubes", name, "pause")


def resume_cube(name: str) -> Call[wire.CubeStatus]:
    return post(_CUBE, "cubes", name, "resume")


def reassign(cube: str, request: wire.ReassignRequest) -> Call[wire.Reassignment]:
    return post(_REASSIGNMENT, "cubes", cube, "reassign", body=request.model_dump(mode="json"))


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
    """Ordered by start; those in `state` that overlap `[start_ms, end_ms)`."""
    asked = {"state": state, "start_ms": start_ms, "end_ms": end_ms}
    params = {name: str(value) for name, value in asked.items() if value is not None}
    return Call("GET", path("cubes", cube, "segments"), _SEGMENTS, params=params)


def segment(cube: str, segment: str) -> Call[wire.SegmentInfo]:
    return get(_SEGMENT, "cubes", cube, "segments", segment)


def queue() -> Call[wire.Queue]:
    return get(_QUEUE, "queue")


def start_build(cube: str, segment: str) -> Call[wire.BuildSpecMessage]:
    return post(_SPEC, "cubes", cube, "segments", segment, "builds")


def promote(cube: str, segment: str, build_id: str) -> Call[wire.SegmentInfo]:
    """Raises Refused where an earlier segment has to be promoted first: retry later."""
    return post(_SEGMENT, "cubes", cube, "segments", segment, "builds", build_id, "promote")


def fail_build(cube: str, segment: str, build_id: str, error: str) -> Call[wire.SegmentInfo]:
    body: Body = {"error": error[:ERROR_CHARACTERS_MAX]}
    return post(_SEGMENT, "cubes", cube, "segments", segment, "builds", build_id, "fail", body=body)


def requeue(cube: str, segment: str) -> Call[wire.SegmentInfo]:
    return post(_SEGMENT, "cubes", cube, "segments", segment, "requeue")


def accept_loss(cube: str, segment: str, by: str, reason: str) -> Call[wire.SegmentInfo]:
    """Let history go on without the events that neither receivers nor Kafka hold any more."""
    body: Body = {"by": by, "reason": reason}
    return post(_SEGMENT, "cubes", cube, "segments", segment, "accept-loss", body=body)


def close_segment(cube: str, segment: str) -> Call[wire.SegmentInfo]:
    """Request that the leaders close this segment and all before it, without waiting for the watermark."""
    return post(_SEGMENT, "cubes", cube, "segments", segment, "close")
