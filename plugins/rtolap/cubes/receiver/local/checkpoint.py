"""The local checkpoint: next-to-read offsets and the fragments that hold what lies below, as one record.

A checkpoint writes memory out for all segments, so positions and fragments are always of one moment: that of
its draft. Steps 3 to 6 may be done beside the core, which goes on with later events meanwhile
(`core.checkpointing.Checkpoints`):

  1. settle the dead letters         crash: some rejects are produced again, under the same key;
                                     not possible: no checkpoint, the consumer pauses and says why
  2. draft: seal the memory tables   in memory only
  3. confirm the topic               asked after everything in the draft was read; another one: no checkpoint
  4. write the new fragments         crash: files that no checkpoint names; recovery deletes them
  5. replace the checkpoint          crash: the old one stands (4.), or the new one
  6. delete fragments no longer named   crash: recovery deletes them
  7. swap the local state            in memory only; what was realigned or dropped since the draft stays as it
                                     is, and what the checkpoint names for it goes with the next one

Recovery reads it, deletes fragment files that it does not name, opens the others with their checksums,
aligns them with the records (dropping what is READY by now), and reads on at its positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from rtolap.base.files import read_from_disk, write_atomic
from rtolap.base.undecodable import decode_own
from rtolap.cubes.format.fragment import SUFFIX, delete_fragment, open_unverified
from rtolap.cubes.receiver.hosts.host_progress import SavedHosts
from rtolap.cubes.receiver.local.align import Ranges
from rtolap.cubes.receiver.local.tables import LocalSegment, LocalTable
from rtolap.model.cube import Schema
from rtolap.model.leader_epochs import LeaderEpochs
from rtolap.model.offsets import Offsets

NAME = "checkpoint.json"
FRAGMENTS = "fragments"


class FragmentEntry(msgspec.Struct, frozen=True):
    segment_ms: int
    name: str
    events: int
    ranges: Ranges
    cuts: dict[int, int] = {}


class PartitionCounters(msgspec.Struct, frozen=True):
    """Counts of a partition since the cube began, for this receiver.

    Replayed events are not counted twice, because the counters are part of the checkpoint.

    Attributes:
        rejected: reason → number of records.
        hostless: events without a usable host, in a cube that closes by hosts.
        example: reason → what was wrong with the newest of these records.
        filtered: records that the table's condition left out.
    """

    events: int = 0
    late: int = 0
    dropped: int = 0
    rejected: dict[str, int] = {}
    watermark_ms: int | None = None
    hostless: int = 0
    example: dict[str, str] = {}
    filtered: int = 0


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a cube's consumer on disk.

    Attributes:
        mark_ms: see `closing_rules.StreamClocks`.
        arrivals: see `closing_rules.StreamClocks`.
        hosts: the progress of hosts, in a cube that closes by an application.
        topic_id: of the topic in which the offsets count; None where it is not known.
        epochs: see `tables.LocalState`; empty in older checkpoints: nothing is compared until a record has
            been read.
        void: see `tables.LocalState`.
    """

    cube: str
    positions: Offsets
    fragments: tuple[FragmentEntry, ...] = ()
    counters: dict[int, PartitionCounters] = {}
    mark_ms: int | None = None
    arrivals: dict[int, int] = {}
    hosts: SavedHosts | None = None
    saved_ms: int = 0
    topic_id: str | None = None
    epochs: dict[int, LeaderEpochs] = {}
    void: dict[int, tuple[int, int]] = {}


class CheckpointFile:
    """The files of a checkpoint: below `folder` stand the checkpoint and, in a folder of their own, its
    fragments."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fragments = folder / FRAGMENTS
        self.fragments.mkdir(parents=True, exist_ok=True)

    def save(self, checkpoint: Checkpoint) -> None:
        write_atomic(self.folder / NAME, msgspec.json.encode(checkpoint))

    def load(self) -> Checkpoint | None:
        path = self.folder / NAME
        action = "move the cube's folder away: the receiver then replays from Kafka"
        try:
            with read_from_disk(path, action=action):
                data = path.read_bytes()
        except FileNotFoundError:
            return None
        return decode_own(data, Checkpoint, f"{path} is not a checkpoint", action=action)

    def clean(self, keep: set[str]) -> None:
        """Delete what no checkpoint names, unfinished files too."""
        for path in self.fragments.iterdir():
            stem = path.name.partition(".")[0]
            if stem not in keep:
                delete_fragment(self.fragments, stem)
                path.unlink(missing_ok=True)

    def recover(self, checkpoint: Checkpoint, schema: Schema) -> dict[int, LocalSegment]:
        """Return the named fragments, not yet aligned.

        Their bytes are compared with their checksums later, before anything is made of them: a start would
        take the longer the more there are. Raises Corrupted or NotFound for what can be seen from headers and
        lengths.
        """
        segments: dict[int, LocalSegment] = {}
        for entry in checkpoint.fragments:
            fragment = open_unverified(self.fragments / f"{entry.name}{SUFFIX}", schema)
            table = LocalTable(
                table=fragment.table,
                events=entry.events,
                ranges=entry.ranges,
                versions=(1,),
                cuts=entry.cuts,
                fragment=fragment,
            )
            before = segments.get(entry.segment_ms, LocalSegment(entry.segment_ms))
            segments[entry.segment_ms] = LocalSegment(entry.segment_ms, (*before.tables, table))
        return segments


def entries(segments: Mapping[int, LocalSegment]) -> tuple[FragmentEntry, ...]:
    return tuple(
        FragmentEntry(
            segment.start_ms, table.fragment.info.name, table.events, table.ranges, dict(table.cuts)
        )
        for segment in segments.values()
        for table in segment.tables
        if table.fragment is not None
    )
