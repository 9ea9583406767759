"""Kafka clusters by name, and the settings by which their clients reach them.

The cluster `default` is where `RTOLAP_KAFKA` points; nothing else is needed for brokers without TLS and
passwords. A host's operator says more in a file, `RTOLAP_KAFKA_CLUSTERS`:

    clusters:
      default:
        security.protocol: SASL_SSL
        sasl.mechanism: SCRAM-SHA-512
        sasl.username: rtolap
        sasl.password: {file: /etc/rtolap/kafka.password}
        ssl.ca.location: /etc/rtolap/kafka-ca.pem
      measurements:
        bootstrap.servers: m1:9093,m2:9093

Settings are those of librdkafka, by their own names. What the product's promises rest on it sets itself
(`OWNED`), and what would load code or run a command may not be set. Values never leave this module but
to a client: a cluster shows its name and the names of its settings (docs/decisions/0023-kafka-clusters.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import KafkaException

from rtolap.base.errors import DefinitionError
from rtolap.base.operator_files import check_private, read_operator_yaml, read_secret
from rtolap.base.settings import Settings
from rtolap.model.problems import did_you_mean
from rtolap.model.table import DEFAULT_KAFKA_CLUSTER

Client = TypeVar("Client")

SERVERS = "bootstrap.servers"

_POSITIONS = "positions are the product's: no group is joined, nothing is committed"
_EXACT = "every record counts once"
_DURABLE = "what was acknowledged stays"
LOADS_CODE = "it would load code or run a command"
OWNED: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("group.id", "group.instance.id", "group.protocol", "group.remote.assignor"),
            *("enable.auto.commit", "auto.commit.enable", "auto.commit.interval.ms"),
            *("enable.auto.offset.store", "auto.offset.reset", "enable.partition.eof"),
            *("offset.store.method", "offset.store.path"),
        ),
        _POSITIONS,
    ),
    **dict.fromkeys(
        ("isolation.level", "transactional.id", "transaction.timeout.ms", "allow.auto.create.topics"), _EXACT
    ),
    **dict.fromkeys(
        (
            *("enable.idempotence", "enable.gapless.guarantee", "acks", "request.required.acks"),
            *("message.timeout.ms", "delivery.timeout.ms", "retries", "message.send.max.retries"),
        ),
        _DURABLE,
    ),
    **dict.fromkeys(("client.id", "log_level", "log.queue", "enabled_events"), "each client sets its own"),
    "metadata.broker.list": f"say {SERVERS}",
    "default.topic.config": "say the settings themselves",
    **dict.fromkeys(("on_delivery", "on_commit", "logger", "opaque"), LOADS_CODE),
    **dict.fromkeys(
        ("plugin.library.paths", "ssl.engine.location", "ssl.providers", "sasl.kerberos.kinit.cmd"),
        LOADS_CODE,
    ),
}
SECRETS = frozenset(
    (
        *("sasl.password", "ssl.key.password", "ssl.key.pem", "ssl.keystore.password"),
        *("sasl.oauthbearer.client.secret", "sasl.oauthbearer.config"),
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.private.key.pem",
    )
)
_KEY_FILES = (
    "ssl.key.location",
    "ssl.keystore.location",
    "sasl.kerberos.keytab",
    "sasl.oauthbearer.assertion.private.key.file",
)


@dataclass(frozen=True)
class KafkaCluster:
    """A cluster's name and all that its clients need. Equal where both are; prints no value."""

    name: str
    settings: Mapping[str, str] = field(repr=False, hash=False)

    @classmethod
    def of(cls, cluster: KafkaCluster | str) -> KafkaCluster:
        """Return the cluster of these settings. Bootstrap servers alone stand for a cluster without any other
        setting."""
        if isinstance(cluster, KafkaCluster):
            return cluster
        return cls(DEFAULT_KAFKA_CLUSTER, {SERVERS: cluster})

    @property
    def servers(self) -> str:
        return self.settings[SERVERS]

    @property
    def principal(self) -> str:
        """Return the principal of its clients at the brokers, in the words of ACLs, as far as the settings
        tell."""
        protocol = self.settings.get("security.protocol", "PLAINTEXT").upper()
        user = self.settings.get("sasl.username") or self.settings.get("sasl.kerberos.principal")
        if protocol.startswith("SASL"):
            return f"User:{user}" if user else "the SASL user of its settings"
        if protocol == "SSL" and {"ssl.certificate.location", "ssl.keystore.location"} & set(self.settings):
            return "the user of its client certificate"
        return "User:ANONYMOUS"

    def open(self, make: Callable[[dict[str, Any]], Client], defaults: Mapping[str, Any]) -> Client:
        """Return a client of librdkafka.

        The cluster's settings come before the product's `defaults`, among which those of `OWNED` cannot be
        met: no other may set them.

        Raises DefinitionError for a setting that the client does not know or cannot use.
        """
        try:
            return make({**defaults, **self.settings, "log_level": 2})
        except (KafkaException, TypeError, ValueError) as error:
            reason = error.args[0].str() if isinstance(error, KafkaException) else str(error)
        # outside of the handler: the client's own error, which may repeat a value, goes no further
        raise DefinitionError(
            f"Kafka cluster {self.name} cannot be reached as it is set", found=self.redacted(reason)
        )

    def redacted(self, text: str) -> str:
        """Return the text without the secrets of the settings."""
        for name in SECRETS & set(self.settings):
            if self.settings[name]:
                text = text.replace(self.settings[name], "***")
        return text


@dataclass(frozen=True)
class KafkaClusters:
    """The clusters that this host knows."""

    clusters: Mapping[str, KafkaCluster]

    @classmethod
    def of_host(cls, settings: Settings) -> KafkaClusters:
        """See `load`."""
        return cls.load(settings.kafka, settings.kafka_clusters)

    @classmethod
    def load(cls, servers: str, file: Path | None) -> KafkaClusters:
        """Read the file. `servers` are those of the cluster `default`, where the file does not say other
        ones.

        Raises DefinitionError: the file, or a file that it names, cannot be read, is open to others, or says
        what may not be shown.
        """
        declared = {} if file is None else _read(file)
        declared.setdefault(DEFAULT_KAFKA_CLUSTER, {})
        clusters: dict[str, KafkaCluster] = {}
        for name, settings in declared.items():
            where = f"Kafka cluster {name}"
            if name == DEFAULT_KAFKA_CLUSTER:
                settings = {SERVERS: servers, **settings}
            clusters[name] = cluster_of(
                name, {key: _value(where, key, value) for key, value in settings.items()}
            )
            _check_key_files(where, clusters[name].settings)
        return cls(clusters)

    def get(self, name: str) -> KafkaCluster:
        """Return the cluster of a name. Raises DefinitionError where this host has none."""
        try:
            return self.clusters[name]
        except KeyError:
            hint = did_you_mean(name, self.clusters)
            raise DefinitionError(
                f"this host knows no Kafka cluster {name}",
                expected=", ".join(sorted(self.clusters)),
                action=hint or "declare it in the file that RTOLAP_KAFKA_CLUSTERS names",
            ) from None


def cluster_of(name: str, settings: Mapping[str, str]) -> KafkaCluster:
    """Return the cluster that settings describe. Raises DefinitionError for settings that the caller must not
    set, and where servers are missing."""
    for key in settings:
        reason = OWNED.get(key, LOADS_CODE if key.endswith("_cb") else None)
        if reason is not None:
            raise DefinitionError(f"Kafka cluster {name}: {key} cannot be set", expected=reason)
    if not settings.get(SERVERS):
        raise DefinitionError(f"Kafka cluster {name} has no {SERVERS}", expected="host:port, comma-separated")
    return KafkaCluster(name, dict(settings))


def plain_value(where: str, key: str, value: object) -> str:
    """Return a scalar as librdkafka reads it. Raises DefinitionError, without the value."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise DefinitionError(f"{where}: {key} has no value", expected="a text or number")


def _value(where: str, key: str, value: object) -> str:
    return secret(where, key, value) if key in SECRETS else plain_value(where, key, value)


def secret(where: str, key: str, value: object) -> str:
    """Return what the file of a secret holds. Raises DefinitionError where it is declared otherwise."""
    path = value.get("file") if isinstance(value, dict) and set(value) == {"file"} else None
    if not isinstance(path, str):
        raise DefinitionError(
            f"{where}: {key} is a secret", expected=f"a file of its own: {key}: {{file: /path}}"
        )
    return read_secret(Path(path), f"{where}: the file of {key}")


def _read(path: Path) -> dict[str, dict[str, object]]:
    parsed = read_operator_yaml(path, "the file of Kafka clusters")
    clusters = parsed.get("clusters") if isinstance(parsed, dict) and set(parsed) == {"clusters"} else None
    if not isinstance(clusters, dict):
        raise DefinitionError(f"{path} declares no clusters", expected="clusters: {name: settings}")
    for name, settings in clusters.items():
        if not isinstance(name, str) or not isinstance(settings, dict):
            raise DefinitionError(f"{path}: {name} is no cluster", expected="a name with settings")
        if not all(isinstance(key, str) for key in settings):
            raise DefinitionError(f"{path}: {name} has settings without names", expected="name: value")
    return clusters


def _check_key_files(where: str, settings: Mapping[str, str]) -> None:
    for key in _KEY_FILES:
        if key not in settings:
            continue
        check_private(Path(settings[key]), f"{where}: the file of {key}")
