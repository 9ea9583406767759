"""A topic on real brokers whose logs lose their tail in an unclean election, and grow again.

Broker 1 is the controller and stays. Of a partition on brokers 2 and 3, broker 3 misses the tail, because it
is down while that is written; then broker 2 dies and broker 3 leads. A partition that broker 1 leads loses
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.cimpl import NewTopic
from rtolap.base.errors import Unavailable
from rtolap.kafka.administration.client import KafkaAdministration
from rtolap.kafka.administration.values import PartitionDescription
from rtolap.kafka.interfaces import OutRecord
from rtolap.kafka.producer import KafkaProducer

from tests.support.fleet.brokers import Brokers
from tests.support.kafka_topics import create_topic
from tests.support.waiting import result_of, until

CUT, WHOLE = (2, 3), (1, 3)
LEADER, FOLLOWER = 2, 3
FLUSH_S = 60.0


class CutTopic:
    def __init__(self, brokers: Brokers, name: str, replicas: Sequence[tuple[int, ...]]) -> None:
        self.brokers, self.name, self.partitions = brokers, name, range(len(replicas))
        config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        assignment = [list(of_partition) for of_partition in replicas]
        new = NewTopic(name, num_partitions=len(replicas), replica_assignment=assignment, config=config)
        create_topic(brokers.cluster.servers, new)
        self.administration = KafkaAdministration(brokers.cluster, "cut")

    def fill(self, values: Sequence[bytes]) -> None:
        """Write each value to each partition, and wait until it is acknowledged."""
        producer = KafkaProducer(self.brokers.cluster)
        producer.produce(
            self.name,
            [OutRecord(value, partition=partition) for value in values for partition in self.partitions],
        )
        producer.flush(FLUSH_S)
        producer.close()

    def lose_follower(self) -> None:
        """Lose the follower: records written from now on are on the leader alone."""
        self.brokers.servers[FOLLOWER].kill()
        until(lambda: FOLLOWER not in self._in_sync(), "the follower to leave")

    def cut(self) -> None:
        """Let the leader die, and the follower lead with what it has."""
        self.brokers.servers[LEADER].kill()
        until(lambda: LEADER not in self._leaders(), "the leader's partitions to have none")
        self.brokers.servers[FOLLOWER].start()
        until(lambda: not self._leaders() & {LEADER, -1}, "the follower to lead")

    def bring_leader_back(self) -> None:
        self.brokers.servers[LEADER].start()
        until(lambda: LEADER in self._in_sync(), "the old leader to follow")

    def held(self) -> dict[int, list[tuple[int, bytes | None]]]:
        """Return all records by partition, read by a plain consumer."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.brokers.cluster.servers,
                "group.id": "recount",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition(self.name, partition, 0) for partition in self.partitions])
        found: dict[int, list[tuple[int, bytes | None]]] = {partition: [] for partition in self.partitions}
        ended: set[int] = set()

        def all_read() -> bool:
            message = consumer.poll(1.0)
            if message is None:
                return False
            partition, error = int(message.partition() or 0), message.error()
            if error is None:
                found[partition].append((int(message.offset() or 0), message.value()))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(partition)
            return ended == set(self.partitions)

        until(all_read, "all records to be read", poll_s=0)
        consumer.close()
        return found

    def close(self) -> None:
        self.administration.close()

    def _described(self) -> Sequence[PartitionDescription]:
        def described() -> Sequence[PartitionDescription]:
            return self.administration.describe_topics([self.name])[self.name].partitions

        return result_of(described, (Unavailable, KeyError))

    def _leaders(self) -> set[int]:
        return {partition.leader for partition in self._described()}

    def _in_sync(self) -> set[int]:
        return {broker for partition in self._described() for broker in partition.in_sync}
