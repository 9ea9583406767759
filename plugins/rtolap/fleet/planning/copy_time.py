"""The time that copies take under a throttle while producers write to their partitions.

A throttle bounds what a broker sends and receives of the moving partitions. It also covers what producers
write to such a partition: the writes to each new replica, and those to replicas in sync, which are not
delayed but count. The copies get the rest. If nothing is left, they never end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rtolap.fleet.snapshot.model import Flags, Floats, Int32s, Int64s

NEEDED_TIMES = 2  # of what is written: a copy then takes as long as at rest under half of it


@dataclass(frozen=True, eq=False)
class Copies:
    """The copies of a plan, in columns by copy and by partition.

    Attributes:
        partitions: Row of the partition, by copy.
        to_brokers: Broker that receives the copy.
        between_disks: The copy stays on its broker.
        leaders: Broker ids, by partition.
        replicas: Number of replicas before the plan, by partition.
        bytes_in_per_s: Bytes written to the partition. NaN where not known, which counts as 0.
    """

    partitions: Int32s
    to_brokers: Int32s
    size_bytes: Int64s
    between_disks: Flags
    leaders: Int32s
    replicas: Int64s
    bytes_in_per_s: Floats


@dataclass(frozen=True, eq=False)
class CopyTime:
    """The time that copies take.

    Attributes:
        expected_s: Time of the busiest broker. None where copies would never end.
        outpaced: Rows of the partitions for which the throttle leaves nothing.
        needed_bytes_per_s: Lowest throttle that would do for them.
        written_bytes_per_s: Bytes written to all copied partitions.
        unknown: Number of partitions for which that is not known.
    """

    expected_s: int | None
    outpaced: Int64s
    needed_bytes_per_s: int
    written_bytes_per_s: int
    unknown: int


def copy_time(copies: Copies, throttle_bytes_per_s: int) -> CopyTime:
    """Return the time of the copies, if every broker sends, receives and copies at once under the
    throttle.
    """
    count = copies.leaders.size
    network = ~copies.between_disks
    added = np.bincount(copies.partitions[network], minlength=count)
    copied = np.bincount(copies.partitions, minlength=count) > 0
    written = np.where(copied, np.nan_to_num(copies.bytes_in_per_s), 0.0)
    # a broker that takes a copy takes what is written once; the leader sends it to all but itself
    sent = written * np.where(added > 0, copies.replicas - 1 + added, 1)
    most = np.maximum(sent, written)
    outpaced = np.flatnonzero(copied & (most >= throttle_bytes_per_s))
    return CopyTime(
        None if outpaced.size else _longest_s(copies, written, sent, throttle_bytes_per_s),
        outpaced,
        int(np.ceil(NEEDED_TIMES * most.max(initial=0.0))),
        int(written.sum()),
        int((copied & np.isnan(copies.bytes_in_per_s)).sum()),
    )


def one_after_the_other(times: Sequence[CopyTime]) -> CopyTime:
    """Return the time of copies that wait for those before them."""
    if len(times) == 1:
        return times[0]
    each = [time.expected_s for time in times]
    return CopyTime(
        None if None in each else sum(seconds for seconds in each if seconds is not None),
        np.unique(np.concatenate([time.outpaced for time in times])),
        max(time.needed_bytes_per_s for time in times),
        max(time.written_bytes_per_s for time in times),
        max(time.unknown for time in times),
    )


def _longest_s(copies: Copies, written: Floats, sent: Floats, throttle_bytes_per_s: int) -> int:
    network, rows = ~copies.between_disks, copies.partitions
    longest = 0
    for brokers, chosen, taken in (
        (copies.to_brokers, network, written),
        (copies.leaders[rows], network, sent),
        (copies.to_brokers, copies.between_disks, written),
    ):
        if chosen.any():
            # as many bytes as would take that long if nothing were written
            share = throttle_bytes_per_s / (throttle_bytes_per_s - taken[rows[chosen]])
            _, groups = np.unique(brokers[chosen], return_inverse=True)
            longest = max(longest, int(np.bincount(groups, copies.size_bytes[chosen] * share).max()))
    return -(-longest // throttle_bytes_per_s)
