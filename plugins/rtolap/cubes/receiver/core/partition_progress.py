"""Counters and clocks of a cube's partitions, as stats, heartbeats, closing and the checkpoint need them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from rtolap.columnar.schema import EVENT_MS, PARTITION
from rtolap.cubes.receiver.closing_rules import StreamClocks
from rtolap.cubes.receiver.core.freshness import Freshness
from rtolap.cubes.receiver.hosts.batch_progress import HostProgressBatch
from rtolap.cubes.receiver.hosts.host_progress import HostProgress, SavedHosts
from rtolap.cubes.receiver.local.batch import LATE_SAMPLES, BatchTables, LateEvent
from rtolap.cubes.receiver.local.checkpoint import Checkpoint, PartitionCounters
from rtolap.cubes.receiver.local.tables import LocalState
from rtolap.events.decode import Filtered

_NONE = PartitionCounters()


class ConsumerProgress:
    """Owned by the core thread; other threads read whole values (`counters`, `marks`)."""

    def __init__(self, idle_after_s: float, hosts: HostProgress | None = None) -> None:
        """Follow a consumer's progress. `hosts` is given for a cube that closes by an application."""
        self.hosts = hosts
        self.freshness = Freshness()
        self.late: tuple[LateEvent, ...] = ()  # the last ones since the process started
        self._idle_after_s = idle_after_s
        self.counters: Mapping[int, PartitionCounters] = {}
        self.log_ends: Mapping[int, int] = {}
        self.log_ends_requested_s = float("-inf")  # when; set after them, so that they are at least as new
        self.mark_ms: int | None = None
        self._arrivals: dict[int, int] = {}
        self._late_since: dict[int, int] = {}
        self._silent_since_s: dict[int, float] = {}

    def recover(self, checkpoint: Checkpoint) -> None:
        self.counters = dict(checkpoint.counters)
        self.mark_ms = checkpoint.mark_ms
        self._arrivals = dict(checkpoint.arrivals)
        if self.hosts is not None and checkpoint.hosts is not None:
            self.hosts.recover(checkpoint.hosts)

    def saved_hosts(self) -> SavedHosts | None:
        return None if self.hosts is None else self.hosts.saved()

    def arrivals(self) -> dict[int, int]:
        return dict(self._arrivals)

    def took(
        self,
        batch: BatchTables,
        now_s: float,
        created_ms: Mapping[int, int],
        batches: Sequence[HostProgressBatch] = (),
    ) -> None:
        """Count a batch that this step swaps in.

        `created_ms`: partition → newest timestamp of its records.

        A record's event time may be beyond its own timestamp, but moves no clock further than that: one
        event that is hours ahead must not close what the others are still filling.
        """
        counters = dict(self.counters)
        for partition, seen in batch.seen.items():
            before = counters.get(partition, _NONE)
            counters[partition] = msgspec.structs.replace(
                before,
                events=before.events + seen.events,
                late=before.late + seen.late,
                dropped=before.dropped + seen.dropped,
                watermark_ms=self._moved(before, seen.watermark_ms, created_ms.get(partition)),
            )
            self._silent_since_s[partition] = now_s
        self.counters = counters
        self.late = (*self.late, *batch.late)[-LATE_SAMPLES:]
        if self.mark_ms is not None:
            self._arrivals.update(dict.fromkeys(batch.tables, self.mark_ms))
        if self.hosts is not None:
            for host_batch in batches:
                self._count_hostless(self.hosts.took(host_batch))

    def filtered(self, left_out: Filtered, now_s: float, created_ms: Mapping[int, int]) -> None:
        """Count records that the table's condition leaves out. Their event times move the clocks as those of
        others do: a partition of which nothing passes holds nobody back."""
        counters = dict(self.counters)
        for partition, number in Counter(left_out.partitions.tolist()).items():
            before = counters.get(partition, _NONE)
            counters[partition] = msgspec.structs.replace(before, filtered=before.filtered + number)
            self._silent_since_s[partition] = now_s
        latest = left_out.events.group_by(PARTITION, use_threads=False).aggregate([(EVENT_MS, "max")])
        for row in latest.to_pylist():
            before = counters[row[PARTITION]]
            watermark_ms = self._moved(before, row[f"{EVENT_MS}_max"], created_ms.get(row[PARTITION]))
            counters[row[PARTITION]] = msgspec.structs.replace(before, watermark_ms=watermark_ms)
        self.counters = counters

    def _moved(self, before: PartitionCounters, event_ms: int, created_ms: int | None) -> int:
        """Move the cube's clock, and return that of a partition. `created_ms`: its newest timestamp."""
        watermark_ms = event_ms if created_ms is None else min(event_ms, created_ms)
        if before.watermark_ms is not None:
            watermark_ms = max(watermark_ms, before.watermark_ms)
        self.mark_ms = watermark_ms if self.mark_ms is None else max(self.mark_ms, watermark_ms)
        return watermark_ms

    def _count_hostless(self, events: Mapping[int, int]) -> None:
        counted = {
            partition: msgspec.structs.replace(before, hostless=before.hostless + number)
            for partition, number in events.items()
            for before in (self.counters.get(partition, _NONE),)
        }
        self.counters = {**self.counters, **counted}

    def refused(self, partitions: NDArray[np.int32], reasons: Sequence[str], details: Sequence[str]) -> None:
        """Count refused records, each by its partition and reason, with what was wrong with it."""
        counters = dict(self.counters)
        kinds = list(zip(partitions.tolist(), reasons, strict=True))
        newest = dict(zip(kinds, details, strict=True))
        for (partition, reason), count in Counter(kinds).items():
            before = counters.get(partition, _NONE)
            counters[partition] = msgspec.structs.replace(
                before,
                rejected={**before.rejected, reason: before.rejected.get(reason, 0) + count},
                example={**before.example, reason: newest[partition, reason]},
            )
        self.counters = counters

    def example(self) -> dict[str, str]:
        """Return, by reason, what was wrong with a record that was refused lately."""
        return {
            reason: text for counter in self.counters.values() for reason, text in counter.example.items()
        }

    def keep_only(self, partitions: Collection[int]) -> None:
        """Forget the others: who gets a partition back reads, and counts, it again."""
        if self.hosts is not None:
            self.hosts.keep_only(partitions)
        if not self.counters.keys() <= set(partitions):
            self.counters = {p: seen for p, seen in self.counters.items() if p in partitions}
            self._silent_since_s = {p: s for p, s in self._silent_since_s.items() if p in partitions}

    def assigned(self, partitions: Collection[int], now_s: float) -> None:
        for partition in partitions:
            self._silent_since_s.setdefault(partition, now_s)

    def marks(self, state: LocalState, now_ms: int) -> StreamClocks:
        """Return the clocks of the stream. Late deltas wait from the first time that this receiver sees them
        without a target."""
        late = {
            start
            for start in state.segments
            if (vectors := state.vectors.get(start)) is not None
            and vectors.version > 0
            and not vectors.target
        }
        self._late_since = {start: self._late_since.get(start, now_ms) for start in late}
        self._arrivals = {start: at for start, at in self._arrivals.items() if start in state.segments}
        return StreamClocks(self.mark_ms, dict(self._arrivals), dict(self._late_since))

    def at_end(self, positions: Mapping[int, int], partition: int) -> bool:
        end = self.log_ends.get(partition)
        return end is not None and positions.get(partition, -1) >= end

    def idle(self, positions: Mapping[int, int], partition: int, now_s: float) -> bool:
        """Return True if the partition is read to the log's end and has been silent for a while."""
        silent_s = now_s - self._silent_since_s.get(partition, now_s)
        return silent_s >= self._idle_after_s and self.at_end(positions, partition)
