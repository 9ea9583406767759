"""A real broker is drained by the mover, stopped, repaired and taken back, by operations alone."""

from __future__ import annotations

import threading

import pytest
from rtolap.base.clock import SystemClock
from rtolap.base.errors import Refused
from rtolap.fleet.lifecycle.actions import ClusterActions
from rtolap.fleet.lifecycle.brokers import BrokerOperations
from rtolap.fleet.lifecycle.drains import PlannedDrains
from rtolap.fleet.lifecycle.states import BrokerEvent, BrokerLife
from rtolap.fleet.moves.kept import KeptFleet
from rtolap.fleet.moves.mover import Mover
from rtolap.fleet.moves.settings import MoverSettings
from rtolap.fleet.snapshot.collect import collect_snapshot
from rtolap.fleet.snapshot.model import Snapshot
from rtolap.kafka.administration.values import Partition
from rtolap.metadata.memory import MemoryEnsemble, MemoryStore
from rtolap.metadata.store import Create

from tests.integration.fleet.conftest import world_of
from tests.support.fleet.brokers import Brokers
from tests.support.waiting import until

pytestmark = pytest.mark.integration

TOKEN, FENCE = "token", "/fence"


def test_a_broker_is_drained_repaired_and_serves_again(own_brokers: Brokers, unique_name: str) -> None:
    world = world_of(own_brokers, unique_name)
    topic = world.create([[3, 1], [2, 3], [3, 2]])
    for number in range(3):
        world.fill(Partition(topic, number), 200_000)
    clock, store = SystemClock(), MemoryStore(MemoryEnsemble())
    store.commit([Create(FENCE, b"")])

    def look() -> Snapshot:
        return collect_snapshot(world.administration, clock)

    cluster_id = look().cluster_id
    kept = KeptFleet(store, cluster_id)
    drains = PlannedDrains(world.administration, kept, clock, TOKEN)
    operations = BrokerOperations(store, cluster_id, ClusterActions(world.administration, drains), clock)
    mover = Mover(
        world.administration, kept, lambda: FENCE, clock, TOKEN, settings=MoverSettings(look_every_s=0.2)
    )
    thread = threading.Thread(target=mover.run)
    thread.start()

    def state() -> BrokerLife:
        assert operations.observe(look()) == {}
        return operations.records()[3].state

    def held() -> int:
        described = world.administration.describe_topics([topic])[topic]
        return sum(3 in partition.replicas for partition in described.partitions)

    try:
        drained = operations.operate(3, BrokerEvent.DRAIN, "ann", "disk fails", look())
        assert drained.state is BrokerLife.DRAINING
        until(lambda: state() is BrokerLife.DRAINED, "the broker is empty", poll_s=0.3)
        assert held() == 0
        assert operations.operate(3, BrokerEvent.REPAIR, "ann", "disk", look()).state is BrokerLife.REPAIRING
        own_brokers.servers[3].stop()
        own_brokers.wait_alive((1, 2))
        with pytest.raises(Refused):
            operations.operate(3, BrokerEvent.CORDON, "ann", "too late", look())
        operations.operate(3, BrokerEvent.REPAIRED, "ann", "a new disk", look())
        assert state() is BrokerLife.JOINING
        own_brokers.servers[3].start()
        own_brokers.wait_alive((1, 2, 3))
        # one that has joined a moment ago may not be known to the client yet: then it is asked again
        until(lambda: not operations.observe(look()), "its setting is taken", poll_s=0.3)
        assert state() is BrokerLife.SERVING
        new = world.create([[3]])
        until(lambda: new in world.administration.describe_topics([new]), "the new topic", poll_s=0.1)
        assert world.replicas(Partition(new, 0)) == (3,)
        entries = [(entry.event, entry.after) for entry in operations.entries(3)]
    finally:
        mover.stop()
        thread.join()
        store.close()
        world.administration.close()
    assert entries[1:] == [
        (BrokerEvent.DRAIN, BrokerLife.DRAINING),
        (BrokerEvent.EMPTIED, BrokerLife.DRAINED),
        (BrokerEvent.REPAIR, BrokerLife.REPAIRING),
        (BrokerEvent.REPAIRED, BrokerLife.JOINING),
        (BrokerEvent.JOINED, BrokerLife.SERVING),
    ]
