"""Isolation on real brokers by commands: what stands in the wrong cluster, and client quotas."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, ShareConsumer
from rtolap.base.errors import RtolapError
from rtolap.kafka.administration.client import KafkaAdministration
from rtolap.kafka.administration.values import Partition

from tests.integration.fleet.conftest import world_of
from tests.support.commands import called
from tests.support.fleet.brokers import Brokers
from tests.support.waiting import until

pytestmark = pytest.mark.integration

LOUD = (("client-id", "spark"), ("user", "backfill"))
OTHER = (("ip", "10.1.2.3"),)
REGISTRY = """kind: kafka_fleet
name: f
topics: [{match: ["*"], business: shop}]
clusters:
  default:
    businesses: [shop]
    quotas:
      - {user: backfill, client_id: spark, consumer_byte_rate: 10_000_000, request_percentage: 50}
"""


def test_quotas_are_reviewed_applied_with_the_token_and_reviewed_again(
    brokers: Brokers, zookeeper: str, unique_name: str, tmp_path: Path
) -> None:
    registry, token = tmp_path / "clusters.yaml", tmp_path / "token"
    registry.write_text(REGISTRY)
    token.write_text(secrets.token_urlsafe(20))
    environment = {
        "RTOLAP_KAFKA": brokers.cluster.servers,
        "RTOLAP_ZOOKEEPER": zookeeper,
        "RTOLAP_ZOOKEEPER_ROOT": f"/{unique_name}",
        "RTOLAP_TOKEN_FILE": str(token),
        "RTOLAP_SESSION_TIMEOUT_S": "2",
    }
    without_token = {**environment, "RTOLAP_TOKEN_FILE": str(tmp_path / "absent")}
    apply = ("--apply", "--by", "ann", "--reason", "noisy")

    def quotas(*arguments: str, env: dict[str, str] = environment) -> CompletedProcess[str]:
        return called(env, "fleet", "quotas", "default", "--registry", str(registry), *arguments)

    def document(*arguments: str) -> Any:
        return json.loads(quotas(*arguments, "--json").stdout)

    administration = KafkaAdministration(brokers.cluster)

    def live() -> dict[Any, dict[str, float]]:
        return {quota.entity: quota.values for quota in administration.client_quotas()}

    administration.alter_client_quotas({OTHER: {"connection_creation_rate": 7.0}})
    try:
        until(lambda: OTHER in live(), "a quota that nobody declared")
        reviewed = quotas(env=without_token)  # to look needs no token
        assert reviewed.returncode == 3, reviewed
        assert [row["key"] for row in document()] == [
            *("consumer_byte_rate", "request_percentage", "connection_creation_rate"),
        ]
        refused = quotas(*apply, env=without_token)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "token" in refused.stderr
        assert quotas("--apply").returncode == 2  # no reason
        assert LOUD not in live()
        assert document("--audit") == []

        applied = quotas(*apply)
        assert applied.returncode == 0, applied
        assert "leaves it" in applied.stdout  # what nobody declared
        until(lambda: LOUD in live(), "the quota")
        assert live()[LOUD] == {"consumer_byte_rate": 10_000_000.0, "request_percentage": 50.0}
        assert live()[OTHER] == {"connection_creation_rate": 7.0}
        assert quotas().returncode == 0
        administration.alter_client_quotas({LOUD: {"request_percentage": 90.0}})
        until(lambda: live()[LOUD]["request_percentage"] == 90.0, "somebody's change")
        changed = quotas()
        assert changed.returncode == 3
        assert "\trequest_percentage\t50.0\t90.0\tsets it" in changed.stdout

        (entry,) = document("--audit")
        assert (entry["by"], entry["reason"], entry["taken"]) == ("ann", "noisy", True)
        assert {each["key"] for each in entry["differences"]} == {"consumer_byte_rate", "request_percentage"}
        assert quotas("--audit").stdout.count("\tann\t") == 2
    finally:
        administration.alter_client_quotas(
            {
                OTHER: {"connection_creation_rate": None},
                LOUD: {"consumer_byte_rate": None, "request_percentage": None},
            }
        )
        administration.close()


def test_topics_and_their_consumers_in_the_wrong_cluster_are_found_without_a_token(
    brokers: Brokers, unique_name: str, tmp_path: Path
) -> None:
    world = world_of(brokers, unique_name)
    topic = world.create([[1, 2, 3]])
    until(lambda: topic in world.administration.describe_topics([topic]), "the topic")
    world.administration.close()
    definitions = tmp_path / "definitions.yaml"
    definitions.write_text(
        f"""kind: kafka_fleet
name: f
topics: [{{match: ["{topic}"], business: delivery}}, {{match: ["*"], business: shop}}]
clusters:
  here: {{businesses: [shop], kafka_cluster: default, roles: combined, min_in_sync: 1}}
  right: {{businesses: [delivery], kafka_cluster: far}}
---
kind: table
name: parcels
topic: {topic}
time: {{column: at}}
columns: [{{name: at, type: bigint}}]
"""
    )
    environment = {
        "RTOLAP_KAFKA": brokers.cluster.servers,
        "RTOLAP_TOKEN_FILE": str(tmp_path / "absent"),
    }
    done = called(
        environment, *("fleet", "audit", "--registry", str(definitions), "--cluster", "here", "--json")
    )
    assert done.returncode == 3, done
    found = {each["kind"]: each for each in json.loads(done.stdout)["findings"] if "wrong" in each["kind"]}
    assert (found["wrong_cluster"]["subject"], found["wrong_cluster"]["expected"]) == (topic, "right")
    assert found["client_in_wrong_cluster"]["subject"] == "table parcels"
    assert found["client_in_wrong_cluster"]["expected"] == "right"
    users = found["wrong_cluster"]["users"]
    assert (users["groups"], users["producers"]) == ([], [])
    assert users["declared"] == ["table parcels reads"]


def test_who_uses_a_topic_in_the_wrong_cluster_is_told_by_the_brokers(
    brokers: Brokers, unique_name: str, tmp_path: Path
) -> None:
    """Members of the classic protocol, of the newer one and of a share group; a group that is gone with what
    it has committed; a producer, and one within a transaction. One that reads another topic is not told."""
    world = world_of(brokers, unique_name)
    topic, other = world.create([[1, 2], [2, 3], [3, 1]]), world.create([[2, 1]])
    servers = {"bootstrap.servers": brokers.cluster.servers}
    known = {kind: f"{unique_name}-{kind}" for kind in ("classic", "consumer", "share", "was", "elsewhere")}
    registry = tmp_path / "clusters.yaml"
    registry.write_text(
        f"""kind: kafka_fleet
name: f
topics: [{{match: ["{topic}"], business: delivery}}, {{match: ["*"], business: shop}}]
clusters:
  here: {{businesses: [shop], kafka_cluster: default, roles: combined, min_in_sync: 1}}
  right: {{businesses: [delivery], kafka_cluster: far}}
"""
    )
    arguments = ("fleet", "audit", "--registry", str(registry), "--cluster", "here", "--json")
    for number in range(10):
        world.write(Partition(topic, number % 2))
    world.commit(known["was"], Partition(topic, 0), 2)
    world.commit(known["was"], Partition(other, 0), 0)
    world.commit(known["elsewhere"], Partition(other, 0), 0)
    producer = Producer({**servers, "transactional.id": unique_name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"record", partition=1)
    assert producer.flush(30) == 0
    with (
        reading(lambda: Consumer({**servers, "group.id": known["classic"], "client.id": "old"}), topic),
        reading(
            lambda: Consumer(
                {
                    **servers,
                    "group.id": known["consumer"],
                    "client.id": "new",
                    "group.protocol": "consumer",
                }
            ),
            topic,
        ),
        reading(lambda: ShareConsumer({**servers, "group.id": known["share"], "client.id": "many"}), topic),
    ):
        live = {known[kind] for kind in ("classic", "consumer", "share")}
        until(
            lambda: assigned(world.administration, topic, live) == dict.fromkeys(live, 3),
            lambda: f"members that read: {assigned(world.administration, topic, live)}",
        )
        done = called({"RTOLAP_KAFKA": brokers.cluster.servers}, *arguments)
    producer.abort_transaction(30)
    world.administration.close()
    assert done.returncode == 3, done
    (found,) = [each for each in json.loads(done.stdout)["findings"] if each["kind"] == "wrong_cluster"]
    groups = {each["group"]: each for each in found["users"]["groups"]}
    assert set(groups) == {known[kind] for kind in known if kind != "elsewhere"}
    for kind, client in (("classic", "old"), ("consumer", "new"), ("share", "many")):
        group = groups[known[kind]]
        assert (group["kind"], group["state"], group["members"]) == (kind, "Stable", 1)
        assert (group["assigned"], group["clients"]) == ([0, 1, 2], [f"{client} at 127.0.0.1"])
    was = groups[known["was"]]
    assert (was["kind"], was["state"], was["members"]) == ("classic", "Empty", 0)
    assert (was["committed"], was["lag_records"]) == ([0], 3)
    told = {each["partition"]: each for each in found["users"]["producers"]}
    assert {number: each["producers"] for number, each in told.items()} == {0: 5, 1: 6}
    assert {number: each["open_transactions"] for number, each in told.items()} == {0: 0, 1: 1}
    assert all(abs(each["last_written_ms"] - time.time() * 1000) < 600_000 for each in told.values())


@contextmanager
def reading(opened: Callable[[], Consumer | ShareConsumer], topic: str) -> Iterator[None]:
    """A consumer reads the topic all the time; it joins, and stays, by its polls."""
    over = threading.Event()

    def read() -> None:
        consumer = opened()
        consumer.subscribe([topic])
        while not over.is_set():
            consumer.poll(0.1)
        consumer.close()

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(30)


def assigned(administration: KafkaAdministration, topic: str, groups: set[str]) -> dict[str, int]:
    """How many partitions of the topic the members of each group read."""
    listed = [known for known in administration.list_groups((1, 2, 3)).groups if known.group in groups]
    members = administration.describe_groups(listed)
    return {
        group: sum(at.topic == topic for member in of_group for at in member.assigned)
        for group, of_group in members.items()
        if not isinstance(of_group, RtolapError)
    }
