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
from collections.abc import Callable, Iterable, Mapping

import msgspec

from rtolap.base.errors import NotFound
from rtolap.coordinator.views import Views
from rtolap.metadata import codec, paths
from rtolap.metadata.change_log import change_log
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import SegmentRecord
from rtolap.metadata.store import Check, Put, Versioned
from rtolap.metadata.updates import retrying
from rtolap.model.cube import Cube
from rtolap.model.evolution.revisions import common_window_ms
from rtolap.model.instants import utc_text
from rtolap.model.offsets import Offsets
from rtolap.model.segment import SegmentState

log = logging.getLogger(__name__)


class Filling:
    def __init__(self, metadata: ClusterMetadata, views: Views) -> None:
        self._metadata = metadata
        self._views = views

    def run(self, name: str) -> int | None:
        """Move the revision's moment back as far as it is filled, and return it; None of a cube that fills
        nothing. Raises NotFound without the cube."""
        return retrying(lambda: self._move(name))

    def _move(self, name: str) -> int | None:
        """Raise CommitConflict where a segment, a horizon or a definition has changed since it was read."""
        store = self._metadata.store
        path = paths.cube_definition(name)
        node = store.get(path)
        if node is None:
            raise NotFound(f"cube {name} does not exist")
        cube = codec.decode(node.data, Cube, path)
        revision = cube.revision
        if revision is None or revision.since_ms is None or revision.fills_from_ms is None:
            return None
        if revision.since_ms <= revision.fills_from_ms:
            return revision.since_ms
        older = self._before(cube)
        if older is None:
            return revision.since_ms  # it has aged out: nothing of it is left to be filled in
        names = (name, older.name)
        read = [self._read(paths.cube_control(each)) for each in names]
        read += [(paths.cube_changes(each), change_log(store, each, None)[1]) for each in names]
        controls, records = zip(*(self._views.fresh(each) for each in names), strict=True)
        moment_ms = filled_back_to(
            cube,
            older,
            *records,
            horizons=(controls[0].horizon_ms, controls[1].horizon_ms),
            replay_from=self._metadata.replay_from(name),
            covered=lambda record: self._metadata.whole_segment(record).covered,
        )
        if moment_ms < revision.since_ms:
            moved = msgspec.structs.replace(revision, since_ms=moment_ms)
            after = msgspec.structs.replace(cube, revision=moved)
            unchanged = [Check(at, version.version) for at, version in read]
            store.commit([Put(path, codec.encode(after), node.version), *unchanged])
            log.info("cube %s is filled from %s on", name, utc_text(moment_ms))
        return moment_ms

    def _before(self, cube: Cube) -> Cube | None:
        """Return the revision before this one, if it stands."""
        assert cube.revision is not None, "only revisions fill"
        before = [
            each
            for each in self._metadata.revisions(cube.revision.of)
            if each.revision is not None and each.revision.number < cube.revision.number
        ]
        return before[-1] if before else None

    def _read(self, path: str) -> tuple[str, Versioned]:
        node = self._metadata.store.get(path)
        if node is None:
            raise NotFound(f"{path} does not exist", action="the cube was dropped meanwhile")
        return path, node


def filled_back_to(
    cube: Cube,
    older: Cube,
    own_records: Mapping[str, SegmentRecord],
    older_records: Mapping[str, SegmentRecord],
    *,
    horizons: tuple[int | None, int | None],
    replay_from: Offsets,
    covered: Callable[[SegmentRecord], Offsets],
) -> int:
    """Return the earliest moment from which on the revision holds all that history of the older one holds.

    Filled from the topic is a range once the revision's history holds everything below the vectors of the
    older one's segments; by a batch, once a READY version of a batch stands for each of them. A range that
    the older one has purged, and this one has not, is never filled: its events would come back.

    Args:
        own_records, older_records: by name.
        horizons: purge horizons, the revision's own first.
        replay_from: offsets below which the revision's history holds everything of its time.
        covered: the vector of a READY version, which may have to be read.
    """
    revision = cube.revision
    assert revision is not None, "only revisions fill"
    assert revision.since_ms is not None, "none fills but one that follows another"
    assert revision.fills_from_ms is not None, "it fills"
    step_ms = common_window_ms(older, cube)
    own = {record.start_ms: record for record in own_records.values()}
    at_ms = revision.since_ms

    def is_filled(start_ms: int, end_ms: int) -> bool:
        own_ms, older_ms = horizons
        if older_ms is not None and start_ms < older_ms and (own_ms is None or own_ms < end_ms):
            return False
        to_fill = [
            record
            for record in _overlapping(older_records.values(), start_ms, end_ms)
            if record.state is not SegmentState.PURGED
        ]
        if any(record.state is not SegmentState.READY for record in to_fill):
            return False
        if revision.filled_by == "batch":
            window_ms = cube.segment.window_ms
            starts = {
                window
                for record in to_fill
                for window in range(record.start_ms // window_ms * window_ms, record.end_ms, window_ms)
            }
            return all(_is_of_batch(own.get(start)) for start in starts)
        return all(
            replay_from.get(partition, 0) >= offset
            for record in to_fill
            for partition, offset in covered(record).items()
        )

    while at_ms - step_ms >= revision.fills_from_ms and is_filled(at_ms - step_ms, at_ms):
        at_ms -= step_ms
    return at_ms


def _overlapping(records: Iterable[SegmentRecord], start_ms: int, end_ms: int) -> list[SegmentRecord]:
    return [record for record in records if record.start_ms < end_ms and record.end_ms > start_ms]


def _is_of_batch(record: SegmentRecord | None) -> bool:
    return (
        record is not None
        and record.state is SegmentState.READY
        and bool(record.batch)
        and not record.pending_batch
    )
