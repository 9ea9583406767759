"""A receiver process while the servers around it fail: it rides outages out, and shows what it cannot."""

from __future__ import annotations

import signal

import pytest
from rtolap.kafka.producer import KafkaAdmin
from rtolap.stack.process import ManagedProcess

from tests.support.cubes.receiver_world import ReceiverWorld
from tests.support.cubes.services import wait_for

pytestmark = pytest.mark.integration


def _leads(world: ReceiverWorld) -> bool:
    return "r0" in world.metadata.live_receivers() and world.metadata.replica_set_leader("left") == "r0"


def _partitions(world: ReceiverWorld) -> set[int]:
    state = world.state("r0")
    return {one.partition for one in state.partitions} if state is not None else set()


def test_restarts_of_zookeeper_and_kafka_and_a_lost_session_are_ridden_out(
    world: ReceiverWorld, zookeeper_server: ManagedProcess, kafka_server: ManagedProcess
) -> None:
    world.assign()
    world.start("r0")
    world.produce(300)
    assert world.exact("r0")
    wait_for("r0 leads", lambda: _leads(world))

    zookeeper_server.kill()
    try:
        world.produce(200)
        assert world.exact("r0"), "it consumes and answers without ZooKeeper"
    finally:
        zookeeper_server.start()

    process = world.processes["r0"]
    process.send_signal(signal.SIGSTOP)
    try:
        wait_for("its session is lost", lambda: "r0" not in world.metadata.live_receivers())
    finally:
        process.send_signal(signal.SIGCONT)
    wait_for("it leads again, in a new session", lambda: _leads(world))
    world.produce(200)
    assert world.exact("r0")

    kafka_server.kill()
    try:
        answer, positions = world.ask("r0", world.ends())
        assert positions == world.ends()
        assert answer == world.expected(positions), "it answers without Kafka"
    finally:
        kafka_server.start()
    world.produce(200)
    assert world.exact("r0"), "it goes on where it was"
    assert process.poll() is None, "the same process all the time"


def test_an_added_partition_is_read_and_a_deleted_topic_is_a_visible_failure(world: ReceiverWorld) -> None:
    world.assign()
    world.start("r0")
    world.produce(100)
    assert world.exact("r0")
    admin = KafkaAdmin(world.kafka)
    try:
        world.log[len(world.log)] = []
        admin.add_partitions(world.cube, len(world.log))
        world.assign()
        world.produce(300)
        assert world.log[2]
        wait_for("the assignment has arrived", lambda: 2 in _partitions(world))
        assert world.exact("r0")

        ends = world.ends()
        admin.delete_topic(world.cube)
        wait_for("FAILED", lambda: (s := world.state("r0")) is not None and s.state == "FAILED")
    finally:
        admin.close()
    state = world.state("r0")
    assert state is not None
    assert f"there is no topic {world.cube}" in state.reason
    answer, positions = world.ask("r0", ends)
    assert positions == ends
    assert answer == world.expected(ends), "it still answers for what it holds"
