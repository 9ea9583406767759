"""Whatever the Kafka library raises has a type of ours, and nothing that it raises while it ends gets out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from rtolap.base.errors import CommitUnknown, NotLeader, Refused, RtolapError, Unavailable
from rtolap.kafka.clusters import KafkaCluster
from rtolap.kafka.consumer import KafkaConsumer
from rtolap.kafka.errors import translated
from rtolap.kafka.producer import KafkaProducer
from rtolap.kafka.topic_lookup import TopicLookup
from rtolap.kafka.transactions import KafkaTransactionalProducer

from tests.support.cubes.transaction_contract import column

NOBODY = "127.0.0.1:1"
FENCED = KafkaException(KafkaError(KafkaError._FENCED, "another producer has begun", fatal=True))


def fatal_between_callbacks() -> SystemError:
    """As the client raises it: a SystemError that names the Kafka error as its cause."""
    error = SystemError("<method 'flush'> returned a result with an exception set")
    error.__cause__ = FENCED
    return error


RAISED: list[Callable[[], Exception]] = [
    lambda: FENCED,
    fatal_between_callbacks,
    lambda: SystemError("returned a result with an exception set"),
    lambda: RuntimeError("closed"),
]


class Client:
    """A client of the library of which each method of `raising` raises."""

    def __init__(self, raising: set[str], error: Exception) -> None:
        self.raising, self.error, self.called = raising, error, list[str]()

    def __getattr__(self, name: str) -> Callable[..., int]:
        def call(*_: Any, **__: Any) -> int:
            self.called.append(name)
            if name in self.raising:
                raise self.error
            return 0

        return call


@pytest.mark.parametrize("raised", RAISED, ids=["fenced", "fenced inside", "system error", "closed"])
def test_a_client_closes_whatever_the_library_raises(raised: Callable[[], Exception]) -> None:
    every = {"purge", "flush", "close"}
    transactions = KafkaTransactionalProducer(NOBODY, "some-id")
    producer, consumer = KafkaProducer(NOBODY), KafkaConsumer(NOBODY, "some")
    lookup = TopicLookup(KafkaCluster.of(NOBODY), "tests", "some")
    kept = [transactions._producer, producer._producer, consumer._consumer, lookup._consumer]
    clients = [Client(every, raised()) for _ in kept]
    transactions._producer, producer._producer, consumer._consumer, lookup._consumer = clients  # type: ignore[assignment]
    for each in (transactions, producer, consumer, lookup):
        each.close()
    assert [client.called for client in clients] == [["purge", "flush"], ["flush"], ["close"], ["close"]]


@pytest.mark.parametrize(
    ("raised", "method", "expected"),
    [
        (FENCED, "flush", NotLeader),
        (FENCED, "poll", NotLeader),
        (FENCED, "begin_transaction", NotLeader),
        (fatal_between_callbacks(), "flush", NotLeader),
        (fatal_between_callbacks(), "commit_transaction", NotLeader),
        (SystemError("with an exception set"), "flush", Unavailable),
        (SystemError("with an exception set"), "commit_transaction", CommitUnknown),
    ],
)
def test_what_a_transaction_meets_in_the_library_has_a_type(
    raised: Exception, method: str, expected: type[RtolapError]
) -> None:
    producer = KafkaTransactionalProducer(NOBODY, "some-id")
    producer._producer = Client({method}, raised)  # type: ignore[assignment]
    with pytest.raises(expected):
        producer.send([column("some", b"a")], 1)
    producer.close()


@pytest.mark.parametrize("raised", RAISED[:3], ids=["fenced", "fenced inside", "system error"])
def test_what_a_producer_meets_while_it_flushes_has_a_type(raised: Callable[[], Exception]) -> None:
    producer = KafkaProducer(NOBODY)
    producer._producer = Client({"flush", "poll"}, raised())  # type: ignore[assignment]
    for call in (producer.poll, lambda: producer.flush(0.1)):
        with pytest.raises(RtolapError):
            call()


# Kafka's protocol page lists these as retriable.
PASSING = (3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 70, 71, 72, 74, 75, 78, 80, 83, 88, 89)


@pytest.mark.parametrize("code", PASSING)
def test_errors_that_pass_are_no_refusals(code: int) -> None:
    error = translated("read", "some", KafkaError(code), KafkaCluster.of(NOBODY))
    assert not isinstance(error, Refused)
    if code != KafkaError.UNKNOWN_TOPIC_OR_PART:
        assert isinstance(error, Unavailable)
