"""Isolation on real brokers by commands: what stands in the wrong cluster, and client quotas."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from rtolap.kafka.administration.client import KafkaAdministration

from tests.integration.fleet.conftest import world_of
from tests.support.commands import ended
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
        return ended(env, "fleet", "quotas", "default", "--registry", str(registry), *arguments)

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
    done = ended(
        environment, *("fleet", "audit", "--registry", str(definitions), "--cluster", "here", "--json")
    )
    assert done.returncode == 3, done
    found = {each["kind"]: each for each in json.loads(done.stdout)["findings"] if "wrong" in each["kind"]}
    assert (found["wrong_cluster"]["subject"], found["wrong_cluster"]["expected"]) == (topic, "right")
    assert found["client_in_wrong_cluster"]["subject"] == "table parcels"
    assert found["client_in_wrong_cluster"]["expected"] == "right"
