"""The host progress in one batch: events of the hosts that logged them, statements of their producer."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rtolap.columnar.schema import EVENT_MS, PARTITION
from rtolap.protocols.watermark.messages import NAMELESS
from rtolap.watermark.records.columns import UNKNOWN_MS, Statements

Int64s = NDArray[np.int64]

NEVER = -(2**63)


@dataclass(frozen=True, slots=True)
class HostProgressBatch:
    """The host progress of one batch. Row i is `hosts[i]` in `partitions[i]`; each pair occurs once.

    Attributes:
        events: number of events that were read of the host.
        generations: of a producer that states its own progress; 0 for hosts that log.
    """

    hosts: pa.Array
    partitions: Int64s
    latest_ms: Int64s
    events: Int64s
    generations: Int64s

    def without_events(self) -> HostProgressBatch:
        """Return this batch as heartbeats: they move progress, and are not counted as events."""
        return replace(self, events=np.zeros_like(self.events))


def heard(events: pa.Table, created_ms: Int64s | None, host_column: str | None) -> HostProgressBatch:
    """Return the progress of hosts in a batch. `events` come from `events.decode`; `created_ms` has the
    timestamp of each event's record, -1 for none.

    Without a host column all events are of one nameless host. A host that is null stands as one row, too.
    """
    event_ms = np.asarray(events.column(EVENT_MS).to_numpy(), np.int64)
    if created_ms is not None:
        event_ms = np.where(created_ms < 0, event_ms, np.minimum(event_ms, created_ms))
    table = pa.table({"partition": events.column(PARTITION), "at": event_ms})
    if host_column is None:
        hosts: pa.Array | pa.ChunkedArray = pa.repeat(pa.scalar(NAMELESS), len(table))
    else:
        hosts = events.column(host_column)
    grouped = (
        table.append_column("host", hosts)
        .group_by(["partition", "host"], use_threads=False)
        .aggregate([("at", "max"), ("at", "count")])
    )
    return HostProgressBatch(
        grouped.column("host").combine_chunks(),
        np.asarray(grouped.column("partition").to_numpy(), np.int64),
        np.asarray(grouped.column("at_max").to_numpy(), np.int64),
        np.asarray(grouped.column("at_count").to_numpy(), np.int64),
        np.zeros(grouped.num_rows, np.int64),
    )


def stated(statements: Statements) -> HostProgressBatch:
    """Return the progress that producers state themselves, with producers in the place of hosts.

    A producer that does not know its progress yet counts too: it ends the validity of its predecessor's.
    """
    return HostProgressBatch(
        pa.array(statements.producers, pa.string()),
        statements.partitions,
        np.where(statements.watermarks_ms == UNKNOWN_MS, NEVER, statements.watermarks_ms),
        np.zeros(len(statements), np.int64),
        statements.generations,
    )
