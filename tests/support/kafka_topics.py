"""Topics of tests, made so that every broker knows them when the call returns.

The controller answers when it has made a topic; a broker that is asked next may not have heard of it yet.
"""

from __future__ import annotations

from functools import partial

from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.waiting import until

_TIMEOUT_S = 30.0
_SOON = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE)


def create_topic(servers: str, new: NewTopic) -> None:
    """Create a topic. `servers` are all running brokers, "host:port,host:port". Raises KafkaException, also
    where it exists."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([new], operation_timeout=_TIMEOUT_S)[new.topic].result(_TIMEOUT_S)
    for server in servers.split(","):
        until(partial(_is_known, server, new.topic), f"{new.topic} at {server}", poll_s=0.05)


def _is_known(server: str, topic: str) -> bool:
    # a new client asks the server that it is given; one that knows the others may ask any of them
    described = AdminClient({"bootstrap.servers": server}).list_topics(topic, timeout=_TIMEOUT_S)
    error = described.topics[topic].error
    assert error is None or error.code() in _SOON, error
    return error is None
