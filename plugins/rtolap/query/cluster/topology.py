"""The receivers of the cluster at one moment."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from rtolap.metadata.records import ReceiverRecord, ReplicaSetRecord


@dataclass(frozen=True)
class ReceiverTopology:
    """Receivers, replica sets and who is alive, at one moment."""

    receivers: Mapping[str, ReceiverRecord]
    replica_sets: Mapping[str, ReplicaSetRecord]
    live: Collection[str]
