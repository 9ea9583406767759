"""The members of the cluster: receivers, their replica sets, and the candidates that lead."""

from __future__ import annotations

from rtolap.metadata import paths
from rtolap.metadata.election import identities
from rtolap.metadata.records import ReceiverRecord, ReplicaSetRecord
from rtolap.metadata.store import Create, Delete, MetadataStore, Operation
from rtolap.metadata.updates import read, retrying, update


class Members:
    def __init__(self, store: MetadataStore) -> None:
        self.store = store

    def receivers(self) -> dict[str, ReceiverRecord]:
        names = self.store.children(paths.RECEIVERS)
        records = {name: read(self.store, paths.receiver(name), ReceiverRecord) for name in names}
        return {name: record for name, record in records.items() if record is not None}

    def register_receiver(self, record: ReceiverRecord) -> None:
        """Write the receiver's address and enter it into its replica set, leaving the one it was in."""
        for name, other in self.replica_sets().items():
            if name != record.replica_set and record.receiver_id in other.receivers:
                self.put_replica_set(name, tuple(r for r in other.receivers if r != record.receiver_id))
        update(self.store, paths.receiver(record.receiver_id), ReceiverRecord, lambda _: record)

        def joined(before: ReplicaSetRecord | None) -> ReplicaSetRecord:
            members = () if before is None else before.receivers
            if before is not None and record.receiver_id in members:
                return before
            return ReplicaSetRecord(record.replica_set, tuple(sorted({*members, record.receiver_id})))

        update(self.store, paths.replica_set(record.replica_set), ReplicaSetRecord, joined)

    def live_receivers(self) -> tuple[str, ...]:
        return self.store.children(paths.RECEIVERS_LIVE)

    def announce_live(self, receiver_id: str, instance: str) -> None:
        """Show that the receiver lives, while this session does. Call again after a lost session.

        `instance` is new with every start of the process: a node that an earlier process left behind
        (its session has yet to expire) is replaced, one's own stays.
        """
        path = paths.receiver_live(receiver_id)

        def attempt() -> None:
            node = self.store.get(path)
            if node is not None and node.data == instance.encode():
                return
            operations: list[Operation] = [] if node is None else [Delete(path, node.version)]
            self.store.commit([*operations, Create(path, instance.encode(), ephemeral=True)])

        retrying(attempt)

    def replica_sets(self) -> dict[str, ReplicaSetRecord]:
        names = self.store.children(paths.REPLICA_SETS)
        records = {name: read(self.store, paths.replica_set(name), ReplicaSetRecord) for name in names}
        return {name: record for name, record in records.items() if record is not None}

    def put_replica_set(self, name: str, receivers: tuple[str, ...]) -> ReplicaSetRecord:
        record = ReplicaSetRecord(name, receivers)
        update(self.store, paths.replica_set(name), ReplicaSetRecord, lambda _: record)
        return record

    def replica_set_leader(self, name: str) -> str | None:
        standing = identities(self.store, paths.replica_set_election(name))
        return standing[0] if standing else None

    def coordinators(self) -> tuple[str, ...]:
        """Base URLs of the running coordinators, leader first."""
        return identities(self.store, paths.ELECTION)
