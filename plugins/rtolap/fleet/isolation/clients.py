"""The audit of rtolap's own clients: tables, loaders and subscriptions whose topics belong elsewhere.

A definition names the cluster that it reads or writes, and the registry the cluster of the topic. No broker
is queried, so a declared client is found before it runs and before its topic is created in the wrong place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rtolap.fleet.isolation.findings import Finding, FindingKind, Severity
from rtolap.model.fleet import KafkaFleet, first_matches
from rtolap.model.yaml_files import Definitions


@dataclass(frozen=True)
class DeclaredClient:
    """A declared reader or writer of a topic.

    Attributes:
        what: Kind and name, such as "loader flights".
        kafka_cluster: Name of the cluster on hosts.
    """

    what: str
    does: Literal["reads", "writes"]
    topic: str
    kafka_cluster: str


def declared_clients(definitions: Definitions) -> tuple[DeclaredClient, ...]:
    """Return what reads or writes a topic, in the order of kinds and names."""
    found = [
        *(
            DeclaredClient(f"table {name}", "reads", table.topic, table.kafka_cluster)
            for name, table in sorted(definitions.tables.items())
        ),
        *(
            DeclaredClient(f"loader {name}", "reads", loader.topic, loader.kafka_cluster)
            for name, loader in sorted(definitions.loaders.items())
        ),
    ]
    for name, subscription in sorted(definitions.subscriptions.items()):
        listener = subscription.listener
        if listener.topic is not None:
            found.append(DeclaredClient(f"subscription {name}", "writes", listener.topic, listener.cluster))
    return tuple(found)


def client_findings(fleet: KafkaFleet, name: str, clients: Sequence[DeclaredClient]) -> Iterator[Finding]:
    """Yield findings of clients whose topic the cluster `name` does not take. Topics without an owner are
    left to the audit of topics.
    """
    mine = [client for client in clients if client.kafka_cluster == fleet.kafka_cluster(name)]
    owners = first_matches([client.topic for client in mine], [owner.match for owner in fleet.topics])
    for client, place in zip(mine, owners, strict=True):
        if place is None or fleet.clusters[name].takes(fleet.topics[place]):
            continue
        owner = fleet.topics[place]
        right = [each for each, cluster in fleet.clusters.items() if cluster.takes(owner)]
        whose = owner.business if owner.priority is None else f"{owner.business}, priority {owner.priority}"
        yield Finding(
            kind=FindingKind.CLIENT_IN_WRONG_CLUSTER,
            severity=Severity.WARNING,
            subject=client.what,
            message=f"it {client.does} {client.topic}, a topic of {whose}, in the wrong cluster",
            expected=" or ".join(right),
            found=name,
            repair=f"name Kafka cluster {fleet.kafka_cluster(right[0])} in its definition"
            if right
            else "let a cluster of the registry take the business",
        )


def clients_elsewhere(fleet: KafkaFleet, clients: Sequence[DeclaredClient]) -> Iterator[str]:
    """Yield, in words, those whose cluster is none of the fleet's: nothing is known of where they belong."""
    known = {fleet.kafka_cluster(name) for name in fleet.clusters}
    for client in clients:
        if client.kafka_cluster not in known:
            yield f"{client.what}: Kafka cluster {client.kafka_cluster}, which the registry does not have"
