"""librdkafka's messages become a `Batch` of columns, without a Python loop over records.

Headers are the exception: the client returns a list for each record, so they are read only if requested.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message
from numpy.typing import NDArray

from rtolap.kafka.interfaces import WATERMARK_HEADER, Batch
from rtolap.model.leader_epochs import EpochRange, LeaderEpochs, PartitionEpochs, continued
from rtolap.model.table import HEADER

_Header = str | bytes | None
_KIND, _MS = itemgetter(0), itemgetter(1)  # of a timestamp; where there is none, the client says 0 or -1 ms
_RUN_RECORDS = 8  # of runs that are shorter on average, every record is asked for its offset


def to_batch(
    messages: Sequence[Message],
    *,
    with_create_ms: bool,
    with_statements: bool = False,
    sources: Sequence[str] = (),
) -> Batch:
    """Return the batch of `messages`: records only, no events of the client. `sources`: see `Batch.texts`."""
    count = len(messages)
    partitions = np.fromiter(map(Message.partition, messages), np.int32, count)
    runs = _runs(partitions)
    offsets = _offsets(messages, runs)
    created = None
    if with_create_ms:
        created = np.fromiter(map(_MS, map(Message.timestamp, messages)), np.int64, count)
        if not created.all():
            kinds = np.fromiter(map(_KIND, map(Message.timestamp, messages)), np.int64, count)
            created[kinds == TIMESTAMP_NOT_AVAILABLE] = -1
    statements = (
        [_statement(headers) for headers in map(Message.headers, messages)] if with_statements else None
    )
    return Batch(
        list(map(Message.value, messages)),
        partitions,
        offsets,
        created,
        statements,
        _epochs(messages, partitions, offsets, runs),
        _texts(messages, sources),
    )


def joined(batches: Sequence[Batch]) -> Batch:
    """Return one batch of all their records, in order."""
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
        reduce(continued, (batch.epochs for batch in batches), {}),
        joined_texts(batches),
    )


def joined_texts(batches: Sequence[Batch]) -> dict[str, list[bytes | None]]:
    """Return the keys and headers of all their records, in order."""
    return {
        source: list(chain.from_iterable(batch.texts[source] for batch in batches))
        for source in (batches[0].texts if batches else ())
    }


def value_bytes(messages: Sequence[Message]) -> int:
    """Return the bytes of all values together; an event of the client counts the length of its text."""
    return sum(map(Message.__len__, messages))


class _Runs(NamedTuple):
    """Records of one partition that follow each other: places of the first and of the last of each run."""

    firsts: NDArray[np.int64]
    lasts: NDArray[np.int64]


def _runs(partitions: NDArray[np.int32]) -> _Runs:
    begins = np.flatnonzero(partitions[1:] != partitions[:-1]) + 1
    edge = np.array([0], np.int64)[: len(partitions)]
    return _Runs(np.concatenate((edge, begins)), np.concatenate((begins, edge + len(partitions))) - 1)


def _offsets(messages: Sequence[Message], runs: _Runs) -> NDArray[np.int64]:
    """Return the offsets of all, out of those at the ends of runs of one partition.

    Offsets of a partition only grow: where the last of n is n - 1 beyond the first, all between are there.
    """
    count, (firsts, lasts) = len(messages), runs
    if count >= _RUN_RECORDS * len(firsts):
        low = np.fromiter((messages[at].offset() for at in firsts), np.int64, len(firsts))
        high = np.fromiter((messages[at].offset() for at in lasts), np.int64, len(lasts))
        if np.array_equal(high - low, lasts - firsts):
            return np.arange(count) + np.repeat(low - firsts, lasts - firsts + 1)
    return np.fromiter(map(Message.offset, messages), np.int64, count)


def _epochs(
    messages: Sequence[Message], partitions: NDArray[np.int32], offsets: NDArray[np.int64], runs: _Runs
) -> PartitionEpochs:
    """Return the leader epochs by partition, out of its first and last record.

    Epochs of a partition only grow: where the two are equal, all between are. Else its records are asked,
    which happens once a leader.
    """
    found: dict[int, LeaderEpochs] = {}
    of_runs = partitions[runs.firsts]
    for partition in np.unique(of_runs).tolist():
        own = np.flatnonzero(of_runs == partition)
        begin, end = runs.firsts[own[0]], runs.lasts[own[-1]]
        first, last = messages[begin].leader_epoch(), messages[end].leader_epoch()
        if first is None or last is None or first < 0:
            continue
        if first == last:
            read = EpochRange(first, int(offsets[begin]), int(offsets[end]) + 1)
            found[partition] = LeaderEpochs((read,))
        else:
            found[partition] = _epochs_of_each(messages, np.flatnonzero(partitions == partition), offsets)
    return found


def _epochs_of_each(
    messages: Sequence[Message], places: NDArray[np.int64], offsets: NDArray[np.int64]
) -> LeaderEpochs:
    """Return the leader epochs of one partition's records, which are asked one by one."""
    epochs = np.array([messages[at].leader_epoch() or 0 for at in places.tolist()], np.int64)
    begins = np.concatenate(([0], np.flatnonzero(np.diff(epochs)) + 1))
    ends = np.concatenate((begins[1:], [len(places)])) - 1
    return LeaderEpochs(
        tuple(
            EpochRange(int(epochs[begin]), int(offsets[places[begin]]), int(offsets[places[end]]) + 1)
            for begin, end in zip(begins, ends, strict=True)
        )
    )


def _texts(messages: Sequence[Message], sources: Sequence[str]) -> dict[str, list[bytes | None]]:
    if not sources:
        return {}
    found: dict[str, list[bytes | None]] = {}
    if "key" in sources:
        found["key"] = [_octets(key) for key in map(Message.key, messages)]
    names = [source.removeprefix(HEADER) for source in sources if source.startswith(HEADER)]
    if names:
        headers = [dict(each or ()) for each in map(Message.headers, messages)]
        for name in names:  # of equal names the last counts
            found[HEADER + name] = [_octets(each.get(name)) for each in headers]
    return found


def _octets(text: _Header) -> bytes | None:
    return text.encode() if isinstance(text, str) else text


def _statement(headers: dict[str, _Header] | list[tuple[str, _Header]] | None) -> bytes | None:
    """Return the statement in the headers. The last of the name counts, since a producer appends it."""
    if not headers:
        return None
    pairs = headers if isinstance(headers, list) else list(headers.items())
    name, statement = pairs[-1]
    if name != WATERMARK_HEADER:
        statement = dict(pairs).get(WATERMARK_HEADER)
    return statement.encode() if isinstance(statement, str) else statement
