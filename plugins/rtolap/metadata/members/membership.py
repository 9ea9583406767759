"""Receivers and replica sets: registered, announced, drained and removed."""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from rtolap.base.errors import NotFound, NotYet, Refused
from rtolap.metadata import codec, paths
from rtolap.metadata.election import identities
from rtolap.metadata.members.places import PlacementPolicy, refuse_shared
from rtolap.metadata.records import ReceiverRecord, ReplicaSetRecord
from rtolap.metadata.requests import Note
from rtolap.metadata.store import Check, Create, Delete, MetadataStore, Operation, Put
from rtolap.metadata.updates import change, put_or_create, read, read_each, replace, retried, standing, update


class Members:
    def __init__(self, store: MetadataStore) -> None:
        self.store = store

    def receivers(self) -> dict[str, ReceiverRecord]:
        """Return the receivers' records by name, without those that are forged or damaged."""
        return read_each(self.store.children(paths.RECEIVERS), self._receiver).found

    def register_receiver(self, record: ReceiverRecord) -> None:
        """Write the receiver's address and enter it into its replica set, leaving the one it was in."""
        for name, other in self.replica_sets().items():
            if name != record.replica_set and record.receiver_id in other.receivers:
                self.put_replica_set(name, tuple(r for r in other.receivers if r != record.receiver_id))
        replace(self.store, paths.receiver(record.receiver_id), record)

        def joined(before: ReplicaSetRecord | None) -> ReplicaSetRecord:
            if before is None:
                return ReplicaSetRecord(record.replica_set, (record.receiver_id,))
            if record.receiver_id in before.receivers:
                return before
            members = tuple(sorted({*before.receivers, record.receiver_id}))
            return msgspec.structs.replace(before, receivers=members)

        update(self.store, paths.replica_set(record.replica_set), ReplicaSetRecord, joined)

    def register_apart(self, record: ReceiverRecord, policy: PlacementPolicy) -> None:
        """Do as `register_receiver` where the policy lets the receiver join its set. Raises Refused.

        The receiver has announced that it lives. Record and membership are one commit, which changes the
        set's version: of two that register in one place at the same time, the later one finds the earlier.
        """
        path = paths.replica_set(record.replica_set)

        @retried
        def enter() -> None:
            node = self.store.get(path)
            before = None if node is None else codec.decode(node.data, ReplicaSetRecord, path)
            names = () if before is None else before.receivers
            others = read_each(names, self._receiver).found
            placed = {**others, record.receiver_id: record}
            refuse_shared(record.replica_set, placed, self.live_receivers(), policy)
            members = tuple(sorted({*names, record.receiver_id}))
            after = (
                ReplicaSetRecord(record.replica_set, members)
                if before is None
                else msgspec.structs.replace(before, receivers=members)
            )
            mine = paths.receiver(record.receiver_id)
            self.store.commit(
                [
                    put_or_create(path, codec.encode(after), node),
                    put_or_create(mine, codec.encode(record), self.store.get(mine)),
                ]
            )

        enter()
        self.register_receiver(record)  # leaves the replica set that it was in before

    def live_receivers(self) -> tuple[str, ...]:
        return self.store.children(paths.RECEIVERS_LIVE)

    def living_members(self) -> dict[str, tuple[str, ...]]:
        """Return the living receivers of each replica set: those whose sessions have not expired."""
        live = set(self.live_receivers())
        return {
            name: tuple(receiver for receiver in record.receivers if receiver in live)
            for name, record in self.replica_sets().items()
        }

    @retried
    def announce_live(self, receiver_id: str, instance: str) -> None:
        """Announce the receiver while this session lives. Call again after a lost session.

        `instance` is new with every start of the process: a node that an earlier process left behind
        (its session has yet to expire) is replaced, one's own stays.
        """
        path = paths.receiver_live(receiver_id)
        node = self.store.get(path)
        if node is not None and node.data == instance.encode():
            return
        operations: list[Operation] = [] if node is None else [Delete(path, node.version)]
        self.store.commit([*operations, Create(path, instance.encode(), ephemeral=True)])

    def replica_sets(self) -> dict[str, ReplicaSetRecord]:
        """Return all by name. Raises Corrupted where one cannot be read: who its receivers are is not
        known."""
        records = {name: self._replica_set(name) for name in self.store.children(paths.REPLICA_SETS)}
        return {name: record for name, record in records.items() if record is not None}

    def readable_replica_sets(self) -> dict[str, ReplicaSetRecord]:
        """Return them by name, without those whose records are forged or damaged."""
        return read_each(self.store.children(paths.REPLICA_SETS), self._replica_set).found

    def _receiver(self, name: str) -> ReceiverRecord | None:
        return read(self.store, paths.receiver(name), ReceiverRecord)

    def _replica_set(self, name: str) -> ReplicaSetRecord | None:
        return read(self.store, paths.replica_set(name), ReplicaSetRecord)

    def replica_set(self, name: str) -> ReplicaSetRecord:
        """Return a replica set. Raises NotFound."""
        record = self.replica_sets().get(name)
        if record is None:
            raise NotFound(f"replica set {name} does not exist")
        return record

    def put_replica_set(self, name: str, receivers: tuple[str, ...]) -> ReplicaSetRecord:
        """Set the receivers of a replica set. One that is drained stays so."""

        def changed(before: ReplicaSetRecord | None) -> ReplicaSetRecord:
            if before is None:
                return ReplicaSetRecord(name, receivers)
            return msgspec.structs.replace(before, receivers=receivers)

        return update(self.store, paths.replica_set(name), ReplicaSetRecord, changed)

    def replica_set_leader(self, name: str) -> str | None:
        standing = identities(self.store, paths.replica_set_election(name))
        return standing[0] if standing else None

    def coordinators(self) -> tuple[str, ...]:
        """Return base URLs of the running coordinators, leader first."""
        return identities(self.store, paths.ELECTION)

    # -- retirement -------------------------------------------------------------------------------------

    def drain_replica_set(self, name: str, *, draining: bool, cubes_max: int = 1) -> None:
        """Note that the replica set is given no partitions any more, or that it is again. Raises NotFound.

        `cubes_max`: cubes that the leader moves off it at the same time.
        """
        bound = cubes_max if draining else 1
        self._change_set(
            name, lambda before: msgspec.structs.replace(before, draining=draining, cubes_max=bound)
        )

    def note_missing(self, name: str, since_ms: int | None) -> None:
        """Note since when none of the receivers lives; an earlier time stays. None: one lives again. Raises
        NotFound."""

        def changed(before: ReplicaSetRecord) -> ReplicaSetRecord:
            known = before.missing_since_ms
            earliest = since_ms if since_ms is None or known is None else min(known, since_ms)
            return msgspec.structs.replace(before, missing_since_ms=earliest)

        self._change_set(name, changed)

    def _change_set(self, name: str, changed: Callable[[ReplicaSetRecord], ReplicaSetRecord]) -> None:
        change(self.store, paths.replica_set(name), ReplicaSetRecord, changed, f"replica set {name}")

    def still(self, name: str, wanted: Callable[[ReplicaSetRecord], bool]) -> tuple[Operation, ...]:
        """Return the requirement that the record of a replica set is as it is now. Raises NotYet where it is
        not as `wanted`.

        A commit that moves partitions off it because of its record carries it along.
        """
        path = paths.replica_set(name)
        record, node = standing(self.store, path, ReplicaSetRecord, f"replica set {name}")
        if not wanted(record):
            raise NotYet(f"the reason to move partitions off replica set {name} is gone")
        return (Check(path, node.version),)

    def drained(self) -> frozenset[str]:
        """Return the names of the replica sets that are given no partitions any more."""
        return frozenset(name for name, record in self.replica_sets().items() if record.draining)

    def may_take_partitions(self, names: Collection[str]) -> tuple[Operation, ...]:
        """Return the requirement that these replica sets exist and are not drained. Raises Refused.

        A commit that gives partitions to them carries it along. So whoever notes that one is drained, and
        then reads the assignments, sees every partition that it has or will have.
        """
        required: list[Operation] = []
        for name in sorted(names):
            path = paths.replica_set(name)
            node = self.store.get(path)
            record = None if node is None else codec.decode(node.data, ReplicaSetRecord, path)
            if node is None or record is None or record.draining:
                raise Refused(
                    f"replica set {name} takes no partitions",
                    expected="one that is not drained",
                    found="it is drained" if record is not None else "there is none of the name",
                    action=f"`rtolap receivers drain {name} --undo`, or choose another one",
                )
            required.append(Check(path, node.version))
        return tuple(required)

    def remove_replica_set(
        self, name: str, check: Callable[[ReplicaSetRecord], None], note: Note | None = None
    ) -> None:
        """Remove a replica set with the records of its receivers in one commit, and `note` with it.

        `check` raises what stands in the way; it is called again where the record has changed meanwhile.
        Raises NotFound.
        """

        def remove() -> list[Operation]:
            path = paths.replica_set(name)
            record, node = standing(self.store, path, ReplicaSetRecord, f"replica set {name}")
            check(record)
            known = [paths.receiver(receiver) for receiver in record.receivers]
            receivers = [(path, self.store.get(path)) for path in known]
            return [
                Delete(path, node.version),
                *(Delete(path, found.version) for path, found in receivers if found is not None),
            ]

        self._remove_member(remove, note)

    def remove_receiver(
        self, receiver_id: str, check: Callable[[ReceiverRecord], None], note: Note | None = None
    ) -> None:
        """Remove a receiver's record, and the receiver from its replica set, in one commit, `note` with it.

        `check`: as for `remove_replica_set`. Raises NotFound.
        """

        def remove() -> list[Operation]:
            path = paths.receiver(receiver_id)
            record, node = standing(self.store, path, ReceiverRecord, f"receiver {receiver_id}")
            check(record)
            set_path = paths.replica_set(record.replica_set)
            set_node = self.store.get(set_path)
            if set_node is None:
                return [Delete(path, node.version)]
            replica_set = codec.decode(set_node.data, ReplicaSetRecord, set_path)
            left = tuple(member for member in replica_set.receivers if member != receiver_id)
            data = codec.encode(msgspec.structs.replace(replica_set, receivers=left))
            return [Delete(path, node.version), Put(set_path, data, set_node.version)]

        self._remove_member(remove, note)

    @retried
    def _remove_member(self, operations: Callable[[], list[Operation]], note: Note | None) -> None:
        """Commit what `operations` names; what a repetition finds after a lost answer may be of another
        request already."""
        if note is None or not note.stands():
            self.store.commit([*operations(), *(() if note is None else note.operations())])
