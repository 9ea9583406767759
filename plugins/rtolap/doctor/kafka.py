"""Kafka: clusters with their brokers, and settings of topics that lose events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

from rtolap.base.settings import Settings
from rtolap.doctor.findings import Finding, Look, failed, ok, warning
from rtolap.kafka.administration.client import KafkaAdministration
from rtolap.kafka.administration.interface import FleetAdministration
from rtolap.kafka.administration.values import ConfigKind, ConfigResource, TopicDescription
from rtolap.kafka.clusters import KafkaClusters
from rtolap.model.table import DEFAULT_KAFKA_CLUSTER

_UNCLEAN = "unclean.leader.election.enable"
_POLICY = "cleanup.policy"


def looks(settings: Settings, topics: Sequence[tuple[str, str]]) -> Iterator[Look]:
    """Give a look at each Kafka cluster that this host knows.

    topics: cluster and topic of each table and loader. Raises DefinitionError for a file of clusters.
    """
    clusters = KafkaClusters.of_host(settings)
    for name in sorted(clusters.clusters):
        read = sorted({topic for cluster, topic in topics if (cluster or DEFAULT_KAFKA_CLUSTER) == name})

        def make(name: str = name, read: Sequence[str] = read) -> tuple[Finding, ...]:
            with closing(KafkaAdministration(clusters.get(name), "rtolap-doctor")) as administration:
                return tuple(look_at_cluster(name, administration, read))

        yield Look(f"Kafka {name}", make)


def look_at_cluster(
    name: str, administration: FleetAdministration, topics: Sequence[str]
) -> Iterator[Finding]:
    """All brokers serve, the topics are there, each partition has a leader, and no declaration loses
    acknowledged records."""
    subject = f"Kafka {name}"
    described = administration.describe_cluster()
    fenced = sorted(broker.broker_id for broker in described.brokers if broker.fenced)
    if fenced:
        found = f"brokers {', '.join(map(str, fenced))} are registered and serve nobody"
        yield warning(subject, found, "see whether they run, or `rtolap fleet` retire them")
    else:
        yield ok(subject, f"{len(described.brokers)} brokers, cluster {described.cluster_id}")
    if not topics:
        return
    there = administration.describe_topics(topics)
    configs = administration.configs(
        [ConfigResource(ConfigKind.TOPIC, topic) for topic in sorted(there)],
        (_UNCLEAN, _POLICY),
        inherited=True,
    )
    for topic in topics:
        yield from _look_at_topic(
            f"topic {topic} of {name}",
            there.get(topic),
            configs.get(ConfigResource(ConfigKind.TOPIC, topic), {}),
            topic,
        )


def _look_at_topic(
    subject: str, described: TopicDescription | None, config: dict[str, str], topic: str
) -> Iterator[Finding]:
    if described is None:
        yield failed(subject, "it does not exist", f"kafka-topics.sh --create --topic {topic} …")
        return
    leaderless = sorted(each.number for each in described.partitions if each.leader < 0)
    change = f"kafka-configs.sh --alter --entity-type topics --entity-name {topic} --add-config"
    if leaderless:
        numbers = ", ".join(map(str, leaderless))
        yield failed(subject, f"partitions {numbers} have no leader", "bring back a broker that has them")
    elif config.get(_UNCLEAN) == "true":
        found = "a broker that lacks acknowledged records may lead: they are lost"
        yield warning(subject, found, f"{change} {_UNCLEAN}=false")
    elif "compact" in config.get(_POLICY, ""):
        found = "it is compacted: records go before they are read, and are in no count"
        yield warning(subject, found, f"{change} {_POLICY}=delete")
    else:
        yield ok(subject, f"{len(described.partitions)} partitions, each with a leader")
