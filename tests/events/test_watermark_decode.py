"""Topics whose records carry watermarks: control records are no events, and nothing else changes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import numpy as np
import pytest
from rtolap.base.errors import DefinitionError
from rtolap.events.decode import Decoded, EventDecoder
from rtolap.kafka.interfaces import OutRecord
from rtolap.watermark.records.columns import batch_statements
from rtolap.watermark.records.statement import Statement, control_record, stating

from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer

NOW_MS = 1_400_000_000_000
PARTITIONS = 3
FIELD = "rtolap_watermark"


def written(seed: int, field: str | None) -> MemoryBroker:
    """Events, refused records and control records of two producers."""
    chance = random.Random(seed)
    broker = MemoryBroker()
    broker.create("t", PARTITIONS)
    for number in range(200):
        partition, name = chance.randrange(PARTITIONS), chance.choice(["store-0", "store-1"])
        text = Statement("data", 1, number * 10, name)
        kind = chance.random()
        value = json.dumps({"ts": NOW_MS - number, "s": f"v{number}"}).encode()
        if kind < 0.3:
            broker.append("t", control_record(text._replace(kind="control"), partition, field))
        elif kind < 0.4:
            broker.append(
                "t", *stating([OutRecord(b'{"s": "no time"}', partition=partition)], text.encode(), field)
            )
        elif kind < 0.5:
            broker.append("t", OutRecord(chance.choice([None, b"no JSON", value]), partition=partition))
        else:
            broker.append("t", *stating([OutRecord(value, partition=partition)], text.encode(), field))
    return broker


def read(broker: MemoryBroker, decoder: EventDecoder, *, with_statements: bool = True) -> Decoded:
    consumer = MemoryConsumer(broker, "t", with_statements=with_statements)
    consumer.assign(dict.fromkeys(range(PARTITIONS), 0))
    batch = consumer.poll(1000, 0)
    assert len(batch) == 200
    return decoder.decode(
        batch.values, batch.partitions, batch.offsets, now_ms=NOW_MS, statements=batch.statements
    )


def reasons(decoded: Decoded) -> set[str]:
    return set(decoded.rejects.reason)


@pytest.mark.parametrize("place", ["header", "field"])
def test_control_records_are_neither_events_nor_rejects(
    decoder: Callable[..., EventDecoder], place: str
) -> None:
    for seed in range(20):
        broker = written(seed, FIELD if place == "field" else None)
        decoded = read(broker, decoder(watermark_records=place))
        logs = [record for log in broker.logs("t") for record in log.records]
        control = sum(record.key is not None for record in logs)
        events = sum(b'"v' in (record.value or b"") for record in logs)
        assert control > 20
        assert decoded.table.num_rows == events
        assert len(decoded.rejects) == 200 - control - events
        assert reasons(decoded) <= {"missing_time", "tombstone", "malformed_json"}
        for row in decoded.table.to_pylist():  # each from its own offset
            value = json.loads(broker.logs("t")[row["__partition"]].records[row["__offset"]].value or b"")
            assert row["s"] == value["s"]
        assert FIELD not in decoded.table.column_names


@pytest.mark.parametrize("place", ["header", "field"])
def test_the_statements_of_accepted_and_control_records_are_told(
    decoder: Callable[..., EventDecoder], place: str
) -> None:
    broker = written(3, FIELD if place == "field" else None)
    decoded = read(broker, decoder(watermark_records=place))
    wanted: dict[tuple[int, str], int] = {}
    for at, log in enumerate(broker.logs("t")):
        for record in log.records:
            text = record.headers.get("rtolap-watermark") or json.loads(
                record.value if record.value and record.value.startswith(b"{") else b"{}"
            ).get(FIELD)
            if text:
                words = (text if isinstance(text, str) else text.decode()).split()
                wanted[at, words[4]] = max(wanted.get((at, words[4]), 0), int(words[3]))
    found = decoded.statements
    assert found is not None
    keys = zip(found.partitions.tolist(), found.producers, strict=True)
    assert dict(zip(keys, found.watermarks_ms.tolist(), strict=True)) == wanted


def test_without_a_declaration_a_control_record_is_a_tombstone(decoder: Callable[..., EventDecoder]) -> None:
    decoded = read(written(3, None), decoder())
    assert decoded.statements is None
    assert decoded.rejects.reason.count("tombstone") > 20


def test_a_consumer_that_does_not_read_headers_is_told_so(decoder: Callable[..., EventDecoder]) -> None:
    with pytest.raises(DefinitionError, match="expected a consumer that was opened with_statements"):
        read(written(3, None), decoder(watermark_records="header"), with_statements=False)


def test_the_field_is_no_unknown_column_and_has_to_be_text(decoder: Callable[..., EventDecoder]) -> None:
    strict = decoder(watermark_records="field", unknown_columns="reject")
    values = [
        b'{"ts": 1, "rtolap_watermark": "1 data 1 5 a"}',
        b'{"ts": 1, "rtolap_watermark": 7}',
        b'{"ts": 1, "rtolap_watermark": "nonsense"}',
        b'{"ts": 1, "other": 7}',
        b'{"rtolap_watermark": "1 control 1 5 a"}',
    ]
    decoded = strict.decode(values, np.zeros(5, np.int32), np.arange(5), now_ms=NOW_MS)
    assert decoded.table.column("__offset").to_pylist() == [0, 2]
    assert dict(zip(decoded.rejects.index.tolist(), decoded.rejects.reason, strict=True)) == {
        1: "wrong_type",
        3: "unknown_column",
    }
    assert decoded.statements is not None
    assert decoded.statements.unreadable == 1
    assert decoded.statements.watermarks_ms.tolist() == [5]


def test_batches_tell_statements_only_where_they_were_asked_for(decoder: Callable[..., EventDecoder]) -> None:
    broker = written(3, None)
    for asked in (False, True):
        consumer = MemoryConsumer(broker, "t", with_statements=asked)
        consumer.assign({0: 0})
        found = batch_statements(consumer.poll(1000, 0))
        assert (found is not None) == asked
    assert found is not None
    assert set(found.statements.producers) == {"store-0", "store-1"}
