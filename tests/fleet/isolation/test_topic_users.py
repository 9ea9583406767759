"""Who uses a misplaced topic is told beside it; what brokers do not tell is named, and hides nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from rtolap.fleet.isolation.audit import audit
from rtolap.fleet.isolation.clients import DeclaredClient
from rtolap.fleet.isolation.findings import FindingKind, GroupUse, ProducerUse, TopicUsers
from rtolap.fleet.isolation.topic_users import CollectedUsers, collect_users
from rtolap.fleet.isolation.topics import misplaced_topics
from rtolap.fleet.snapshot.collect import collect_snapshot
from rtolap.kafka.administration.interface import ActiveProducer, GroupMember, ListedGroup
from rtolap.kafka.administration.values import OffsetSpec, Partition
from rtolap.model.fleet import FleetCluster, KafkaFleet, TopicOwner

from tests.support.twins.administered_cluster import MemoryCluster, MemoryGroup
from tests.support.twins.administration import MemoryAdministration
from tests.support.twins.clock import ManualClock

LATE = [Partition("late", number) for number in range(3)]
PAID = Partition("paid", 0)
END = 100
FLEET = KafkaFleet(
    "f",
    {"one": FleetCluster(businesses=("shop",)), "right": FleetCluster(businesses=("delivery",))},
    (TopicOwner(("late",), "delivery"), TopicOwner(("*",), "shop")),
)


@dataclass
class Used:
    """A cluster of two brokers with a misplaced topic, `late`, and one that belongs here, `paid`."""

    cluster: MemoryCluster = field(default_factory=MemoryCluster)

    def __post_init__(self) -> None:
        for broker in (1, 2):
            self.cluster.add_broker(broker, f"rack{broker}")
        for at in (*LATE, PAID):
            self.cluster.add_partition(at, [1 + at.number % 2])
            self.cluster.partitions[at].offsets[OffsetSpec.LATEST] = END

    def group(
        self,
        name: str,
        *members: GroupMember,
        committed: dict[Partition, int] | None = None,
        kind: str = "classic",
        coordinator: int = 1,
    ) -> None:
        state = "Stable" if members else "Empty"
        listed = ListedGroup(name, kind, state, coordinator)
        self.cluster.groups[name] = MemoryGroup(listed, members, committed or {})

    def collected(self) -> CollectedUsers:
        administration = MemoryAdministration(self.cluster)
        snapshot = collect_snapshot(administration, ManualClock(1))
        topics = misplaced_topics(FLEET, "one", snapshot.topics.names)
        assert topics == ("late",)
        return collect_users(administration, snapshot, topics)

    def users(self) -> TopicUsers:
        found = self.collected()
        assert found.missing == ()
        return found.users["late"]

    def groups(self) -> dict[str, GroupUse]:
        return {use.group: use for use in self.users().groups or ()}


@pytest.fixture
def used() -> Used:
    return Used()


def test_groups_that_have_committed_or_read_the_topic_are_told_with_their_lag(used: Used) -> None:
    used.group("was", committed={LATE[0]: 40, LATE[2]: 95, PAID: 1}, coordinator=2)
    reader = GroupMember("app-1", "10.0.0.3", (LATE[1], PAID))
    idle = GroupMember("app-2", "10.0.0.4", (PAID,))
    used.group("is", reader, idle, committed={LATE[1]: END}, kind="consumer")
    used.group("starts", reader, kind="share")
    used.group("elsewhere", idle, committed={PAID: 3})
    assert used.groups() == {
        "was": GroupUse(
            group="was",
            kind="classic",
            state="Empty",
            members=0,
            clients=(),
            assigned=(),
            committed=(0, 2),
            lag_records=65,
        ),
        "is": GroupUse(
            group="is",
            kind="consumer",
            state="Stable",
            members=1,
            clients=("app-1 at 10.0.0.3",),
            assigned=(1,),
            committed=(1,),
            lag_records=0,
        ),
        "starts": GroupUse(
            group="starts",
            kind="share",
            state="Stable",
            members=1,
            clients=("app-1 at 10.0.0.3",),
            assigned=(1,),
            committed=(),
            lag_records=None,
        ),
    }


def test_a_streams_group_is_told_by_what_it_has_committed(used: Used) -> None:
    used.group("joins", GroupMember("a", "h", ()), committed={LATE[0]: 90}, kind="streams")
    use = used.groups()["joins"]
    assert (use.kind, use.members, use.lag_records) == ("streams", None, 10)


def test_partitions_with_producers_are_told_with_the_last_write(used: Used) -> None:
    used.cluster.producers = {
        LATE[0]: (ActiveProducer(7, 5_000), ActiveProducer(8, 6_000, transaction_start=12)),
        LATE[2]: (ActiveProducer(7, 4_000),),
        PAID: (ActiveProducer(9, 1),),
    }
    assert used.users().producers == (
        ProducerUse(partition=0, producers=2, last_written_ms=6_000, open_transactions=1),
        ProducerUse(partition=2, producers=1, last_written_ms=4_000, open_transactions=0),
    )


def test_a_topic_that_nobody_uses_is_told_apart_from_one_of_which_nothing_is_known(used: Used) -> None:
    assert used.users() == TopicUsers(groups=(), producers=())
    used.cluster.forbidden |= {"active_producers"}
    assert used.collected().users["late"].producers is None


@pytest.mark.parametrize(
    ("call", "missing"),
    [
        ("list_groups", "consumer groups (User:memory may not list_groups"),
        ("describe_groups", "members of groups is, more (User:memory may not describe_groups"),
        ("committed_offsets", "committed offsets of groups is, more (User:memory may not"),
        ("active_producers", "producers of partitions late:0, late:1, late:2 (User:memory may not"),
        ("list_offsets", "ends of partitions (User:memory may not list_offsets"),
    ],
)
def test_a_right_that_is_missing_is_named_once_and_hides_nothing_else(
    used: Used, call: str, missing: str
) -> None:
    reader = GroupMember("app-1", "10.0.0.3", (LATE[1],))
    for name in ("is", "more"):
        used.group(name, reader, committed={LATE[1]: 40})
    used.cluster.producers[LATE[0]] = (ActiveProducer(7, 5_000),)
    used.cluster.forbidden |= {call}
    found = used.collected()
    (told,) = found.missing
    assert told.startswith(missing)
    users = found.users["late"]
    if call == "active_producers":
        assert users.producers is None
    else:
        assert [use.partition for use in users.producers or ()] == [0]
    if call == "list_groups":
        assert users.groups == ()
        return
    assert [use.group for use in users.groups or ()] == ["is", "more"]
    for use in users.groups or ():
        assert use.members == (None if call == "describe_groups" else 1)
        assert use.lag_records == (None if call in ("list_offsets", "committed_offsets") else 60)


def test_what_stands_at_a_broker_that_is_away_is_named(used: Used) -> None:
    used.group("kept", committed={LATE[0]: 40, LATE[1]: 40}, coordinator=1)
    used.cluster.stop_broker(2)
    found = used.collected()
    assert found.missing == ("producers and lag of late:1 (they have no leader)",)
    (use,) = found.users["late"].groups or ()
    assert (use.committed, use.lag_records) == ((0, 1), None)


def test_brokers_are_asked_of_misplaced_topics_alone() -> None:
    administration = MemoryAdministration(MemoryCluster())  # no broker would answer
    other = Used()
    snapshot = collect_snapshot(MemoryAdministration(other.cluster), ManualClock(1))
    assert collect_users(administration, snapshot, ()) == CollectedUsers({})


def test_the_audit_shows_users_beside_the_topic_with_our_own_and_what_is_not_known(used: Used) -> None:
    used.group("was", committed={LATE[0]: 40})
    used.cluster.forbidden |= {"active_producers"}
    snapshot = collect_snapshot(MemoryAdministration(used.cluster), ManualClock(1))
    clients = [DeclaredClient("table parcels", "reads", "late", "one")]
    result = audit(FLEET, {"one": snapshot}, clients, {"one": used.collected()})
    (finding,) = [each for each in result.findings if each.kind is FindingKind.WRONG_CLUSTER]
    assert finding.users is not None
    assert finding.users.declared == ("table parcels reads",)
    assert [use.group for use in finding.users.groups or ()] == ["was"]
    assert finding.users.producers is None
    (unchecked,) = [each for each in result.unchecked if "who uses" in each]
    assert unchecked.startswith("one: who uses topics of other clusters: producers of partitions late:0")
    recorded = audit(FLEET, {"one": snapshot}, clients)
    (finding,) = [each for each in recorded.findings if each.kind is FindingKind.WRONG_CLUSTER]
    assert finding.users == TopicUsers(declared=("table parcels reads",))
