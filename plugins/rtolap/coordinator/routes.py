"""Every route of the coordinator behind the token and the leader's guard. The messages: `wire.coordinator`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from rtolap.base.errors import DefinitionError
from rtolap.coordinator.answers import segment_info
from rtolap.coordinator.service import Coordinator
from rtolap.wire import coordinator as wire


def add_routes(api: APIRouter, coordinator: Coordinator) -> None:
    _cluster_routes(api, coordinator)
    _definition_routes(api, coordinator)
    _cube_routes(api, coordinator)
    _segment_routes(api, coordinator)


def _cluster_routes(api: APIRouter, coordinator: Coordinator) -> None:
    @api.get("/cluster")
    def cluster() -> wire.ClusterInfo:
        return coordinator.cluster()

    @api.get("/receivers")
    def receivers() -> list[wire.ReceiverInfo]:
        return coordinator.members.receivers()

    @api.post("/receivers/{receiver_id}/heartbeat")
    def heartbeat(receiver_id: str, body: wire.HeartbeatRequest) -> wire.HeartbeatResponse:
        if body.receiver_id != receiver_id:
            raise DefinitionError(
                "a heartbeat of another receiver", expected=receiver_id, found=body.receiver_id
            )
        return coordinator.heartbeat(body)

    @api.get("/replica-sets")
    def replica_sets() -> list[wire.ReplicaSetInfo]:
        return coordinator.members.replica_sets()

    @api.get("/replica-sets/{name}")
    def replica_set(name: str) -> wire.ReplicaSetInfo:
        return coordinator.members.replica_set(name)

    @api.put("/replica-sets/{name}")
    def put_replica_set(name: str, body: wire.ReplicaSetRequest) -> wire.ReplicaSetInfo:
        return coordinator.members.put_replica_set(name, body.receivers)


def _definition_routes(api: APIRouter, coordinator: Coordinator) -> None:
    metadata, cubes = coordinator.metadata, coordinator.cubes

    @api.get("/tables")
    def tables() -> list[str]:
        return list(metadata.tables())

    @api.post("/tables")
    def create_table(body: wire.Definition) -> None:
        cubes.create_table(body)

    @api.get("/tables/{name}")
    def table(name: str) -> wire.Definition:
        return cubes.table_definition(name)

    @api.delete("/tables/{name}")
    def drop_table(name: str) -> None:
        metadata.drop_table(name)

    @api.get("/lookups")
    def lookups() -> list[str]:
        return list(metadata.lookups())

    @api.post("/lookups")
    def create_lookup(body: wire.Definition) -> None:
        cubes.create_lookup(body)

    @api.get("/lookups/{name}")
    def lookup(name: str) -> wire.Definition:
        return cubes.lookup_definition(name)

    @api.delete("/lookups/{name}")
    def drop_lookup(name: str) -> None:
        metadata.drop_lookup(name)


def _cube_routes(api: APIRouter, coordinator: Coordinator) -> None:
    cubes, purge = coordinator.cubes, coordinator.purge

    @api.get("/cubes")
    def list_cubes() -> list[wire.CubeStatus]:
        return cubes.statuses()

    @api.post("/cubes")
    def create_cube(body: wire.Definition) -> None:
        cubes.create_cube(body)

    @api.get("/cubes/{cube}")
    def status(cube: str) -> wire.CubeStatus:
        return cubes.status(cube)

    @api.delete("/cubes/{cube}")
    def drop_cube(cube: str) -> None:
        cubes.drop_cube(cube)

    @api.post("/cubes/{cube}/enable")
    def enable(cube: str, body: wire.EnableRequest | None = None) -> wire.CubeStatus:
        return cubes.enable(cube, body.assigner if body else None)

    @api.post("/cubes/{cube}/disable")
    def disable(cube: str) -> wire.CubeStatus:
        return cubes.switch(cube, enabled=False)

    @api.post("/cubes/{cube}/pause")
    def pause(cube: str) -> wire.CubeStatus:
        return cubes.switch(cube, paused=True)

    @api.post("/cubes/{cube}/resume")
    def resume(cube: str) -> wire.CubeStatus:
        return cubes.switch(cube, paused=False)

    @api.post("/cubes/{cube}/reassign")
    def reassign(cube: str, body: wire.ReassignRequest) -> wire.Reassignment:
        return coordinator.reassignments.reassign(cube, body)

    @api.get("/cubes/{cube}/watermark")
    def watermark(cube: str) -> wire.WatermarkInfo:
        return cubes.watermark(cube)

    @api.post("/cubes/{cube}/purge")
    def purge_segments(cube: str, body: wire.PurgeRequest) -> wire.PurgeResult:
        return purge.purge(cube, body.before_ms)

    @api.post("/cubes/{cube}/retention")
    def retention(cube: str) -> wire.PurgeResult:
        return purge.retention(cube)

    @api.post("/cubes/{cube}/cleanup")
    def cleanup(cube: str) -> wire.CleanupResult:
        return purge.cleanup(cube)


def _segment_routes(api: APIRouter, coordinator: Coordinator) -> None:
    cubes, builds = coordinator.cubes, coordinator.builds
    one = "/cubes/{cube}/segments/{segment}"

    @api.get("/queue")
    def queue() -> wire.Queue:
        return builds.queue()

    @api.get("/cubes/{cube}/segments")
    def segments(
        cube: str,
        state: Annotated[str | None, Query()] = None,
        start_ms: Annotated[int | None, Query()] = None,
        end_ms: Annotated[int | None, Query()] = None,
    ) -> list[wire.SegmentInfo]:
        return cubes.segments(cube, state=state, start_ms=start_ms, end_ms=end_ms)

    @api.get(one)
    def segment(cube: str, segment: str) -> wire.SegmentInfo:
        return cubes.segment(cube, segment)

    @api.post(one + "/builds")
    def start_build(cube: str, segment: str) -> wire.BuildSpec:
        return builds.start(cube, segment)

    @api.post(one + "/builds/{build_id}/promote")
    def promote(cube: str, segment: str, build_id: str) -> wire.SegmentInfo:
        return segment_info(builds.promote(cube, segment, build_id))

    @api.post(one + "/builds/{build_id}/fail")
    def fail(cube: str, segment: str, build_id: str, body: wire.FailRequest) -> wire.SegmentInfo:
        return segment_info(builds.fail(cube, segment, build_id, body.error))

    @api.post(one + "/requeue")
    def requeue(cube: str, segment: str) -> wire.SegmentInfo:
        return segment_info(builds.requeue(cube, segment))

    @api.post(one + "/close")
    def close(cube: str, segment: str) -> wire.SegmentInfo:
        return cubes.close_before(cube, segment)
