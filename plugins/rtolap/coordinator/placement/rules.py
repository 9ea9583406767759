"""The declared places of receivers, as plans, health and requests need them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.members.places import (
    PlacementPolicy,
    SharedPlace,
    home_rack,
    refuse_shared,
    refused_places,
    shared_places,
)
from rtolap.metadata.records import ReceiverRecord

log = logging.getLogger(__name__)


class PlacementRules:
    """`policy`: of the settings. Each call but `seen` reads the records as they are."""

    def __init__(self, metadata: ClusterMetadata, policy: PlacementPolicy) -> None:
        self._metadata = metadata
        self._policy: PlacementPolicy = policy
        self._seen: dict[str, tuple[SharedPlace, ...]] = {}

    def look(self) -> None:
        """Look for shared places, for `seen`, and log those that are new."""
        shared = self.shared()
        for name, places in sorted(shared.items()):
            if places != self._seen.get(name):
                log.warning("replica set %s: %s", name, "; ".join(map(str, places)))
        self._seen = shared

    def seen(self) -> dict[str, tuple[SharedPlace, ...]]:
        """Return, by replica set, the shared places at the last look."""
        return self._seen

    def shared(self) -> dict[str, tuple[SharedPlace, ...]]:
        """Return, by replica set, the places that its receivers share; nothing where none is looked for."""
        if self._policy == "off":
            return {}
        live = self._metadata.live_receivers()
        shared = {name: shared_places(members, live) for name, members in self._members().items()}
        return {name: places for name, places in shared.items() if places}

    def refused(self, names: Collection[str]) -> set[str]:
        """Return those of the replica sets that get no partitions, as their receivers share a place."""
        shared = self.shared()
        return {name for name in names if refused_places(shared.get(name, ()), self._policy)}

    def check(self, names: Iterable[str]) -> None:
        """Raise Refused, naming the receivers, where one of the replica sets may not be given partitions."""
        names = list(names)
        for name in sorted(self.refused(names)):
            refuse_shared(name, self._members()[name], self._metadata.live_receivers(), self._policy)

    def check_members(self, replica_set: str, receivers: Collection[str]) -> None:
        """Raise Refused where these may not form a replica set."""
        records = self._metadata.receivers()
        members = {name: records[name] for name in receivers if name in records}
        refuse_shared(replica_set, members, self._metadata.live_receivers(), self._policy)

    def racks(self) -> dict[str, str | None]:
        """Return, by replica set, the rack with which it fails (see `home_rack`)."""
        return {name: home_rack(members.values()) for name, members in self._members().items()}

    def _members(self) -> dict[str, dict[str, ReceiverRecord]]:
        """Return, by replica set, the records of its receivers."""
        records = self._metadata.receivers()
        return {
            name: {receiver: records[receiver] for receiver in found.receivers if receiver in records}
            for name, found in self._metadata.replica_sets().items()
        }
