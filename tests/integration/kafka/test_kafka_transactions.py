from collections.abc import Callable, Iterator

import pytest
from rtolap.base.errors import CommitUnknown, NotLeader, Unavailable
from rtolap.kafka.consumer import KafkaConsumer
from rtolap.kafka.interfaces import StreamProducer
from rtolap.kafka.producer import KafkaAdmin, KafkaProducer
from rtolap.kafka.transactions import KafkaTransactionalProducer, TransactionalProducer
from rtolap.stack.process import ManagedProcess

from tests.support.cubes.stream_contract import World
from tests.support.cubes.transaction_contract import TransactionContract, Transactions, column

pytestmark = pytest.mark.integration


@pytest.fixture
def transactions(
    kafka: str, unique_name: str, world_of: Callable[[StreamProducer], World]
) -> Iterator[Transactions]:
    opened: list[TransactionalProducer] = []

    def make(transactional_id: str) -> TransactionalProducer:
        opened.append(KafkaTransactionalProducer(kafka, transactional_id))
        return opened[-1]

    world = world_of(KafkaProducer(kafka))
    yield Transactions(unique_name, KafkaAdmin(kafka), make, world.consumer)
    for each in opened:
        each.close()


class TestKafkaTransactions(TransactionContract):
    pass


def test_a_transaction_whose_producer_is_gone_is_never_read(
    kafka: str, create_topic: Callable[..., str], transactions: Transactions
) -> None:
    topic = create_topic(f"{transactions.name}-1")
    left = KafkaTransactionalProducer(kafka, transactions.name)
    left.begin(20)
    left._producer.begin_transaction()  # as a process that is killed in the middle leaves it
    left._producer.produce(topic, b"lost", partition=0)
    left._producer.flush(20)
    producer = transactions.begun()
    producer.send([column(topic, b"a")], 20)
    assert transactions.values(topic, 1) == [b"a"]


@pytest.mark.parametrize("sends", [True, False])
def test_a_producer_that_was_shut_out_ends_quietly(transactions: Transactions, sends: bool) -> None:
    """Also where it hears of it only while it ends."""
    topic = f"{transactions.name}-1"
    transactions.admin.create_topic(topic, 1)
    for _ in range(3):
        first = transactions.begun()
        first.send([column(topic, b"a")], 20)
        transactions.begun()
        if sends:
            with pytest.raises(NotLeader):
                first.send([column(topic, b"b")], 20)
        first.close()


def test_a_killed_broker_leaves_a_known_or_a_named_outcome(
    kafka_server: ManagedProcess, transactions: Transactions
) -> None:
    topic = f"{transactions.name}-1"
    transactions.admin.create_topic(topic, 1)
    producer = transactions.begun()
    producer.send([column(topic, b"a")], 20)
    kafka_server.kill()
    try:
        with pytest.raises((CommitUnknown, Unavailable)):
            producer.send([column(topic, b"b")], 2)
    finally:
        kafka_server.start()
    producer.close()
    again = transactions.begun()
    again.send([column(topic, b"c")], 20)
    consumer = KafkaConsumer(kafka_server.address, topic)
    assert transactions.values(topic, 2) == [b"a", b"c"]
    consumer.close()
