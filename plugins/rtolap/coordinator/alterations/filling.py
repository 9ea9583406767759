"""Filling of older events: the moment from which on statements read a revision moves back.

    before        ───────── flights ─────────────────┼── flights_r2 ──▶ event time
                                 fills_from          since
    after         ── flights ────┼────────────── flights_r2 ──────────▶
                                 since

The revision takes events from `fills_from_ms` on since it was made. Once it holds, of a range right before
its moment, all that history of the older one holds, the moment moves to the start of that range. One commit
of its definition does it, which is all that statements go by. The older one keeps its end, and with it every
event that a statement with an earlier look reads.

A crash before the commit has changed nothing; after it, nothing is left to do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from rtolap.base.errors import NotFound
from rtolap.coordinator.heartbeats import Heartbeats
from rtolap.coordinator.views import Views
from rtolap.metadata import codec, paths
from rtolap.metadata.change_log import change_log
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import SegmentRecord
from rtolap.metadata.store import Check, Put, Versioned
from rtolap.metadata.updates import retried, standing
from rtolap.model.cube import Cube, Revision
from rtolap.model.evolution.revisions import common_window_ms
from rtolap.model.instants import utc_text
from rtolap.model.offsets import Offsets, larger
from rtolap.model.segment import SegmentRange, SegmentState, parse_segment_name

log = logging.getLogger(__name__)


class Filling:
    """`heartbeats`: how far receivers have read."""

    def __init__(self, metadata: ClusterMetadata, views: Views, heartbeats: Heartbeats) -> None:
        self._metadata = metadata
        self._views = views
        self._heartbeats = heartbeats

    @retried
    def run(self, name: str) -> int | None:
        """Move the revision's moment back as far as it is filled, and return it; None of a cube that fills
        nothing. Raises NotFound without the cube."""
        store = self._metadata.store
        path = paths.cube_definition(name)
        cube, node = standing(store, path, Cube, f"cube {name}")
        revision = cube.revision
        if revision is None or revision.since_ms is None or revision.fills_from_ms is None:
            return None
        if revision.since_ms <= revision.fills_from_ms:
            return revision.since_ms
        older = self._metadata.revision_before(cube)
        if older is None:
            return revision.since_ms  # it has aged out: nothing of it is left to be filled in
        names = (name, older.name)
        read = [self._read(paths.cube_control(each)) for each in names]
        read += [(paths.cube_changes(each), change_log(store, each, None)[1]) for each in names]
        controls, records = zip(*(self._views.fresh(each) for each in names), strict=True)
        if self._heartbeats.unknown(older.name, controls[1], self._metadata.living_members()):
            return revision.since_ms  # what its receivers hold is not known yet
        filled = filled_back_to(
            cube,
            older,
            *records,
            held=[parse_segment_name(each) for each in self._heartbeats.active_segments(older.name)],
            horizons=(controls[0].horizon_ms, controls[1].horizon_ms),
            positions={p: each.position for p, each in self._heartbeats.partitions(name).items()},
            covered=lambda record: self._metadata.whole_segment(record).covered,
        )
        if filled.since_ms < revision.since_ms:
            moved = msgspec.structs.replace(
                revision,
                since_ms=filled.since_ms,
                filled_at=tuple(larger(dict(revision.filled_at), filled.vector).items()),
            )
            after = msgspec.structs.replace(cube, revision=moved)
            unchanged = [Check(at, version.version) for at, version in read]
            store.commit([Put(path, codec.encode(after), node.version), *unchanged])
            log.info("cube %s is filled from %s on", name, utc_text(filled.since_ms))
        return filled.since_ms

    def _read(self, path: str) -> tuple[str, Versioned]:
        node = self._metadata.store.get(path)
        if node is None:
            raise NotFound(f"{path} does not exist", action="the cube was dropped meanwhile")
        return path, node


class Filled(NamedTuple):
    """The standing of a revision that is filled.

    Attributes:
        since_ms: the earliest moment from which on it holds what the older one's history holds.
        vector: partition → offset that it has read up to, for that to be so.
    """

    since_ms: int
    vector: Offsets


def filled_back_to(
    cube: Cube,
    older: Cube,
    own_records: Mapping[str, SegmentRecord],
    older_records: Mapping[str, SegmentRecord],
    *,
    held: Collection[SegmentRange],
    horizons: tuple[int | None, int | None],
    positions: Offsets,
    covered: Callable[[SegmentRecord], Offsets],
) -> Filled:
    """Return how far the revision is filled, from its moment back.

    A range is filled once a version of each of the older one's segments of it is READY, this one has history
    of each of them, by a batch where batches fill it, and has read as far as the vectors of the older one's,
    of late events that it is merging, too. A segment whose events the older one's receivers hold waits until
    it is closed: no vector says before how far they must be read. A segment that a batch has replaced is not
    filled from the topic. A range that the older one has purged, and this one has not, is never filled: its
    events would come back.

    Args:
        own_records, older_records: by name.
        held: the older one's segments of which its receivers hold events.
        horizons: purge horizons, the revision's own first.
        positions: how far the revision is read, by partition.
        covered: the vector of a READY version, which may have to be read.
    """
    revision = cube.revision
    assert revision is not None, "only revisions fill"
    assert revision.since_ms is not None, "none fills but one that follows another"
    assert revision.fills_from_ms is not None, "it fills"
    window_ms, step_ms = cube.segment.window_ms, common_window_ms(older, cube)
    own = {record.start_ms: record for record in own_records.values()}
    have_history = {record.start_ms for record in older_records.values() if record.version}
    not_closed = [each for each in held if each.start_ms not in have_history]

    def vector_of(start_ms: int, end_ms: int) -> Offsets | None:
        """Return the vector of a range that is filled; None where it is not."""
        own_ms, older_ms = horizons
        if older_ms is not None and start_ms < older_ms and (own_ms is None or own_ms < end_ms):
            return None
        if any(each.start_ms < end_ms and each.end_ms > start_ms for each in not_closed):
            return None
        vector: Offsets = {}
        for record in older_records.values():
            is_within = record.start_ms < end_ms and record.end_ms > start_ms
            if not is_within or record.state is SegmentState.PURGED:
                continue
            by_batch = bool(record.batch or record.pending_batch)
            if not record.version or record.pending_batch or (by_batch and revision.filled_by == "topic"):
                return None
            starts = range(record.start_ms // window_ms * window_ms, record.end_ms, window_ms)
            if record.events and not _have_history([own.get(start) for start in starts], revision):
                return None
            vector = larger(larger(vector, covered(record)), record.target)
        return vector if all(positions.get(p, 0) >= at for p, at in vector.items()) else None

    at_ms, whole = revision.since_ms, dict[int, int]()
    while at_ms - step_ms >= revision.fills_from_ms:
        vector = vector_of(at_ms - step_ms, at_ms)
        if vector is None:
            break
        at_ms, whole = at_ms - step_ms, larger(whole, vector)
    return Filled(at_ms, whole)


def _have_history(records: Sequence[SegmentRecord | None], revision: Revision) -> bool:
    """Return True if these segments have what one with events of the older revision is filled with. A batch
    gives each of them a record; of those that are read from the topic, one may have no event."""
    if revision.filled_by == "topic":
        return any(record is not None and record.version for record in records)
    return all(
        record is not None and record.version and record.batch and not record.pending_batch
        for record in records
    )
