"""What every implementation of the administration must do; run on the twin and on real brokers.

A world has the brokers 1, 2 and 3, each with two log directories and a rack of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rtolap.base.errors import NotFound, Refused, RtolapError, Unavailable
from rtolap.kafka.administration.interface import NO_TRANSACTION, FleetAdministration, ListedGroup
from rtolap.kafka.administration.values import (
    ALL_BROKERS,
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    NO_OFFSET,
    ConfigKind,
    ConfigResource,
    LogDirDescription,
    OffsetSpec,
    Partition,
    Replica,
    Right,
)

from tests.support.waiting import until

BROKERS = (1, 2, 3)
SLOW_BYTES = 4_000_000  # a throttle binds from the second fetch on: more than the first one brings
_EACH_BROKER = [ConfigResource(ConfigKind.BROKER, str(broker)) for broker in BROKERS]


@dataclass
class World:
    """create: makes a topic with these replicas by partition. fill: writes so many bytes, more or less, to a
    partition. settle: lets time pass where it does not by itself. commit: lets a classic group, without
    members, commit an offset. write: writes one record by an idempotent producer."""

    administration: FleetAdministration
    create: Callable[[Sequence[Sequence[int]]], str]
    fill: Callable[[Partition, int], None]
    settle: Callable[[], None]
    commit: Callable[[str, Partition, int], None]
    write: Callable[[Partition], None]

    def log_dirs(self, partition: Partition, broker: int) -> dict[str, LogDirDescription]:
        told = self.administration.describe_log_dirs([broker], [partition])[broker]
        assert told.missing is None
        return {log_dir.path: log_dir for log_dir in told.log_dirs}

    def path(self, partition: Partition, broker: int) -> str | None:
        for path, log_dir in self.log_dirs(partition, broker).items():
            if any(not replica.future for replica in log_dir.replicas):
                return path
        return None

    def other_path(self, partition: Partition, broker: int) -> str:
        here = self.path(partition, broker)
        return next(path for path in self.log_dirs(partition, broker) if path != here)

    def replicas(self, partition: Partition) -> tuple[int, ...]:
        return self.administration.describe_topics([partition.topic])[partition.topic].partitions[0].replicas

    def slow(self, partition: Partition, bytes_per_s: int) -> None:
        """Bind copies of a partition to so few bytes, on every broker when this returns.

        Brokers learn changes in their order, and a reassignment that comes with its throttle begins without
        it: so the topic is bound first, and then every broker is asked for the rate.
        """
        listed = ",".join(f"{partition.number}:{broker}" for broker in BROKERS)
        of_topic = {LEADER_REPLICAS: listed, FOLLOWER_REPLICAS: listed}
        of_broker = dict.fromkeys((LEADER_RATE, FOLLOWER_RATE), str(bytes_per_s))
        topic = ConfigResource(ConfigKind.TOPIC, partition.topic)
        assert self.administration.alter_configs({topic: of_topic}) == {}
        wanted = dict.fromkeys(_EACH_BROKER, of_broker)
        assert self.administration.alter_configs(wanted) == {}
        self.until(lambda: self.administration.configs(_EACH_BROKER, of_broker) == wanted, "the throttle")

    def free(self, partition: Partition) -> None:
        self.administration.alter_configs(
            {
                **{broker: {LEADER_RATE: None, FOLLOWER_RATE: None} for broker in _EACH_BROKER},
                ConfigResource(ConfigKind.TOPIC, partition.topic): {
                    LEADER_REPLICAS: None,
                    FOLLOWER_REPLICAS: None,
                },
            }
        )

    def until(self, is_so: Callable[[], object], what: str) -> None:
        def now() -> object:
            self.settle()
            return is_so()

        until(now, what)


class AdministrationContract:
    def test_the_cluster_names_its_brokers_their_racks_and_a_controller(self, world: World) -> None:
        described = world.administration.describe_cluster()
        assert described.cluster_id
        assert tuple(broker.broker_id for broker in described.brokers) == BROKERS
        assert [broker.rack for broker in described.brokers] == ["rack1", "rack2", "rack3"]
        assert not any(broker.fenced for broker in described.brokers)
        assert described.controller in BROKERS

    def test_topics_tell_replicas_in_order_of_preference(self, world: World) -> None:
        topic = world.create([[2, 1], [3, 2]])
        described = world.administration.describe_topics([topic])[topic]
        assert [(p.number, p.leader, p.replicas) for p in described.partitions] == [
            (0, 2, (2, 1)),
            (1, 3, (3, 2)),
        ]
        assert set(described.partitions[0].in_sync) == {1, 2}
        assert not described.internal
        assert topic in world.administration.describe_topics()
        assert world.administration.describe_topics([f"{topic}_not"]) == {}

    def test_log_directories_tell_sizes_and_disks(self, world: World) -> None:
        topic = world.create([[1, 2]])
        partition = Partition(topic, 0)
        world.fill(partition, 100_000)
        for broker in (1, 2):
            log_dirs = world.log_dirs(partition, broker)
            assert len(log_dirs) == 2
            assert not any(log_dir.offline or log_dir.cordoned for log_dir in log_dirs.values())
            assert all(
                (log_dir.total_bytes or 0) > (log_dir.usable_bytes or 0) for log_dir in log_dirs.values()
            )
            sizes = [replica.size_bytes for log_dir in log_dirs.values() for replica in log_dir.replicas]
            assert len(sizes) == 1
            assert sizes[0] >= 100_000
        assert not any(log_dir.replicas for log_dir in world.log_dirs(partition, 3).values())

    def test_offsets_are_listed_by_the_brokers_that_lead(self, world: World) -> None:
        topic = world.create([[1, 2], [3, 2]])
        led = {Partition(topic, 0): 1, Partition(topic, 1): 3}
        world.fill(Partition(topic, 0), 100_000)

        def listed(spec: OffsetSpec) -> list[object]:
            return list(world.administration.list_offsets(led, spec).values())

        assert listed(OffsetSpec.LATEST) == [10, 0]
        assert listed(OffsetSpec.EARLIEST) == listed(OffsetSpec.EARLIEST_LOCAL) == [0, 0]
        assert listed(OffsetSpec.LATEST_TIERED) == [NO_OFFSET, NO_OFFSET]

    def test_offsets_that_nobody_can_list_are_refused_by_themselves(self, world: World) -> None:
        topic = world.create([[1, 2], [3, 2], [2, 3]])
        known, absent = Partition(topic, 0), Partition(f"{topic}_not", 0)
        asked = {known: 1, Partition(topic, 1): 1, Partition(topic, 2): 99, absent: 2}
        told = world.administration.list_offsets(asked, OffsetSpec.LATEST)
        assert told[known] == 0
        assert isinstance(told[Partition(topic, 1)], Unavailable)
        assert isinstance(told[Partition(topic, 2)], Unavailable)
        assert isinstance(told[absent], NotFound)

    def test_a_broker_that_is_not_there_is_missing_and_the_others_answer(self, world: World) -> None:
        told = world.administration.describe_log_dirs([1, 99])
        assert told[1].missing is None
        assert told[1].log_dirs
        assert told[99].missing is not None
        assert told[99].log_dirs == ()

    def test_a_reassignment_ends_with_the_replicas_in_the_order_asked_for(self, world: World) -> None:
        partition = Partition(world.create([[1, 2]]), 0)
        world.fill(partition, 50_000)
        assert world.administration.reassign({partition: [3, 1]}) == {}
        world.until(lambda: not world.administration.running_reassignments([partition]), "the reassignment")
        world.until(lambda: world.replicas(partition) == (3, 1), "the broker that is asked to learn of it")

    def test_a_running_reassignment_is_listed_with_what_it_adds_and_removes(self, world: World) -> None:
        partition = Partition(world.create([[1]]), 0)
        world.fill(partition, SLOW_BYTES)
        world.slow(partition, 1_000)
        try:
            assert world.administration.reassign({partition: [2]}) == {}
            running = world.administration.running_reassignments([partition])[partition]
            assert (set(running.replicas), running.adding, running.removing) == ({1, 2}, (2,), (1,))
            assert running.target == {2}
            world.until(lambda: partition in world.administration.running_reassignments(), "it among all")
            assert world.administration.reassign({partition: [2]}) == {}  # sent again
        finally:
            world.free(partition)
        world.until(lambda: world.replicas(partition) == (2,), "the reassignment")

    def test_a_cancelled_reassignment_leaves_the_former_brokers(self, world: World) -> None:
        partition = Partition(world.create([[1, 2]]), 0)
        world.fill(partition, SLOW_BYTES)
        world.slow(partition, 1_000)
        try:
            world.administration.reassign({partition: [3, 2]})
            assert world.administration.reassign({partition: None}) == {}
            world.until(lambda: set(world.replicas(partition)) == {1, 2}, "the former replicas")
            assert world.administration.running_reassignments([partition]) == {}
            assert world.administration.reassign({partition: None}) == {}  # nothing runs
        finally:
            world.free(partition)

    def test_what_cannot_be_reassigned_is_refused_by_itself(self, world: World) -> None:
        partition = Partition(world.create([[1]]), 0)
        absent = Partition(f"{partition.topic}_not", 0)
        refused = world.administration.reassign({absent: [1], partition: [1, 99]})
        assert isinstance(refused[absent], NotFound)
        assert isinstance(refused[partition], Refused)
        assert world.replicas(partition) == (1,)

    def test_a_replica_moves_to_another_disk_of_its_broker(self, world: World) -> None:
        partition = Partition(world.create([[1, 2]]), 0)
        world.fill(partition, 50_000)
        there = world.other_path(partition, 1)
        assert world.administration.move_log_dirs({Replica(partition, 1): there}) == {}
        world.until(lambda: world.path(partition, 1) == there, "the move")
        assert world.replicas(partition) == (1, 2)

    def test_moves_to_disks_that_are_not_there_are_refused_by_themselves(self, world: World) -> None:
        partition = Partition(world.create([[1, 2]]), 0)
        there = world.other_path(partition, 1)
        refused = world.administration.move_log_dirs(
            {
                Replica(partition, 1): there,
                Replica(partition, 2): "/no/such/dir",
                Replica(partition, 3): there,
            }
        )
        assert set(refused) == {Replica(partition, 2), Replica(partition, 3)}
        assert isinstance(refused[Replica(partition, 2)], NotFound)
        assert isinstance(refused[Replica(partition, 3)], NotFound)

    def test_a_group_tells_what_it_has_committed_and_that_it_has_no_members(self, world: World) -> None:
        partition = Partition(world.create([[1, 2], [2, 3]]), 1)
        group = f"readers-of-{partition.topic}"
        world.commit(group, partition, 7)
        listed = world.administration.list_groups(BROKERS)
        assert listed.missing == ()
        (known,) = [each for each in listed.groups if each.group == group]
        assert (known.kind, known.state, known.may_have_members) == ("classic", "Empty", False)
        assert known.coordinator in BROKERS
        assert world.administration.committed_offsets([known]) == {group: {partition: 7}}
        assert world.administration.describe_groups([known]) == {group: ()}
        (silent,) = world.administration.list_groups([99]).missing
        assert isinstance(silent, Unavailable)

    def test_groups_that_are_gone_have_no_members_and_those_of_streams_are_not_told(
        self, world: World
    ) -> None:
        for kind in ("classic", "consumer", "share"):
            gone = ListedGroup(f"gone-{kind}", kind, "Stable", 1)
            told = world.administration.describe_groups([gone])[gone.group]
            # another coordinator than the one that was named would be asked again
            assert told == () or isinstance(told, Unavailable)
        streams = ListedGroup("streams", "streams", "Stable", 1)
        assert isinstance(world.administration.describe_groups([streams])["streams"], Refused)

    def test_the_producers_of_a_partition_are_told_by_its_leader(self, world: World) -> None:
        topic = world.create([[1, 2], [3, 2], [2, 3]])
        written, idle, absent = Partition(topic, 0), Partition(topic, 1), Partition(f"{topic}_not", 0)
        world.write(written)
        told = world.administration.active_producers({written: 1, idle: 3, Partition(topic, 2): 1, absent: 2})
        producers = told[written]
        assert not isinstance(producers, RtolapError)
        (producer,) = producers
        assert producer.last_written_ms > 0
        assert producer.transaction_start == NO_TRANSACTION
        assert told[idle] == ()
        assert isinstance(told[Partition(topic, 2)], Unavailable)
        assert isinstance(told[absent], NotFound)

    def test_configs_are_set_and_removed_in_one_batch(self, world: World) -> None:
        topic = ConfigResource(ConfigKind.TOPIC, world.create([[1]]))
        own = ConfigResource(ConfigKind.BROKER, "2")
        absent = ConfigResource(ConfigKind.TOPIC, f"{topic.name}_not")
        names = [LEADER_RATE, LEADER_REPLICAS]
        refused = world.administration.alter_configs(
            {
                topic: {LEADER_REPLICAS: "0:1,0:2"},
                own: {LEADER_RATE: "5000"},
                ALL_BROKERS: {LEADER_RATE: "7000"},
                absent: {LEADER_REPLICAS: "0:1"},
            }
        )
        assert set(refused) == {absent}
        assert isinstance(refused[absent], NotFound)

        def found() -> dict[ConfigResource, dict[str, str]]:
            return world.administration.configs([topic, own, ALL_BROKERS, absent], names)

        world.until(
            lambda: (
                found()
                == {
                    topic: {LEADER_REPLICAS: "0:1,0:2"},
                    own: {LEADER_RATE: "5000"},
                    ALL_BROKERS: {LEADER_RATE: "7000"},
                }
            ),
            "the values",
        )
        removed = {
            topic: {LEADER_REPLICAS: None},
            own: {LEADER_RATE: None},
            ALL_BROKERS: {LEADER_RATE: None},
        }
        assert world.administration.alter_configs(removed) == {}
        assert world.administration.alter_configs(removed) == {}
        world.until(lambda: not any(found().values()), "no values")

    def test_who_may_do_everything_misses_no_right(self, world: World) -> None:
        topic = world.create([[1]])
        assert world.administration.missing_rights([*Right], [*Right], [topic]) == ()

    def test_a_broker_that_is_not_registered_is_forgotten_without_an_error(self, world: World) -> None:
        world.administration.unregister_broker(99)
        brokers = world.administration.describe_cluster().brokers
        assert tuple(broker.broker_id for broker in brokers) == BROKERS

    def test_the_preferred_leader_is_elected(self, world: World) -> None:
        partition = Partition(world.create([[1, 2]]), 0)
        world.administration.reassign({partition: [2, 1]})
        world.until(lambda: world.replicas(partition) == (2, 1), "the order")
        assert world.administration.elect_preferred_leaders([partition]) == {}

        def leader() -> int:
            return (
                world.administration.describe_topics([partition.topic])[partition.topic].partitions[0].leader
            )

        world.until(lambda: leader() == 2, "the leader")
        assert world.administration.elect_preferred_leaders([partition]) == {}

    def test_client_quotas_are_set_told_and_removed(self, world: World) -> None:
        entity = (("client-id", "loader"), ("user", None))
        world.administration.alter_client_quotas({entity: {"producer_byte_rate": 1000.0}})
        world.until(
            lambda: (
                [q.values for q in world.administration.client_quotas() if q.entity == entity]
                == [{"producer_byte_rate": 1000.0}]
            ),
            "the quota",
        )
        world.administration.alter_client_quotas({entity: {"producer_byte_rate": None}})
        world.until(
            lambda: not [q for q in world.administration.client_quotas() if q.entity == entity], "no quota"
        )
