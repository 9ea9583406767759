"""Plans, requests and the lease of one Kafka cluster in the metadata store.

Every write of the mover requires, in the same commit, that the mover still has the lease.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterable

import msgspec

from rtolap.base.errors import CommitConflict, Corrupted, DefinitionError, NotFound
from rtolap.fleet.moves.planned import PlannedMove, decode_moves, digest_of_moves
from rtolap.fleet.moves.records import PlanRecord
from rtolap.fleet.moves.requests import MoveRequest
from rtolap.metadata import paths
from rtolap.metadata.codec import decode, encode
from rtolap.metadata.election import identities
from rtolap.metadata.store import Check, Create, Delete, MetadataStore, Operation, Put
from rtolap.metadata.updates import put_or_create, read

_log = logging.getLogger(__name__)

PIECE_BYTES = 400_000
PLANS_KEPT = 20
REQUESTS_KEPT = 500


class MoverRecord(msgspec.Struct, frozen=True):
    """The last report of a mover.

    Attributes:
        since_ms: Time at which the failure began, or at which it ended.
        failure: Error of the last step. Empty where it succeeded.
        looked_ms: Time of the last look at the brokers, stored every few seconds. 0 before the first one.
    """

    identity: str
    since_ms: int
    failure: str = msgspec.field(default="", name="trouble")
    looked_ms: int = 0


class StoredPlan(msgspec.Struct, frozen=True):
    record: PlanRecord
    version: int


class FleetStore:
    """The records of one Kafka cluster, named by Kafka's id of it."""

    def __init__(self, store: MetadataStore, cluster_id: str) -> None:
        self.store = store
        self.cluster_id = cluster_id

    # -- plans ------------------------------------------------------------------------------------------

    def current(self) -> StoredPlan | None:
        node = self.store.get(paths.fleet_current(self.cluster_id))
        return self.plan(node.data.decode()) if node is not None and node.data else None

    def plan(self, plan_id: str) -> StoredPlan | None:
        path = paths.fleet_plan(self.cluster_id, plan_id)
        node = self.store.get(path)
        if node is None or not node.data:
            return None
        return StoredPlan(decode(node.data, PlanRecord, path), node.version)

    def plans(self) -> tuple[PlanRecord, ...]:
        """Return the stored plans, the oldest first."""
        found = (self.plan(name) for name in self.store.children(paths.fleet_plans(self.cluster_id)))
        return tuple(
            sorted((stored.record for stored in found if stored), key=lambda record: record.submitted_ms)
        )

    def write_moves(self, plan_id: str, data: bytes) -> None:
        """Write the moves before the plan is submitted; nobody reads them earlier."""
        packed = zlib.compress(data, 6)
        folder = paths.fleet_plan_moves(self.cluster_id, plan_id)
        for number, start in enumerate(range(0, len(packed), PIECE_BYTES)):
            self.store.commit([Create(f"{folder}/{number:04d}", packed[start : start + PIECE_BYTES])])

    def read_moves(self, plan_id: str, digest: str) -> tuple[PlannedMove, ...]:
        """Return the moves. Raises NotFound, and Corrupted where they do not have the signed digest."""
        folder = paths.fleet_plan_moves(self.cluster_id, plan_id)
        pieces = [self.store.get(f"{folder}/{name}") for name in self.store.children(folder)]
        if not pieces:
            raise NotFound(f"there is no plan {plan_id}")
        try:
            data = zlib.decompress(b"".join(piece.data for piece in pieces if piece is not None))
        except zlib.error as error:
            raise Corrupted(f"the moves of plan {plan_id} cannot be read", found=str(error)) from error
        if digest_of_moves(data) != digest:
            raise Corrupted(
                f"the moves of plan {plan_id} are not those that were submitted",
                expected=digest,
                found=digest_of_moves(data),
            )
        return decode_moves(data)

    def save(self, record: PlanRecord, version: int, fence: str) -> int:
        """Save the record, and return its new version."""
        self.store.commit([Check(fence, -1), self.put_plan(record, version)])
        return version + 1

    def put_plan(self, record: PlanRecord, version: int) -> Operation:
        return Put(paths.fleet_plan(self.cluster_id, record.plan_id), encode(record), version)

    def begin_plan(self, record: PlanRecord) -> list[Operation]:
        """Return the operations that make a plan the current one. The plan's node exists already, because its
        moves do.
        """
        plan = self._set(paths.fleet_plan(self.cluster_id, record.plan_id), encode(record))
        return [plan, self._set_current(record.plan_id)]

    def end_plan(self) -> Operation:
        return self._set_current("")

    def _set_current(self, plan_id: str) -> Operation:
        return self._set(paths.fleet_current(self.cluster_id), plan_id.encode())

    def _set(self, path: str, data: bytes) -> Operation:
        return put_or_create(path, data, self.store.get(path))

    # -- requests ---------------------------------------------------------------------------------------

    def ask(self, request: MoveRequest) -> None:
        """Store a request, and the mark of a sender that waits for its answer. The mark lives as long as this
        session.
        """
        path = paths.fleet_request(self.cluster_id, request.request_id)
        waiting = paths.fleet_asking(self.cluster_id, request.request_id)
        self.store.commit([Create(path, encode(request)), Create(waiting, b"", ephemeral=True)])

    def is_waited_for(self, request_id: str) -> bool:
        """Return True if the sender of the request still waits. A request without a waiting sender is not
        carried out.
        """
        return self.store.get(paths.fleet_asking(self.cluster_id, request_id)) is not None

    def waited_for(self, request_id: str) -> Operation:
        """Return the requirement that the sender still waits."""
        return Check(paths.fleet_asking(self.cluster_id, request_id), -1)

    def stop_waiting(self, request_id: str) -> MoveRequest | None:
        """Withdraw a request without an answer. Afterwards no mover carries it out.

        Returns the request if it was answered meanwhile.
        """
        path = paths.fleet_request(self.cluster_id, request_id)
        waiting = paths.fleet_asking(self.cluster_id, request_id)
        node = self.store.get(path)
        request = None if node is None else decode(node.data, MoveRequest, path)
        if node is not None and request is not None and request.answer is None:
            try:
                self.store.commit([Delete(path, node.version), Delete(waiting)])
            except CommitConflict:
                return self.stop_waiting(request_id)
            return None
        if self.store.get(waiting) is not None:
            self.store.commit([Delete(waiting)])
        return request

    def discard_moves(self, plan_id: str) -> None:
        """Delete the moves of a plan that was withdrawn before a mover took it."""
        if self.plan(plan_id) is None:
            for path in self._nodes_of(plan_id):
                self.store.commit([Delete(path)])

    def request(self, request_id: str) -> MoveRequest | None:
        return read(self.store, paths.fleet_request(self.cluster_id, request_id), MoveRequest)

    def requests(self) -> tuple[MoveRequest, ...]:
        """Return the requests, the oldest first."""
        return tuple(request for _, request, _ in self._readable(set()))

    def open_requests(self, answered: set[str]) -> Iterable[tuple[MoveRequest, int]]:
        """Return the open requests with their versions. `answered` has the ids of requests to pass over."""
        for name, request, version in self._readable(answered):
            if request.answer is not None:
                answered.add(name)
            else:
                yield request, version

    def _readable(self, left_out: set[str]) -> Iterable[tuple[str, MoveRequest, int]]:
        """Return requests with their ids and versions. One that cannot be read is left out from then on."""
        for name in self.store.children(paths.fleet_requests(self.cluster_id)):
            path = paths.fleet_request(self.cluster_id, name)
            node = None if name in left_out else self.store.get(path)
            if node is None:
                continue
            try:
                yield name, decode(node.data, MoveRequest, path), node.version
            except Corrupted as error:
                _log.warning("an unreadable request is skipped: %s", error)
                left_out.add(name)

    def put_answer(self, request: MoveRequest, version: int) -> Operation:
        return Put(paths.fleet_request(self.cluster_id, request.request_id), encode(request), version)

    # -- the mover --------------------------------------------------------------------------------------

    def working_mover(self) -> str | None:
        """Return the identity of the mover that has the lease. None where none serves."""
        found = identities(self.store, paths.fleet_lease(self.cluster_id))
        return found[0] if found else None

    def mover(self) -> MoverRecord | None:
        return read(self.store, paths.fleet_mover(self.cluster_id), MoverRecord)

    def write_mover(self, record: MoverRecord, fence: str) -> None:
        write = self._set(paths.fleet_mover(self.cluster_id), encode(record))
        self.store.commit([Check(fence, -1), write])

    def prune(self, fence: str) -> None:
        """Delete old requests, and old plans that have ended."""
        requests = paths.fleet_requests(self.cluster_id)
        old = self.store.children(requests)[:-REQUESTS_KEPT]
        self._delete([f"{requests}/{name}" for name in old], fence)
        ended = [record for record in self.plans() if record.state == "ended"][:-PLANS_KEPT]
        for record in ended:
            self._delete(self._nodes_of(record.plan_id), fence)

    def forget_refused(self, plan_id: str, fence: str) -> None:
        """Delete the moves of a plan that no mover has accepted."""
        try:
            known = self.plan(plan_id)
        except DefinitionError:
            return  # a name that no node can have
        if known is None:
            self._delete(self._nodes_of(plan_id), fence)

    def _nodes_of(self, plan_id: str) -> list[str]:
        folder = paths.fleet_plan_moves(self.cluster_id, plan_id)
        pieces = [f"{folder}/{name}" for name in self.store.children(folder)]
        nodes = [*pieces, folder, paths.fleet_plan(self.cluster_id, plan_id)]
        return nodes if pieces else []

    def _delete(self, nodes: Iterable[str], fence: str) -> None:
        for path in nodes:
            try:
                self.store.commit([Check(fence, -1), Delete(path)])
            except CommitConflict:
                return  # somebody else did, or the lease is over
