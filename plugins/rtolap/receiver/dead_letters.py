"""Refused records go to the table's dead-letter topic, with where they came from and why.

Both receivers of a replica set produce them, so that none is lost with one of them; the key
(`topic/partition/offset`) makes the copies one for a reader or a compacted topic.
"""

from __future__ import annotations

from rtolap.stream.consumer import Batch, OutRecord, StreamProducer
from rtolap.stream.decode import Rejects

DETAIL_CHARS_MAX = 500


def send(
    producer: StreamProducer, topic: str, dead_letter_topic: str, batch: Batch, rejects: Rejects
) -> None:
    """Queue them; `producer.flush` before the checkpoint makes them durable."""
    records: list[OutRecord] = []
    for index, reason, detail in zip(rejects.index.tolist(), rejects.reason, rejects.detail, strict=True):
        partition, offset = int(batch.partitions[index]), int(batch.offsets[index])
        headers = {
            "topic": topic.encode(),
            "partition": str(partition).encode(),
            "offset": str(offset).encode(),
            "reason": reason.encode(),
            "detail": detail[:DETAIL_CHARS_MAX].encode("utf-8", "replace"),
        }
        key = f"{topic}/{partition}/{offset}".encode()
        records.append(OutRecord(batch.values[index], key=key, headers=headers))
    producer.produce(dead_letter_topic, records)
