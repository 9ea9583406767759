"""The coordinator's routes behind the token and the leader's guard. Messages: `protocols.coordinator`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query

from rtolap.base.errors import DefinitionError
from rtolap.coordinator.answers import segment_info
from rtolap.coordinator.assembly import Coordinator
from rtolap.protocols.coordinator import messages as wire
from rtolap.protocols.rest.request_ids import HEADER, checked_request_id


def request_id(value: Annotated[str | None, Header(alias=HEADER)] = None) -> str | None:
    return checked_request_id(value)


RequestId = Annotated[str | None, Depends(request_id)]


def add_routes(api: APIRouter, coordinator: Coordinator) -> None:
    _cluster_routes(api, coordinator)
    _definition_routes(api, coordinator)
    _cube_routes(api, coordinator)
    _segment_routes(api, coordinator)


def _cluster_routes(api: APIRouter, coordinator: Coordinator) -> None:
    @api.get("/cluster")
    def cluster(cube: str | None = None) -> wire.ClusterInfo:
        return coordinator.cluster(cube)

    @api.get("/receivers")
    def receivers() -> list[wire.ReceiverInfo]:
        return coordinator.members.receivers()

    @api.get("/metrics-targets")
    def metrics_targets() -> list[wire.MetricsTargets]:
        return coordinator.members.metrics_targets()

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

    @api.post("/replica-sets/{name}/drain")
    def drain_replica_set(name: str, body: wire.DrainRequest) -> wire.Drain:
        return coordinator.drains.drain(name, body)

    @api.get("/replica-sets/{name}/drain")
    def drain_progress(name: str) -> wire.Drain:
        return coordinator.drains.progress(name)

    @api.delete("/replica-sets/{name}")
    def remove_replica_set(name: str, request_id: RequestId) -> None:
        coordinator.requests.once(
            request_id, ("replica set", name), lambda note: coordinator.removals.remove_set(name, note)
        )

    @api.delete("/receivers/{receiver_id}")
    def remove_receiver(receiver_id: str, request_id: RequestId) -> None:
        coordinator.requests.once(
            request_id,
            ("receiver", receiver_id),
            lambda note: coordinator.removals.remove_receiver(receiver_id, note),
        )


def _definition_routes(api: APIRouter, coordinator: Coordinator) -> None:
    @api.get("/tables")
    def tables() -> list[str]:
        return list(coordinator.metadata.tables())

    @api.post("/tables")
    def create_table(body: wire.Definition) -> None:
        coordinator.cubes.create_table(body)

    @api.get("/tables/{name}")
    def table(name: str) -> wire.Definition:
        return coordinator.cubes.table_definition(name)

    @api.delete("/tables/{name}")
    def drop_table(name: str, request_id: RequestId) -> None:
        coordinator.requests.once(
            request_id, ("table", name), lambda note: coordinator.metadata.drop_table(name, note)
        )

    @api.get("/lookups")
    def lookups() -> list[str]:
        return list(coordinator.metadata.lookups())

    @api.post("/lookups")
    def create_lookup(body: wire.Definition) -> None:
        coordinator.cubes.create_lookup(body)

    @api.get("/lookups/{name}")
    def lookup(name: str) -> wire.Definition:
        return coordinator.cubes.lookup_definition(name)

    @api.delete("/lookups/{name}")
    def drop_lookup(name: str, request_id: RequestId) -> None:
        coordinator.requests.once(
            request_id, ("lookup", name), lambda note: coordinator.metadata.drop_lookup(name, note)
        )


def _cube_routes(api: APIRouter, coordinator: Coordinator) -> None:
    @api.get("/cubes")
    def list_cubes() -> list[wire.CubeStatus]:
        return coordinator.cubes.statuses()

    @api.post("/cubes")
    def create_cube(body: wire.Definition) -> None:
        coordinator.cubes.create_cube(body)

    @api.get("/cubes/{cube}")
    def status(cube: str) -> wire.CubeStatus:
        return coordinator.cubes.status(cube)

    @api.delete("/cubes/{cube}")
    def drop_cube(cube: str, request_id: RequestId) -> None:
        coordinator.requests.once(
            request_id, ("cube", cube), lambda note: coordinator.cubes.drop_cube(cube, note)
        )

    @api.post("/cubes/{cube}/enable")
    def enable(cube: str, body: wire.EnableRequest | None = None) -> wire.CubeStatus:
        return coordinator.cubes.enable(cube, body or wire.EnableRequest())

    @api.post("/cubes/{cube}/disable")
    def disable(cube: str, body: wire.SwitchRequest | None = None) -> wire.CubeStatus:
        return coordinator.cubes.switch(cube, "disable", body or wire.SwitchRequest())

    @api.post("/cubes/{cube}/pause")
    def pause(cube: str, body: wire.SwitchRequest | None = None) -> wire.CubeStatus:
        return coordinator.cubes.switch(cube, "pause", body or wire.SwitchRequest())

    @api.post("/cubes/{cube}/resume")
    def resume(cube: str, body: wire.SwitchRequest | None = None) -> wire.CubeStatus:
        return coordinator.cubes.switch(cube, "resume", body or wire.SwitchRequest())

    @api.post("/cubes/{cube}/alter")
    def alter(cube: str, body: wire.AlterRequest) -> wire.Alteration:
        return coordinator.alterations.alter(cube, body)

    @api.post("/cubes/{cube}/reassign")
    def reassign(cube: str, body: wire.ReassignRequest) -> wire.Reassignment:
        return coordinator.reassignments.reassign(cube, body)

    @api.post("/cubes/{cube}/move/cancel")
    def cancel_move(cube: str) -> wire.CubeStatus:
        coordinator.moves.cancel(cube)
        return coordinator.cubes.status(cube)

    @api.post("/cubes/{cube}/move/undo")
    def undo_move(cube: str) -> wire.Reassignment:
        return coordinator.reassignments.undo(cube)

    @api.get("/cubes/{cube}/watermark")
    def watermark(cube: str) -> wire.WatermarkInfo:
        return coordinator.cubes.watermark(cube)

    @api.post("/cubes/{cube}/purge")
    def purge_segments(cube: str, body: wire.PurgeRequest) -> wire.PurgeResult:
        return coordinator.purge.purge_revisions(cube, body.before_ms)

    @api.post("/cubes/{cube}/retention")
    def retention(cube: str) -> wire.PurgeResult:
        return coordinator.retention(cube)

    @api.post("/cubes/{cube}/cleanup")
    def cleanup(cube: str) -> wire.CleanupResult:
        return coordinator.purge.cleanup(coordinator.metadata.standing_revision(cube))


def _segment_routes(api: APIRouter, coordinator: Coordinator) -> None:
    path = "/cubes/{cube}/segments/{segment}"

    @api.get("/queue")
    def queue(cube: str | None = None) -> wire.Queue:
        return coordinator.builds.queue(cube)

    @api.get("/cubes/{cube}/segments")
    def segments(
        cube: str,
        state: Annotated[str | None, Query()] = None,
        start_ms: Annotated[int | None, Query()] = None,
        end_ms: Annotated[int | None, Query()] = None,
    ) -> list[wire.SegmentInfo]:
        return coordinator.cubes.segments(cube, state=state, start_ms=start_ms, end_ms=end_ms)

    @api.get("/cubes/{cube}/segment-columns")
    def segment_columns(cube: str) -> wire.SegmentColumns:
        return coordinator.cubes.segment_columns(cube)

    @api.get(path)
    def segment(cube: str, segment: str) -> wire.SegmentInfo:
        return coordinator.cubes.segment(cube, segment)

    @api.get(path + "/cuboids")
    def cuboids(cube: str, segment: str) -> wire.SegmentCuboids:
        return coordinator.builds.cuboids(cube, segment)

    @api.post(path + "/builds")
    def start_build(cube: str, segment: str) -> wire.BuildSpecMessage:
        return coordinator.builds.start(cube, segment)

    @api.post(path + "/builds/{build_id}/promote")
    def promote(cube: str, segment: str, build_id: str) -> wire.SegmentInfo:
        return segment_info(coordinator.builds.promote(cube, segment, build_id))

    @api.post(path + "/builds/{build_id}/fail")
    def fail(cube: str, segment: str, build_id: str, body: wire.FailRequest) -> wire.SegmentInfo:
        return segment_info(coordinator.builds.fail(cube, segment, build_id, body.error))

    @api.post(path + "/requeue")
    def requeue(cube: str, segment: str) -> wire.SegmentInfo:
        coordinator.builds.requeue(cube, segment)
        return coordinator.cubes.segment(cube, segment)

    @api.post(path + "/accept-loss")
    def accept_loss(cube: str, segment: str, body: wire.AcceptLossRequest) -> wire.SegmentInfo:
        return coordinator.cubes.accept_loss(cube, segment, body)

    @api.post("/cubes/{cube}/batches")
    def plan_batch(cube: str, body: wire.BatchRequest) -> wire.BatchPlanMessage:
        return coordinator.batches.plan(cube, body)

    @api.post("/cubes/{cube}/batches/{batch}/apply")
    def apply_batch(cube: str, batch: str) -> wire.BatchProgress:
        return coordinator.batches.apply(cube, batch)

    @api.get("/cubes/{cube}/batches/{batch}")
    def batch_progress(cube: str, batch: str) -> wire.BatchProgress:
        return coordinator.batches.progress(cube, batch)

    @api.post("/cubes/{cube}/merges")
    def plan_merges(cube: str, body: wire.MergeRequest) -> wire.MergePlans:
        return coordinator.merges.plan(cube, body)

    @api.post("/cubes/{cube}/merges/{merge}/commit")
    def commit_merge(cube: str, merge: str) -> wire.CommittedMerge:
        return coordinator.merges.commit(cube, merge)

    @api.post(path + "/close")
    def close(cube: str, segment: str) -> wire.SegmentInfo:
        return coordinator.cubes.close_before(cube, segment)
