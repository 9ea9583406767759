import pytest
from rtolap.base.errors import Unavailable

from tests.support.cubes.transaction_contract import TransactionContract, Transactions, column
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryAdmin
from tests.support.twins.kafka_transactions import MemoryTransactionalProducer


class TestMemoryTransactions(TransactionContract):
    @pytest.fixture
    def transactions(self) -> Transactions:
        broker = MemoryBroker()
        return Transactions(
            "events",
            MemoryAdmin(broker),
            lambda name: MemoryTransactionalProducer(broker, name),
            lambda topic: MemoryConsumer(broker, topic),
        )


def test_a_broker_that_is_down_takes_nothing() -> None:
    broker = MemoryBroker()
    broker.create("events", 1)
    producer = MemoryTransactionalProducer(broker, "id")
    producer.begin(1)
    broker.set_down(True)
    with pytest.raises(Unavailable):
        producer.send([column("events", b"a")], 1)
