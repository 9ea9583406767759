"""An exchange with brokers through kafka-python, whichever of them answers.

kafka-python's own methods send to one broker after the other, raise where the first of many fails, and keep
asking a controller that has died. Its connection manager, on which they stand, does what is needed: requests
to many brokers go out at once, each is answered or fails alone, and what any broker can do goes to one that
is reachable. Brokers of Kafka 4 pass on what is their controller's.

One declaration of a cluster serves both clients: a table translates what reaching and trusting brokers takes
into kafka-python's words. Settings that only tune librdkafka have no counterpart and are left out; one that
decides whom to trust or who one is has to have one, or the client is refused rather than opened with less.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from kafka import errors as kafka_errors
from kafka.admin import KafkaAdminClient

from rtolap.base.errors import DefinitionError, RtolapError
from rtolap.kafka.administration.errors import is_passing, translated
from rtolap.kafka.clusters import SERVERS, KafkaCluster
from rtolap.kafka.rights import check_reached

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

REQUEST_TIMEOUT_S = 20.0
_AGAIN_S = 0.1
_ANSWER_BYTES_MAX = 1 << 30  # the metadata of a million partitions is some 60 MB

Request = Callable[[], Any]
"""Makes a request: one that was sent keeps the version of the broker that it went to."""


def kafka_python_settings(cluster: KafkaCluster) -> dict[str, Any]:
    """Return keyword arguments of the clients. Raises DefinitionError, which names the setting."""
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


class AdministrationConnection:
    """A connection for administration. It is thread-safe, and raises as `interface` says."""

    def __init__(self, cluster: KafkaCluster, client_id: str, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        self.cluster = cluster
        self._timeout_s = timeout_s
        # kafka-python often loses the answer to a wrong password, and tries it until its time is over
        check_reached(cluster, timeout_s)
        # at DEBUG the client logs its settings, the password among them; at INFO every look at the cluster;
        # at ERROR every broker that is away, which is raised here too
        logging.getLogger("kafka").setLevel(logging.CRITICAL)
        try:
            self._client = KafkaAdminClient(
                **kafka_python_settings(cluster),
                client_id=client_id,
                request_timeout_ms=int(timeout_s * 1000),
                bootstrap_timeout_ms=int(timeout_s * 1000),
                receive_message_max_bytes=_ANSWER_BYTES_MAX,
                reconnect_backoff_max_ms=1000,
                metadata_max_age_ms=10_000,  # brokers that join and leave are seen
            )
        except (kafka_errors.KafkaError, OSError) as error:
            reason = translated("connect", "to be let in", error, cluster)
        else:
            self._manager = self._client._manager
            return
        raise reason

    def ask(
        self,
        request: Request,
        attempt: str,
        right: str,
        *,
        failed: Callable[[Any], Exception | None] = lambda _: None,
    ) -> Any:
        """Return the answer of any broker; of another one, until the time is over, where it cannot answer
        now.

        `failed`: the error that the answer as a whole states; without it none does.
        """
        deadline_s = time.monotonic() + self._timeout_s

        async def exchange() -> Any:
            while True:
                error: Exception | None
                try:
                    answer = await self._manager.send(request())
                    error = failed(answer)
                    if error is None:
                        return answer
                except (kafka_errors.KafkaError, OSError) as raised:
                    error = raised
                if not is_passing(error) or time.monotonic() > deadline_s:
                    raise error
                await self._manager._net.sleep(_AGAIN_S)

        return self._run(exchange, attempt, right)

    def ask_each(self, requests: Mapping[int, Request], attempt: str, right: str) -> dict[int, Any]:
        """Return the answer of every broker that is named, or the RtolapError that stands for it; sent to all
        of them at once.
        """

        async def exchange() -> dict[int, Any]:
            under_way = {}
            answers: dict[int, Any] = {}
            for broker, request in requests.items():
                try:
                    under_way[broker] = self._manager.send(request(), node_id=broker)
                except (kafka_errors.KafkaError, OSError) as error:
                    answers[broker] = error
            for broker, future in under_way.items():
                try:
                    answers[broker] = await future
                except (kafka_errors.KafkaError, OSError) as error:
                    answers[broker] = error
            return answers

        answers: dict[int, Any] = self._run(exchange, attempt, right)
        return {
            broker: self._of_broker(broker, answer, attempt, right)
            if isinstance(answer, Exception)
            else answer
            for broker, answer in answers.items()
        }

    def close(self) -> None:
        self._client.close()

    def _run(self, exchange: Callable[[], Any], attempt: str, right: str) -> Any:
        try:
            return self._manager.run(exchange)
        except (kafka_errors.KafkaError, OSError) as error:
            reason = translated(attempt, right, error, self.cluster)
        raise reason  # outside of the handler: the client's error may repeat a secret

    def _of_broker(self, broker: int, error: Exception, attempt: str, right: str) -> RtolapError:
        return translated(f"{attempt} at broker {broker}", right, error, self.cluster)
