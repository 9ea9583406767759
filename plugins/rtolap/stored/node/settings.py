"""Bounds of a storage node, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass, field

from rtolap.servers.flight_server import DRAIN_S
from rtolap.stored.engine.settings import TabletSettings


@dataclass(frozen=True)
class StorageSettings:
    """load_memory_bytes_max   rows of all loads that are in no file yet; beyond, loads write files early
    loads_max               streams at once; one more is to retry later. Each may keep its share of the
                            memory, so that there are at most twice `load_memory_bytes_max` in memory
    batch_bytes_max         one batch of a stream; a larger one is refused
    load_idle_s             a stream that brings nothing for so long is given up, and its memory with it
    aborted_max             transactions remembered as aborted, against late streams of theirs
    disk_free_bytes_min     below it no stream is begun: publishing and compacting need room too
    compact_every_s         how often all tablets are looked at; those published to are looked at at once
    verify_every_s          how often every byte is read again: as often as Ceph scrubs deeply by default
                            (osd_deep_scrub_interval)
    verify_bytes_per_s      what this may take from loads and statements; a week of it is 20 TB
    heartbeat_every_s       well within the lease that endpoints give
    drain_s                 how long a node that is to stop waits for open streams
    """

    load_memory_bytes_max: int = 512 << 20
    loads_max: int = 64
    batch_bytes_max: int = 64 << 20
    load_idle_s: float = 300.0
    aborted_max: int = 100_000
    disk_free_bytes_min: int = 256 << 20
    compact_every_s: float = 60.0
    verify_every_s: float = 7 * 86_400.0
    verify_bytes_per_s: float = 32 << 20
    heartbeat_every_s: float = 2.0
    drain_s: float = DRAIN_S
    tablet: TabletSettings = field(default_factory=TabletSettings)
