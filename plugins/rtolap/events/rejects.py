"""Refused records of one batch, and as records of a dead-letter topic: whole, with where from and why.

A dead letter's key is `topic/partition/offset`, so that copies are one for a reader or a compacted topic. Its
value is the record's own, whole up to VALUE_BYTES_MAX; of a larger one the beginning, with its size in the
header `value_bytes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rtolap.events.classify import Problem
from rtolap.kafka.interfaces import Batch, OutRecord

DETAIL_CHARS_MAX = 500
VALUE_BYTES_MAX = 3 << 20  # with key and headers below what the producer takes, 4 MiB
TOPIC_CONFIG = {"max.message.bytes": str(4 << 20)}  # the source's own limit has no room for the headers

BATCH_LABEL, BATCH_SHA256, TIMESTAMP_MS = "batch_label", "batch_sha256", "timestamp_ms"
SOURCE_PREFIX = "source:"  # of a key or a header, as `Batch.texts` names it; its text stands behind a "="


@dataclass(frozen=True, slots=True)
class Rejects:
    """Refused records, ordered by their position in the input: `index`, reason, detail for people."""

    index: NDArray[np.int64]
    reason: list[str]
    detail: list[str]

    def __len__(self) -> int:
        return len(self.reason)


def rejects_of(problems: Mapping[int, Problem]) -> Rejects:
    """Return the rejects. `problems` go by position in the input."""
    order = sorted(problems)
    return Rejects(
        np.array(order, np.int64),
        [problems[place].reason for place in order],
        [problems[place].detail for place in order],
    )


class SentBatch(NamedTuple):
    """The batch of a loader in which records were refused: its label, and the checksum of its content."""

    label: str
    sha256: str


def dead_letter_records(
    topic: str, batch: Batch, rejects: Rejects, sent: SentBatch | None = None
) -> list[OutRecord]:
    """Return one record for each refusal; `topic` is where they were read. With `sent`, each has all that it
    takes to load it later: its batch, its timestamp, and what was read of its key and headers."""
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
        if sent is not None:
            headers |= _whole(batch, index, sent)
        key = f"{topic}/{partition}/{offset}".encode()
        value = batch.values[index]
        if value is not None and len(value) > VALUE_BYTES_MAX:
            headers["value_bytes"] = str(len(value)).encode()
            value = value[:VALUE_BYTES_MAX]
        records.append(OutRecord(value, key=key, headers=headers))
    return records


def _whole(batch: Batch, index: int, sent: SentBatch) -> dict[str, bytes]:
    headers = {BATCH_LABEL: sent.label.encode(), BATCH_SHA256: sent.sha256.encode()}
    if batch.create_ms is not None and batch.create_ms[index] >= 0:
        headers[TIMESTAMP_MS] = str(int(batch.create_ms[index])).encode()
    for source, texts in batch.texts.items():
        headers[f"{SOURCE_PREFIX}{source}"] = b"" if (text := texts[index]) is None else b"=" + text
    return headers
