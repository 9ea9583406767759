"""Derives the rates of partitions from what brokers report about topics.

A broker's metrics know topics, not partitions: `BytesInPerSec` counts what producers write to all partitions
of a topic that the broker leads, `BytesOutPerSec` what consumers read of them. A topic's rates are divided
over the partitions of it that the broker leads, in proportion to the bytes that they hold there: partitions
of one topic are kept equally long, so what they hold is what was written to them over that time. Growth
between two looks would tell the same of some seconds only, at the cost of asking for all log directories
twice. Where a size is not known, or all are empty, they get equal parts. A partition that was added lately
gets too little until it is as old as its topic's retention, and one of a compacted topic what its keys take;
the sum by broker and topic is the broker's own in any case.

A broker tells of a topic from the first byte on, so of one that it does not name nothing came or went. It has
no metric of a topic that it has stopped leading, and what followers serve to consumers is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np

from rtolap.fleet.snapshot.model import (
    UNKNOWN,
    Brokers,
    Flags,
    Floats,
    Int32s,
    Int64s,
    MissingFact,
    Partitions,
    Replicas,
    Topics,
)

# decisions, in the words of plans
FORBIDDEN_WITHOUT_RATES = ("leaders-by-load",)
_NO_SOURCE = (
    "no metrics of brokers are read: a file of sources names them, by --sources or RTOLAP_FLEET_SOURCES"
)


@dataclass(frozen=True, eq=False)
class TopicRates:
    """A row for each broker and each topic that it reports.

    Attributes:
        brokers: Ids of brokers.
        topics: Names of topics.
        answered: Ids of brokers that answered, whatever their answer.
        missing: Why a requested broker did not answer, by id.
    """

    brokers: Int32s
    topics: tuple[str, ...]
    bytes_in_per_s: Floats
    bytes_out_per_s: Floats
    answered: frozenset[int]
    missing: Mapping[int, str]


RateReader = Callable[[Collection[int]], TopicRates]
"""Asks brokers, by id, all at once."""


@dataclass(frozen=True, eq=False)
class PartitionRates:
    """Rates by partition, as the columns of `Partitions`."""

    bytes_in_per_s: Floats
    bytes_out_per_s: Floats
    missing: tuple[MissingFact, ...]


def read_rates(
    reader: RateReader | None, brokers: Brokers, topics: Topics, partitions: Partitions, replicas: Replicas
) -> PartitionRates:
    """Ask the leading brokers. A broker that does not answer gives NaN, and a missing fact."""
    if not len(partitions):
        return PartitionRates(np.zeros(0), np.zeros(0), ())
    if reader is None:
        unknown = np.full(len(partitions), np.nan)
        missing = MissingFact("rates of partitions", _NO_SOURCE, FORBIDDEN_WITHOUT_RATES)
        return PartitionRates(unknown, unknown.copy(), (missing,))
    led = np.bincount(partitions.leaders[partitions.leaders != UNKNOWN], minlength=len(brokers))
    leading = np.flatnonzero(led)
    reported = reader(brokers.ids[leading].tolist())
    into, out = divided(reported, brokers, topics, partitions, replicas)
    facts = []
    for row in leading.tolist():
        broker = int(brokers.ids[row])
        if broker not in reported.answered:
            fact = f"rates of the {led[row]} partitions that broker {broker} leads"
            reason = reported.missing.get(broker, "it was not asked")
            facts.append(MissingFact(fact, reason, FORBIDDEN_WITHOUT_RATES))
    return PartitionRates(into, out, tuple(facts))


def divided(
    reported: TopicRates, brokers: Brokers, topics: Topics, partitions: Partitions, replicas: Replicas
) -> tuple[Floats, Floats]:
    """Return bytes per second in and out of every partition. NaN without a leader, or where it reports
    nothing.
    """
    answered = np.isin(brokers.ids, np.array(sorted(reported.answered), np.int32))
    rows = np.flatnonzero(np.append(answered, False)[partitions.leaders])  # UNKNOWN is the last
    # one number for each broker and topic
    keys = partitions.leaders[rows].astype(np.int64) * len(topics) + partitions.topics[rows]
    keys, group = np.unique(keys, return_inverse=True)
    share = _shares(group, *_sizes_at_leaders(partitions, replicas, rows))
    at = _rows_of(_reported_keys(reported, brokers, topics), keys)
    columns = []
    for values in (reported.bytes_in_per_s, reported.bytes_out_per_s):
        column = np.full(len(partitions), np.nan)
        column[rows] = np.append(values, 0.0)[at][group] * share
        columns.append(column)
    return columns[0], columns[1]


def _sizes_at_leaders(partitions: Partitions, replicas: Replicas, rows: Int64s) -> tuple[Int64s, Flags]:
    """Return the bytes that the leader of each of these partitions holds of it, and whether they are
    known.
    """
    sizes = np.full(len(partitions), UNKNOWN, np.int64)
    leads = replicas.brokers == partitions.leaders[replicas.partitions]
    sizes[replicas.partitions[leads]] = replicas.size_bytes[leads]
    return np.maximum(sizes[rows], 0), sizes[rows] != UNKNOWN


def _shares(group: Int64s, sizes: Int64s, known: Flags) -> Floats:
    """Return the part of its group's bytes that each one holds."""
    counts = np.bincount(group)
    sums = np.bincount(group, sizes)
    even = (sums <= 0) | (np.bincount(group, ~known) > 0)
    by_size = sizes / np.where(sums > 0, sums, 1.0)[group]
    found: Floats = np.where(even[group], 1.0 / counts[group], by_size)
    return found


def _reported_keys(reported: TopicRates, brokers: Brokers, topics: Topics) -> Int64s:
    """Return the numbers of the reported rows. UNKNOWN for a topic or broker that is not in the snapshot."""
    topic_rows = {name: row for row, name in enumerate(topics.names)}
    of_topic = np.array([topic_rows.get(name, UNKNOWN) for name in reported.topics], np.int64)
    of_broker = np.searchsorted(brokers.ids, reported.brokers)
    there = np.append(brokers.ids, UNKNOWN)[of_broker] == reported.brokers
    return np.where(there & (of_topic != UNKNOWN), of_broker * len(topics) + of_topic, UNKNOWN)


def _rows_of(reported: Int64s, wanted: Int64s) -> Int64s:
    """Return the rows of `reported` that have these numbers. Its length stands for a missing one."""
    order = np.argsort(reported, kind="stable")
    place = np.searchsorted(reported[order], wanted)
    found = np.append(reported[order], UNKNOWN)[place] == wanted
    return np.where(found, np.append(order, reported.size)[place], reported.size)
