"""What is read of a topic to guess from: about as much of each partition, and an empty one is named."""

from __future__ import annotations

from itertools import pairwise

import pytest
from rtolap.base.clock import SystemClock
from rtolap.base.errors import DefinitionError
from rtolap.kafka.interfaces import OutRecord
from rtolap.project.records import first_records

from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer

TOPIC = "t"
PARTITIONS = 4


@pytest.fixture
def broker() -> MemoryBroker:
    found = MemoryBroker()
    found.create(TOPIC, PARTITIONS)
    return found


def test_an_empty_topic_is_named_with_what_to_do(broker: MemoryBroker) -> None:
    with pytest.raises(DefinitionError, match="no records to guess from") as empty:
        first_records(MemoryConsumer(broker, TOPIC), 10, SystemClock())
    assert "rtolap init" in str(empty.value.action)


@pytest.mark.parametrize(
    ("filled", "count"), [((50, 50, 50, 50), 40), ((0, 3, 0, 100), 40), ((1, 0, 0, 0), 9)]
)
def test_each_partition_that_has_records_gives_its_first_ones(
    broker: MemoryBroker, filled: tuple[int, ...], count: int
) -> None:
    for partition, records in enumerate(filled):
        for number in range(records):
            broker.append(TOPIC, OutRecord(f"{partition}/{number:03}".encode(), partition=partition))
    found = first_records(MemoryConsumer(broker, TOPIC), count, SystemClock())
    share = count // sum(1 for records in filled if records)
    for partition, records in enumerate(filled):
        of_it = [
            record.value or b"" for record in found if (record.value or b"").startswith(b"%d/" % partition)
        ]
        assert len(of_it) == min(records, share)
        assert of_it[:1] in ([], [b"%d/000" % partition])
        assert all(one < other for one, other in pairwise(of_it))
