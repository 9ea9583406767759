"""The records of consumers and shares, in the ZooKeeper of the source.

    <root>/consumers/<id>       ephemeral: a consumer that lives, a `Member`
    <root>/shares/<k>/holder    ephemeral: the id of the consumer that holds the share

A consumer keeps its id as long as its process lives. Both nodes go with its session. To hold a share is an
economy, as leading is: what keeps a holder of before from writing is the share's transactional id.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from rtolap.base.decoding import decode_json
from rtolap.base.errors import CommitConflict, CommitUnknown
from rtolap.metadata.requests import remove_all
from rtolap.metadata.store import Check, Create, Delete, MetadataStore
from rtolap.metadata.updates import create_missing, retried
from rtolap.sep.subscriptions.records import SubscriptionPaths

log = logging.getLogger(__name__)


class Member(msgspec.Struct, frozen=True):
    """A consumer that lives.

    Attributes:
        address: host:port at which it takes parts of other consumers.
        joined_ms: when its process began; consumers stand in this order.
    """

    id: str
    address: str
    joined_ms: int


@dataclass(frozen=True)
class ShareMap:
    """The consumers that live, in the order of joining, and the id of the holder of each share."""

    members: Sequence[Member]
    holders: Mapping[int, str]

    def address_of(self, share: int) -> str | None:
        """Return where the holder takes parts; None while nobody that lives holds the share."""
        holder = self.holders.get(share)
        return next((member.address for member in self.members if member.id == holder), None)

    def has(self, member: str) -> bool:
        return any(each.id == member for each in self.members)


class ShareNodes:
    """Reads and writes the records for one consumer. Thread-safe."""

    def __init__(self, store: MetadataStore, paths: SubscriptionPaths, count: int) -> None:
        self._store, self._paths, self._count = store, paths, count

    def join(self, member: Member) -> None:
        """Make the consumer's node. One that its own session of before has left is found gone by a later
        look."""
        path, data = self._paths.consumer(member.id), msgspec.json.encode(member)
        create_missing(self._store, path, data, ephemeral=True)

    def leave(self, member: str) -> None:
        remove_all(self._store, lambda: [self._paths.consumer(member)])

    def look(self) -> ShareMap:
        members = []
        for name in self._store.children(self._paths.consumers):
            node = self._store.get(self._paths.consumer(name))
            if node is None:
                continue
            try:
                members.append(decode_json(node.data, Member))
            except msgspec.DecodeError as error:
                log.warning("%s is left out, it cannot be read: %s", self._paths.consumer(name), error)
        holders = {}
        for share in range(self._count):
            node = self._store.get(self._paths.holder(share))
            if node is not None:
                holders[share] = node.data.decode("utf-8", "replace")
        return ShareMap(sorted(members, key=lambda each: (each.joined_ms, each.id)), holders)

    def claim(self, share: int, member: str) -> None:
        """Claim a share, if it is free. The next look tells whose it is."""
        try:
            self._store.commit(
                [
                    Check(self._paths.consumer(member), -1),
                    Create(self._paths.holder(share), member.encode(), ephemeral=True),
                ]
            )
        except (CommitConflict, CommitUnknown) as error:
            log.info("share %d is not claimed: %s", share, error)

    @retried
    def release(self, share: int, member: str) -> None:
        """Remove the node of the holder, if it is this consumer's."""
        node = self._store.get(self._paths.holder(share))
        if node is not None and node.data == member.encode():
            self._store.commit([Delete(self._paths.holder(share), node.version)])
