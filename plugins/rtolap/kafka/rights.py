"""The check that a cluster's settings open what a service is about to need: made before it starts.

A broker answers each principal what it may do with the topics that it may describe (KIP-430), so no right to
read ACLs is needed. What is to be checked follows from what the product does:

    reading        Read on the topic; no group is joined, nothing is committed: no right on groups
    writing        Write on the topic; idempotent producers need no more since Kafka 2.8
    making topics  Create on the topic, or on the cluster; asked by a creation that only validates

Brokers without ACLs allow everything, and very old ones tell nothing: then nothing is refused here.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Any, Literal

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from rtolap.base.errors import Forbidden, NotFound, Unavailable
from rtolap.kafka.clusters import KafkaCluster
from rtolap.kafka.errors import FORBIDDEN, GONE_TOPIC, WRONG_CREDENTIALS, translated, unauthorized

Operation = Literal["Read", "Write", "Describe"]

TIMEOUT_S = 10.0
_LOOK_S = 0.1
_NO_ANSWER = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
_OPERATIONS = {"Read": AclOperation.READ, "Write": AclOperation.WRITE, "Describe": AclOperation.DESCRIBE}


@dataclass(frozen=True)
class Need:
    """A right that is needed: `operation` on `topic`.

    Attributes:
        creates: the topic is made where it is missing.
    """

    topic: str
    operation: Operation
    creates: bool = False


def check_rights(cluster: KafkaCluster, needs: Iterable[Need], timeout_s: float = TIMEOUT_S) -> None:
    """Return if everything that `needs` names is allowed.

    Forbidden: names each right that is missing, its principal and its topic. Unauthorized: the credentials
    are wrong. NotFound: there is no topic, and it is not to be made. Unavailable: no broker answers;
    DefinitionError: the settings themselves are wrong.
    """
    wanted = tuple(needs)
    client_errors: list[KafkaError] = []
    admin = cluster.open(AdminClient, {"error_cb": client_errors.append})
    deadline_s = time.monotonic() + timeout_s
    missing: list[str] = []
    absent: list[str] = []
    topics = sorted({need.topic for need in wanted})
    described = admin.describe_topics(
        TopicCollection(topics), include_authorized_operations=True, request_timeout=timeout_s
    )
    for topic in topics:
        of_topic = [need for need in wanted if need.topic == topic]
        try:
            answer = _answer(admin, described[topic], cluster, client_errors, deadline_s)
        except KafkaException as error:
            code = error.args[0].code()
            if code in FORBIDDEN:
                # without Describe, which each of the others brings along, the broker tells no more
                missing += [f"{need.operation} on topic {topic}" for need in of_topic]
            elif code in GONE_TOPIC:
                if not all(need.creates for need in of_topic):
                    absent.append(topic)
                elif not _may_create(admin, topic, cluster, client_errors, deadline_s):
                    missing.append(f"Create on topic {topic}, or on the cluster")
            else:
                raise translated("describe", topic, error, cluster) from error
            continue
        allowed = answer.authorized_operations
        if allowed:  # None: the broker does not tell
            missing += [
                f"{need.operation} on topic {topic}"
                for need in of_topic
                if _OPERATIONS[need.operation] not in allowed
            ]
    if missing:
        raise Forbidden(
            f"{cluster.principal} misses rights on Kafka cluster {cluster.name}: {'; '.join(missing)}",
            action="grant them (kafka-acls --add); what needs them does not start without",
        )
    if absent:
        raise NotFound(
            f"Kafka cluster {cluster.name} has no topic {', '.join(absent)}", action="create it, then start"
        )


def check_reached(cluster: KafkaCluster, timeout_s: float = TIMEOUT_S) -> None:
    """Return if a broker answers. Unauthorized: the credentials are wrong. Unavailable: no broker answers;
    DefinitionError: the settings themselves are wrong."""
    client_errors: list[KafkaError] = []
    admin = cluster.open(AdminClient, {"error_cb": client_errors.append})
    deadline_s = time.monotonic() + timeout_s
    try:
        _answer(admin, admin.describe_cluster(request_timeout=timeout_s), cluster, client_errors, deadline_s)
    except KafkaException as error:
        if error.args[0].code() not in FORBIDDEN:
            raise translated("describe", "the cluster", error, cluster) from error


def _may_create(
    admin: AdminClient, topic: str, cluster: KafkaCluster, client_errors: list[KafkaError], deadline_s: float
) -> bool:
    left_s = max(1.0, deadline_s - time.monotonic())
    wanted = admin.create_topics([NewTopic(topic, 1, 1)], validate_only=True, request_timeout=left_s)
    try:
        _answer(admin, wanted[topic], cluster, client_errors, deadline_s)
    except KafkaException as error:
        return error.args[0].code() not in FORBIDDEN  # another answer says that it was let in
    return True


def _answer(
    admin: AdminClient,
    future: Future[Any],
    cluster: KafkaCluster,
    client_errors: list[KafkaError],
    deadline_s: float,
) -> Any:
    """Return the answer. An error of the connection is raised as soon as it is final: librdkafka itself would
    try until the end."""
    while True:
        admin.poll(0)  # calls error_cb
        for client_error in client_errors:
            if client_error.code() in WRONG_CREDENTIALS:
                raise unauthorized(cluster, client_error)
        try:
            return future.result(_LOOK_S)
        except FutureTimeout as error:
            if time.monotonic() > deadline_s:
                raise _silent(cluster, client_errors) from error
        except KafkaException as error:
            if error.args[0].code() in _NO_ANSWER:
                raise _silent(cluster, client_errors) from error
            raise


def _silent(cluster: KafkaCluster, client_errors: list[KafkaError]) -> Unavailable:
    """Raise what the connection met; a certificate that is not trusted rather than what followed from it."""
    of_tls = [client_error for client_error in client_errors if client_error.code() == KafkaError._SSL]
    met = (of_tls or client_errors)[-1:]
    return Unavailable(
        f"Kafka cluster {cluster.name} at {cluster.servers} does not answer",
        found=cluster.redacted(met[0].str()) if met else "no answer in time",
        action="retry",
    )
