"""A cluster's settings in the words of kafka-python, for what only that client can do.

One declaration serves both clients: this table translates what reaching and trusting brokers takes. Settings
that only tune librdkafka have no counterpart and are left out; one that decides whom to trust or who one is
has to have one, or the client is refused rather than opened with less.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rtolap.base.errors import DefinitionError
from rtolap.kafka.clusters import SERVERS, KafkaCluster

_NAMES: Mapping[str, str] = {
    SERVERS: "bootstrap_servers",
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "ssl.crl.location": "ssl_crlfile",
    "ssl.cipher.suites": "ssl_ciphers",
}
_IDENTIFICATION = "ssl.endpoint.identification.algorithm"


def kafka_python_settings(cluster: KafkaCluster) -> dict[str, Any]:
    """Keyword arguments of its clients. Raises DefinitionError, which names the setting."""
    settings: dict[str, Any] = {}
    for name, value in cluster.settings.items():
        if name in _NAMES:
            settings[_NAMES[name]] = value.upper() if name == "security.protocol" else value
        elif name == _IDENTIFICATION:
            settings["ssl_check_hostname"] = value != "none"
        elif name.startswith(("sasl.", "ssl.", "enable.ssl.", "https.")):
            raise DefinitionError(
                f"Kafka cluster {cluster.name}: {name} has no counterpart in kafka-python",
                expected=f"one of {', '.join(sorted((*_NAMES, _IDENTIFICATION)))}",
            )
    settings["bootstrap_servers"] = [server.strip() for server in cluster.servers.split(",")]
    return settings
