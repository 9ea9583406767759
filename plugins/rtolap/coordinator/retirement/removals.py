"""Removal of replica sets and receivers from the cluster's records, once nothing depends on them."""

from __future__ import annotations

from rtolap.base.errors import Refused
from rtolap.coordinator.views import Views
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import ReceiverRecord, ReplicaSetRecord
from rtolap.metadata.requests import Note

_NAMED_MAX = 5  # segments in a message


class Removals:
    """A removal is one commit that requires the record which was checked. A drained replica set gets no
    partitions, so what was found of the cubes after its mark stays true."""

    def __init__(self, metadata: ClusterMetadata, views: Views) -> None:
        self._metadata = metadata
        self._views = views

    def remove_set(self, name: str, note: Note | None = None) -> None:
        """Remove a replica set and its receivers' records. `note` is committed with it.

        Raises NotFound, and Refused while it is not drained, has partitions, has staged segments that are not
        in history, or has a living receiver.
        """

        def check(record: ReplicaSetRecord) -> None:
            holding = self._holding(name)
            if holding or not record.draining:
                raise Refused(
                    f"replica set {name} cannot be removed",
                    expected="one that is drained and has no partitions",
                    found=f"partitions of {', '.join(holding)}" if holding else "it may be given partitions",
                    action=f"`rtolap receivers drain {name}` first",
                )
            waiting = self._staged_segments(name)
            if waiting:
                raise Refused(
                    f"replica set {name} cannot be removed",
                    expected="all segments that it has staged in history",
                    found=f"{len(waiting)} that wait for it: {', '.join(waiting[:_NAMED_MAX])}",
                    action="have them built first: `rtolap queue` shows them",
                )
            living = sorted(set(record.receivers) & set(self._metadata.live_receivers()))
            if living:
                raise Refused(
                    f"replica set {name} cannot be removed",
                    expected="one without living receivers",
                    found=", ".join(living),
                    action="stop them first; nothing depends on them any more",
                )

        self._metadata.remove_replica_set(name, check, note)

    def remove_receiver(self, receiver_id: str, note: Note | None = None) -> None:
        """Remove a receiver that has stopped. `note` is committed with it.

        Raises NotFound, and Refused while it lives, and where its replica set has partitions and no other
        living receiver.
        """

        def check(record: ReceiverRecord) -> None:
            live = set(self._metadata.live_receivers())
            replica_set = self._metadata.replica_sets().get(record.replica_set)
            members = set(replica_set.receivers) if replica_set is not None else set()
            holding = self._holding(record.replica_set) if receiver_id in members else []
            if holding and not (members - {receiver_id}) & live:
                raise Refused(
                    f"receiver {receiver_id} cannot be removed",
                    expected=f"another living receiver in replica set {record.replica_set}, which has "
                    f"partitions of {', '.join(holding)}",
                    found="it is the last living one" if receiver_id in live else "none lives",
                    action=f"start another one, or `rtolap receivers drain {record.replica_set}` first",
                )
            if receiver_id in live:
                raise Refused(
                    f"receiver {receiver_id} cannot be removed",
                    expected="one that has stopped",
                    found="its session lives",
                    action="stop it first; one that was killed counts as living until its session expires",
                )

        self._metadata.remove_receiver(receiver_id, check, note)

    def _holding(self, name: str) -> list[str]:
        """Return the cubes that have partitions there, or get some by a move that runs."""
        cubes = sorted(self._metadata.cubes())
        return [cube for cube in cubes if self._metadata.control(cube).has_partitions_in(name)]

    def _staged_segments(self, name: str) -> list[str]:
        """Return the segments of all cubes whose next version has parts of the replica set."""
        return [
            f"{cube}/{segment}"
            for cube in sorted(self._metadata.cubes())
            for segment, record in sorted(self._views.fresh(cube)[1].items())
            if any(part.replica_set == name for part in record.parts)
        ]
