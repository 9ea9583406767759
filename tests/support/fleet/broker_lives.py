"""A small cluster in memory whose brokers live through operations, with processes that may crash anywhere."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from rtolap.fleet.isolation.registry import RegisteredCluster
from rtolap.fleet.lifecycle.actions import ClusterActions
from rtolap.fleet.lifecycle.brokers import BrokerOperations
from rtolap.fleet.moves.mover import Mover
from rtolap.fleet.moves.settings import MoverSettings
from rtolap.fleet.moves.store import FleetStore
from rtolap.fleet.snapshot.collect import collect_snapshot
from rtolap.fleet.snapshot.model import FleetSnapshot
from rtolap.kafka.administration.values import Partition
from rtolap.metadata.store import Create

from tests.support.twins.administered_cluster import MemoryCluster
from tests.support.twins.administration import MemoryAdministration
from tests.support.twins.clock import ManualClock
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore

CLUSTER_ID = "Mk"
LOST_AFTER_MS = 1000
TOKEN = "token"
_FENCE = "/fence"


def undeclared(snapshot: FleetSnapshot) -> RegisteredCluster | None:
    """Stand for a registry without the cluster."""
    return None


class GreedyDrains:
    """Moves each replica of a broker to the first one that is alive and has none of its partition."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster
        self.submitted: Counter[str] = Counter()
        self.cancelled: list[str] = []

    def submit(self, broker: int, drain_id: str, by: str, reason: str) -> None:
        if drain_id in self.submitted:
            return
        self.submitted[drain_id] += 1
        targets = {}
        for partition, known in self._cluster.partitions.items():
            if broker in known.replicas:
                others = [
                    each.broker_id
                    for each in self._cluster.brokers.values()
                    if each.alive and each.broker_id not in known.replicas
                ]
                if others:
                    targets[partition] = [others[0] if each == broker else each for each in known.replicas]
        MemoryAdministration(self._cluster).reassign(targets)

    def cancel(self, broker: int, drain_id: str, by: str, reason: str) -> None:
        self.cancelled.append(drain_id)
        running = MemoryAdministration(self._cluster).running_reassignments()
        MemoryAdministration(self._cluster).reassign(dict.fromkeys(running))


class BrokerLives:
    """Brokers 1 to 5, each partition on two of 1 to 4."""

    def __init__(self, partitions: int = 8) -> None:
        self.kafka = MemoryCluster(CLUSTER_ID)
        for broker in range(1, 6):
            self.kafka.add_broker(broker, f"rack{broker % 3}", {"/d0": 10_000, "/d1": 10_000})
        for number in range(partitions):
            first = 1 + number % 4
            self.kafka.add_partition(Partition("paid", number), [first, 1 + first % 4], 10, "/d0")
        self.kafka.inherited["min.insync.replicas"] = "1"
        self.administration = MemoryAdministration(self.kafka)
        self.drains = GreedyDrains(self.kafka)
        self.clock = ManualClock(1_000)
        self.ensemble = MemoryEnsemble()
        self.store = MemoryStore(self.ensemble)

    def close(self) -> None:
        self.store.close()

    def operations(self, actions: ClusterActions | None = None) -> BrokerOperations:
        """Return those of a new process."""
        return BrokerOperations(
            self.store,
            CLUSTER_ID,
            actions or ClusterActions(self.administration, self.drains),
            self.clock,
            lost_after_ms=LOST_AFTER_MS,
        )

    def snapshot(self) -> FleetSnapshot:
        self.clock.advance_ms(1)
        return collect_snapshot(self.administration, self.clock)

    def finish_moves(self) -> None:
        for _ in range(3):
            self.kafka.advance(1.0)

    def cordoned(self, broker: int) -> bool:
        return all(disk.cordoned for disk in self.kafka.brokers[broker].disks.values())


@contextmanager
def mover_of(lives: BrokerLives) -> Iterator[None]:
    """Run a mover that answers while the cluster's time goes on."""
    lives.store.commit([Create(_FENCE, b"")])
    fleet_store = FleetStore(lives.store, CLUSTER_ID)
    mover = Mover(
        lives.administration,
        fleet_store,
        lambda: _FENCE,
        lives.clock,
        TOKEN,
        settings=MoverSettings(look_every_s=0.01),
    )
    thread = threading.Thread(target=mover.run)
    thread.start()
    try:
        yield
    finally:
        mover.stop()
        thread.join()
