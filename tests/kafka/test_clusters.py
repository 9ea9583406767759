"""Kafka clusters by name: what an operator's file may say, what it may not, and what nobody gets to read."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from rtolap.base.errors import DefinitionError, RtolapError
from rtolap.kafka import consumer as kafka
from rtolap.kafka import producer as kafka_out
from rtolap.kafka import topic_lookup as kafka_lookup
from rtolap.kafka.administration.connection import kafka_python_settings
from rtolap.kafka.clusters import OWNED, SECRETS, KafkaCluster, KafkaClusters
from rtolap.kafka.dead_letters import read_dead_letters
from rtolap.kafka.settings import consumer_settings

PASSWORD = "a password of this test"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text(PASSWORD + "\n")
    path.chmod(0o400)
    return path


def declared(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "kafka_clusters.yaml"
    path.write_text(text)
    path.chmod(0o644)
    return path


def loaded(tmp_path: Path, text: str) -> KafkaClusters:
    return KafkaClusters.load("127.0.0.1:9092", declared(tmp_path, text))


def sasl(secret: Path, name: str = "default") -> str:
    return f"""
clusters:
  {name}:
    bootstrap.servers: broker.example.org:9093
    security.protocol: SASL_SSL
    sasl.mechanism: SCRAM-SHA-512
    sasl.username: alice
    sasl.password: {{file: {secret}}}
    socket.keepalive.enable: true
    fetch.wait.max.ms: 250
"""


def test_without_a_file_there_is_the_default_cluster() -> None:
    found = KafkaClusters.load("a:9092,b:9092", None).get("default")
    assert found == KafkaCluster.of("a:9092,b:9092")
    assert (found.servers, found.principal) == ("a:9092,b:9092", "User:ANONYMOUS")


def test_settings_and_secrets_are_read(tmp_path: Path, secret: Path) -> None:
    found = loaded(tmp_path, sasl(secret)).get("default")
    assert dict(found.settings) == {
        "bootstrap.servers": "broker.example.org:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
        "socket.keepalive.enable": "true",
        "fetch.wait.max.ms": "250",
    }
    assert found.principal == "User:alice"


def test_the_default_cluster_stays_where_the_variable_points(tmp_path: Path, secret: Path) -> None:
    clusters = loaded(tmp_path, sasl(secret, "other"))
    assert clusters.get("default").servers == "127.0.0.1:9092"
    assert clusters.get("other").servers == "broker.example.org:9093"
    with pytest.raises(
        DefinitionError, match="knows no Kafka cluster othr; expected default, other; did you"
    ):
        clusters.get("othr")


@pytest.mark.parametrize("name", [*sorted(OWNED), "error_cb", "anything_cb"])
def test_what_the_product_owns_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(DefinitionError, match=f"cluster default: {name} cannot be set"):
        loaded(tmp_path, f"clusters: {{default: {{{name}: 'a value'}}}}")


def test_what_the_product_sets_itself_and_promises_rest_on_is_owned() -> None:
    own = consumer_settings("any")
    promised = {name for name in own if name.startswith(("group", "auto.", "enable.", "isolation", "allow."))}
    assert promised
    assert promised <= set(OWNED)


@pytest.mark.parametrize("name", sorted(SECRETS))
def test_a_secret_stands_in_a_file_of_its_own(tmp_path: Path, name: str) -> None:
    with pytest.raises(DefinitionError, match=f"{name} is a secret; expected a file") as refused:
        loaded(tmp_path, f"clusters: {{default: {{{name}: {PASSWORD}}}}}")
    assert PASSWORD not in str(refused.value)


@pytest.mark.parametrize("mode", [0o440, 0o404, 0o420, 0o644])
def test_a_secret_that_others_may_read_is_refused(tmp_path: Path, secret: Path, mode: int) -> None:
    secret.chmod(mode)
    with pytest.raises(DefinitionError, match=rf"open to others; .*{mode:04o}; chmod go-rwx"):
        loaded(tmp_path, sasl(secret))


def test_a_private_key_that_others_may_read_is_refused(tmp_path: Path, secret: Path) -> None:
    secret.chmod(0o644)
    with pytest.raises(DefinitionError, match=r"the file of ssl.key.location is open to others"):
        loaded(tmp_path, f"clusters: {{default: {{ssl.key.location: {secret}}}}}")


def test_a_file_to_which_others_may_write_is_refused(tmp_path: Path) -> None:
    path = declared(tmp_path, "clusters: {}")
    path.chmod(0o664)
    with pytest.raises(DefinitionError, match=r"others may write to .*; chmod go-w"):
        KafkaClusters.load("a:1", path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("clusters: [", "is no YAML, line 1"),
        ("[]", "declares no clusters"),
        ("clusters: {}\nmore: {}", "declares no clusters"),
        ("clusters: {a: 1}", "a is no cluster"),
        ("clusters: {a: {client.rack: b}}", "cluster a has no bootstrap.servers"),
        ("clusters: {default: {client.rack: [b]}}", "client.rack has no value"),
        ("clusters: {default: {1: b}}", "settings without names"),
        ("clusters: {default: {sasl.password: {file: /nowhere/at/all}}}", "the file of sasl.password cannot"),
    ],
)
def test_a_file_that_says_something_else_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        loaded(tmp_path, text)


def test_values_are_not_shown(tmp_path: Path, secret: Path) -> None:
    clusters = loaded(tmp_path, sasl(secret))
    for shown in (repr(clusters), str(clusters.get("default")), f"{clusters.clusters}"):
        assert PASSWORD not in shown
        assert "alice" not in shown


def test_a_setting_that_the_client_does_not_know_is_named(
    tmp_path: Path, secret: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = sasl(secret).replace("fetch.wait.max.ms: 250", f"fetch.wait.max.ms: {PASSWORD}")
    cluster = loaded(tmp_path, text).get("default")
    caplog.set_level(logging.DEBUG)
    with pytest.raises(DefinitionError, match=r"fetch\.wait\.max\.ms") as refused:
        cluster.open(Consumer, consumer_settings("any"))
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None
    assert PASSWORD not in str(refused.value) + caplog.text
    with pytest.raises(DefinitionError, match=r'No such configuration property: "sasl\.pasword"'):
        loaded(tmp_path, "clusters: {default: {sasl.pasword: x}}").get("default").open(AdminClient, {})


class _Given(Exception):
    """Ends a test's client where it would connect; carries what it was given."""


def _refuse(settings: dict[str, Any]) -> Any:
    raise _Given(settings)


@pytest.mark.parametrize(
    "open_client",
    [
        lambda cluster: kafka.KafkaConsumer(cluster, "events"),
        lambda cluster: kafka_lookup.TopicLookup(cluster, "any", "events"),
        lambda cluster: kafka_out.KafkaProducer(cluster),
        lambda cluster: kafka_out.KafkaAdmin(cluster),
        lambda cluster: next(read_dead_letters(cluster, "events.dead-letters")),
    ],
    ids=["consumer", "lookup", "producer", "admin", "dead letters"],
)
def test_each_client_gets_the_settings(
    open_client: Any, tmp_path: Path, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("consumer", "topic_lookup", "producer", "dead_letters"):
        for client in ("Consumer", "Producer", "AdminClient"):
            monkeypatch.setattr(f"rtolap.kafka.{module}.{client}", _refuse, raising=False)
    cluster = loaded(tmp_path, sasl(secret)).get("default")
    with pytest.raises(_Given) as given:
        open_client(cluster)
    settings = given.value.args[0]
    assert {name: settings[name] for name in cluster.settings} == dict(cluster.settings)
    assert settings["log_level"] == 2


def test_both_clients_get_the_same(tmp_path: Path, secret: Path) -> None:
    text = (
        sasl(secret) + "    ssl.endpoint.identification.algorithm: none\n    ssl.ca.location: /etc/ca.pem\n"
    )
    assert kafka_python_settings(loaded(tmp_path, text).get("default")) == {
        "bootstrap_servers": ["broker.example.org:9093"],
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "alice",
        "sasl_plain_password": PASSWORD,
        "ssl_check_hostname": False,
        "ssl_cafile": "/etc/ca.pem",
    }


def test_trust_that_one_client_cannot_express_is_refused() -> None:
    cluster = KafkaCluster(
        "any", {"bootstrap.servers": "a:1", "enable.ssl.certificate.verification": "false"}
    )
    with pytest.raises(RtolapError, match=r"enable\.ssl\.certificate\.verification has no counterpart"):
        kafka_python_settings(cluster)
