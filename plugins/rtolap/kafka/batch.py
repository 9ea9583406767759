"""librdkafka's messages → a `Batch`: columns, without a Python loop over records.

Except for headers, of which the client gives out a list a record: they are read only if requested.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
from confluent_kafka import Message

from rtolap.kafka.interfaces import WATERMARK_HEADER, Batch

_Header = str | bytes | None


def to_batch(messages: Sequence[Message], *, with_create_ms: bool, with_statements: bool = False) -> Batch:
    """`messages`: records only, no events of the client."""
    count = len(messages)
    partitions = np.fromiter(map(Message.partition, messages), np.int32, count)
    offsets = np.fromiter(map(Message.offset, messages), np.int64, count)
    created = None
    if with_create_ms:
        pairs = chain.from_iterable(map(Message.timestamp, messages))  # (kind, ms); kind 0: there is none
        stamps = np.fromiter(pairs, np.int64, 2 * count).reshape(-1, 2)
        created = np.where(stamps[:, 0] == 0, -1, stamps[:, 1])
    statements = (
        [_statement(headers) for headers in map(Message.headers, messages)] if with_statements else None
    )
    return Batch(list(map(Message.value, messages)), partitions, offsets, created, statements)


def joined(batches: Sequence[Batch]) -> Batch:
    """One batch of all their records, in order."""
    if len(batches) == 1:
        return batches[0]
    created = [batch.create_ms for batch in batches if batch.create_ms is not None]
    statements = [batch.statements for batch in batches if batch.statements is not None]
    return Batch(
        list(chain.from_iterable(batch.values for batch in batches)),
        np.concatenate([batch.partitions for batch in batches]),
        np.concatenate([batch.offsets for batch in batches]),
        np.concatenate(created) if created else None,
        list(chain.from_iterable(statements)) if statements else None,
    )


def value_bytes(messages: Sequence[Message]) -> int:
    """Return the bytes of all values together; an event of the client counts the length of its text."""
    return sum(map(Message.__len__, messages))


def _statement(headers: dict[str, _Header] | list[tuple[str, _Header]] | None) -> bytes | None:
    """The last of the name counts, as a producer appends it."""
    if not headers:
        return None
    pairs = headers if isinstance(headers, list) else list(headers.items())
    name, statement = pairs[-1]
    if name != WATERMARK_HEADER:
        statement = dict(pairs).get(WATERMARK_HEADER)
    return statement.encode() if isinstance(statement, str) else statement
