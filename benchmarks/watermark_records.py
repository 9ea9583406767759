"""The cost of statements of watermarks in records: CPU time of who writes them and of who reads them.

    python -m benchmarks.watermark_records [--events 400000] [--rounds 3] [--json]

The same 200-byte events, 4 partitions, three times: without statements, in headers, in a field. Written in
lists of 1000 by a `KafkaProducer`, by a `WatermarkedProducer` with headers, by one with a field, whose
watermark changes with every list; consumed and decoded to Arrow columns as a receiver does it, without
aggregation. Medians of the processor time a round, the client's threads included.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from itertools import count
from typing import Literal

import msgspec
from rtolap.events.decode import EventDecoder
from rtolap.kafka.consumer import KafkaConsumer
from rtolap.kafka.interfaces import OutRecord
from rtolap.kafka.producer import KafkaAdmin, KafkaProducer
from rtolap.model.cube import Schema
from rtolap.watermark.records.producer import WatermarkedProducer

from benchmarks import events
from benchmarks.servers import create_topic, kafka

PARTITIONS = 4
BATCH = 50_000
LIST = 1000
FIELD = "rtolap_watermark"
Place = Literal["header", "field"]
PLACES: tuple[Place | None, ...] = (None, "header", "field")


def topic_of(place: Place | None, number: int = 0) -> str:
    return f"bench-{place}-{number}"


def schema(place: Place | None) -> Schema:
    plain = events.schema(topic_of(place))
    return Schema(msgspec.structs.replace(plain.table, watermark_records=place), plain.cube)


def write(bootstrap: str, topic: str, values: Sequence[bytes], place: Place | None) -> float:
    """Return nanoseconds of processor time per event."""
    create_topic(bootstrap, topic, PARTITIONS)
    records = [OutRecord(value, partition=at % PARTITIONS) for at, value in enumerate(values)]
    marks = count(1_700_000_000_000)
    plain = KafkaProducer(bootstrap)
    producer = (
        plain
        if place is None
        else WatermarkedProducer(
            plain,
            KafkaAdmin(bootstrap),
            topic,
            name="store-0",
            generation=1,
            watermark_ms=lambda: next(marks),
            field=FIELD if place == "field" else None,
            every_s=None,
        )
    )
    started_s = time.process_time()
    for first in range(0, len(records), LIST):
        producer.produce(topic, records[first : first + LIST])
    producer.flush(60)
    taken_s = time.process_time() - started_s
    producer.close()
    return taken_s / len(values) * 1e9


def read(bootstrap: str, total: int, place: Place | None) -> float:
    """Return nanoseconds of processor time per event."""
    decoder = EventDecoder(schema(place))
    consumer = KafkaConsumer(
        bootstrap, topic_of(place), with_create_ms=True, with_statements=place == "header"
    )
    consumer.assign(dict.fromkeys(range(PARTITIONS), 0))
    started_s, seen, stated = time.process_time(), 0, 0
    while seen < total:
        batch = consumer.poll(BATCH, 1.0)
        decoded = decoder.decode(
            batch.values,
            batch.partitions,
            batch.offsets,
            now_ms=time.time_ns() // 1_000_000,
            create_ms=batch.create_ms,
            statements=batch.statements,
        )
        seen += decoded.table.num_rows
        stated += 0 if decoded.statements is None else len(decoded.statements)
    taken_s = time.process_time() - started_s
    consumer.close()
    if bool(stated) != (place is not None):
        raise SystemExit(f"{place}: {stated} statements read")
    return taken_s / total * 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    values = events.values(arguments.events, seed=1)
    taken: dict[str, dict[str, list[float]]] = {"written": {}, "read": {}}
    with kafka() as bootstrap:
        for number in range(arguments.rounds):
            for place in PLACES:
                wrote_ns = write(bootstrap, topic_of(place, number), values, place)
                taken["written"].setdefault(str(place), []).append(wrote_ns)
        for _ in range(arguments.rounds):
            for place in PLACES:
                taken["read"].setdefault(str(place), []).append(read(bootstrap, len(values), place))
    medians = {
        what: {place: statistics.median(each) for place, each in times.items()}
        for what, times in taken.items()
    }
    print(f"{len(values)} events, {arguments.rounds} rounds: ns of CPU per event, and as a share of without")
    for what, by_place in medians.items():
        for name, one_ns in by_place.items():
            shown = "without" if name == "None" else name
            print(f"  {what:8} {shown:8} {one_ns:8.0f} {one_ns / by_place['None']:6.2f}")
    if arguments.json:
        print(json.dumps({"benchmark": "watermark_records", "ns_per_event": medians}))


if __name__ == "__main__":
    main()
