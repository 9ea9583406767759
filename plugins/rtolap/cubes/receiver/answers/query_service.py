"""Answer a PartialQuery from one local state.

The answer holds, of every requested segment, exactly the events of this receiver's partitions that the
snapshot's history does not hold, up to `positions`. When the state does not allow that yet, `answer` raises
NotReady and the caller waits for another state; when it no longer does, StaleSnapshot.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec
import pyarrow as pa

from rtolap.base.errors import QueryError, StaleSnapshot, Unavailable
from rtolap.columnar.schema import physical_schema
from rtolap.cubes.format.aggregate import to_plain
from rtolap.cubes.receiver.answers.result_cache import ResultCache, merged_plainly
from rtolap.cubes.receiver.answers.top_groups import first_groups, spread_groups
from rtolap.cubes.receiver.core.partition_progress import ConsumerProgress
from rtolap.cubes.receiver.local.tables import LocalState, LocalTable
from rtolap.model.cube import Schema
from rtolap.model.predicate import columns_of
from rtolap.model.segment import SegmentRange, parse_segment_name
from rtolap.protocols.receiver.messages import (
    ANSWER_KEY,
    GroupsLeft,
    HistorySnapshot,
    PartialAnswer,
    PartialQuery,
)


class NotReady(Unavailable):
    """The state has to catch up first; a later one will do."""

    code = "not_ready"


def answer(
    schema: Schema,
    state: LocalState,
    query: PartialQuery,
    *,
    owned: Collection[int],
    receiver_id: str,
    progress: ConsumerProgress,
    cache: ResultCache | None = None,
    pause_reason: str = "",
) -> pa.Table:
    """Return a plain table with its PartialAnswer in the schema's metadata. Raises NotReady or StaleSnapshot.

    `cache`: the cube's results of statements that come again; None reads everything. `pause_reason`: why the
    consumer is paused, for PartialAnswer's `held`.
    """
    _check_columns(schema, query)
    check(schema, state, query, owned)
    tables: list[LocalTable] = []
    names: list[str] = []
    for start_ms, segment in sorted(state.segments.items()):
        window = SegmentRange(start_ms, start_ms + schema.cube.segment.window_ms)
        if not _is_wanted(window, query.snapshot):
            continue
        names.append(window.name)
        tables += segment.tables
    found = cache.merged(query, tables) if cache is not None else merged_plainly(schema, query, tables)
    left = None if query.top is None or not query.top.spread else GroupsLeft(None)
    if query.ahead:  # what it left in the cache was wanted
        table = physical_schema(schema, query.dimensions, query.partials, plain=True).empty_table()
    elif found.table.num_rows:
        rows = found.table
        if query.top is not None and query.top.spread:
            rows, left = spread_groups(rows, query.dimensions, query.top)
        elif query.top is not None:
            rows = first_groups(rows, query.dimensions, query.top)
        table = to_plain(schema, rows)
    else:
        table = physical_schema(schema, query.dimensions, query.partials, plain=True).empty_table()
    meta = PartialAnswer(
        receiver_id=receiver_id,
        positions=dict(state.positions),
        segments=tuple(names),
        rows_scanned=found.rows_scanned,
        rows_pruned=found.rows_pruned,
        cuboids=dict(found.cuboids),
        refused={part: counter.rejected for part, counter in progress.counters.items() if counter.rejected},
        refused_example=progress.example(),
        held=pause_reason,
        void={p: end for p, (_, end) in state.void.items() if state.positions.get(p, end) < end},
        left=left,
    )
    return table.replace_schema_metadata({ANSWER_KEY: msgspec.json.encode(meta)})


def check(schema: Schema, state: LocalState, query: PartialQuery, owned: Collection[int]) -> None:
    """Check that this state may answer this query."""
    behind = {p: state.positions.get(p) for p in owned if p not in state.positions}
    if behind:
        raise NotReady("the receiver has not started all its partitions", found=sorted(behind))
    _reached(state, _still_there(state, query.at_least), "what an earlier answer held")
    snapshot = query.snapshot
    _check_epoch(state, snapshot)
    _check_horizon(state, snapshot)
    window_ms = schema.cube.segment.window_ms
    wanted_versions = {
        parse_segment_name(name).start_ms: version for name, version in snapshot.versions.items()
    }
    settled = state.settled.versions(_first_ms(snapshot), snapshot.end_ms)
    _reached(state, state.settled.frontier.covered, "what history holds")
    for start_ms in {*wanted_versions, *settled, *state.vectors, *state.segments}:
        window = SegmentRange(start_ms, start_ms + window_ms)
        if not _is_wanted(window, snapshot):
            continue
        vectors = state.vectors.get(start_ms)
        if vectors is not None:
            known, purged = vectors.version, vectors.purged
        elif start_ms in state.segments:  # its tables are not aligned with any version yet
            known, purged = 0, False
        else:
            known, purged = settled.get(start_ms, (0, False))
        wanted = wanted_versions.get(start_ms, 0)
        if known < wanted:
            raise NotReady(f"version {wanted} of {window.name} is not known here yet", found=known)
        if known > wanted or purged:
            raise StaleSnapshot(
                f"{window.name} has moved on",
                expected=f"version {known}",
                found=wanted,
                action="take a new snapshot",
            )
        if vectors is not None:
            _reached(state, vectors.covered, f"what history holds of {window.name}")
        segment = state.segments.get(start_ms)
        if segment is not None and segment.unsettled:
            raise NotReady(f"{window.name} is being realigned")


def _first_ms(snapshot: HistorySnapshot) -> int | None:
    """Return from where on segments matter to the snapshot; None: from the first on."""
    bounds = [at_ms for at_ms in (snapshot.start_ms, snapshot.horizon_ms) if at_ms is not None]
    return max(bounds, default=None)


def _still_there(state: LocalState, at_least: dict[int, int]) -> dict[int, int]:
    """Return the positions without those that an answer reached in records that the log has lost."""
    return {
        part: offset
        for part, offset in at_least.items()
        if part not in state.void or not state.void[part][0] < offset <= state.void[part][1]
    }


def _check_epoch(state: LocalState, snapshot: HistorySnapshot) -> None:
    """Refuse an answer of another assignment. Of two assignments, a partition may be in both or in
    neither."""
    local, requested = state.assignment_epoch, snapshot.assignment_epoch
    if not local:
        raise NotReady("the receiver does not follow any assignment yet")
    if requested is None or requested == local:
        return
    if requested > local:
        raise NotReady("the receiver does not follow the assignment yet", expected=requested, found=local)
    raise StaleSnapshot(
        "the assignment has changed",
        expected=f"epoch {local}",
        found=requested,
        action="take a new snapshot",
    )


def _check_horizon(state: LocalState, snapshot: HistorySnapshot) -> None:
    local, requested = state.horizon_ms, snapshot.horizon_ms
    if local is None or (requested is not None and requested >= local):
        return
    if snapshot.start_ms is None or snapshot.start_ms < local:
        raise StaleSnapshot("segments were purged", expected=f"horizon {local}", found=requested)


def _reached(state: LocalState, offsets: dict[int, int], what: str) -> None:
    for part, offset in offsets.items():
        position = state.positions.get(part)
        if position is not None and position < offset:
            raise NotReady(
                f"partition {part} has not reached {what}", expected=f"offset {offset}", found=position
            )


def _is_wanted(window: SegmentRange, snapshot: HistorySnapshot) -> bool:
    if snapshot.horizon_ms is not None and window.end_ms <= snapshot.horizon_ms:
        return False
    if snapshot.start_ms is not None and window.end_ms <= snapshot.start_ms:
        return False
    return snapshot.end_ms is None or window.start_ms < snapshot.end_ms


def _check_columns(schema: Schema, query: PartialQuery) -> None:
    dimensions = set(schema.cube.all_dimensions)
    unknown = sorted({*query.dimensions, *columns_of(query.filter)} - dimensions)
    unknown += sorted(set(query.partials) - {partial.name for partial in schema.partials})
    if unknown:
        raise QueryError(
            f"cube {schema.cube.name} has no {', '.join(unknown)}",
            expected=f"dimensions {', '.join(schema.cube.all_dimensions)}",
        )
