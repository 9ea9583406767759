"""Reads of cubes with revisions: each revision is read by itself, and its rows take the asked form.

A column that an older revision has not is NULL in its rows, and a warning says so. Refused is what would
mislead: a time unit that it has not, half of what a function combines; and all of it where the revision
after it was made so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from rtolap.base.errors import QueryError
from rtolap.metadata.records import SegmentRecord
from rtolap.model.evolution.older_columns import half_known, older_columns, other_form
from rtolap.model.evolution.older_filter import Known, OlderFilter
from rtolap.model.instants import utc_text
from rtolap.model.predicate import columns_of
from rtolap.protocols.query.messages import QueryWarning
from rtolap.query.cancel import Cancellation
from rtolap.query.cubes.fetch import Fetched, Fetcher
from rtolap.query.cubes.merge import group_partials, merge
from rtolap.query.memory_budget import Account
from rtolap.query.plan import CubeRead, ReadStats, TimeRange
from rtolap.query.session_token import SessionPositions
from rtolap.query.spills.tables import SpilledTable

_READ = "rows of revisions"  # the part of a statement's account
_CHUNK_ROWS = 1 << 16  # of a table on the disk that takes another form


_COUNTED = (
    *("realtime_events", "files_cached", "files_remote", "spilled_bytes", "rows_read", "rows_pruned"),
    "partial_rows",
)


class RevisionRead(NamedTuple):
    """The read of one revision.

    Attributes:
        read: of the revision's own cube and columns; None where its filter passes no row.
        names: asked column → the revision's own.
        missing: asked columns, of rows or of the filter, that it has not.
        until_ms: the start of the next revision; None: it is the newest.
    """

    read: CubeRead | None
    names: dict[str, str]
    missing: tuple[str, ...]
    until_ms: int | None


def revision_reads(read: CubeRead) -> list[RevisionRead]:
    """Return the reads of the revisions whose time is touched. Raises QueryError for what is refused."""
    return [_of_revision(read, place, time, until_ms) for place, time, until_ms in _touched(read)]


def _touched(read: CubeRead) -> Iterator[tuple[int, TimeRange, int | None]]:
    """Yield the revisions that have events of the read's time: their places, that time, and their ends."""
    for place, schema in enumerate(read.revisions):
        following = read.revisions[place + 1].cube.revision if place + 1 < len(read.revisions) else None
        own = schema.cube.revision
        since_ms = None if own is None else own.since_ms
        until_ms = None if following is None else following.since_ms
        time = _within(read.time, since_ms, until_ms)
        if time is not None:
            yield place, time, until_ms


def _of_revision(read: CubeRead, place: int, time: TimeRange, until_ms: int | None) -> RevisionRead:
    schema = read.revisions[place]
    names = older_columns(read.revisions, place)
    asked = (*read.dimensions, *read.partials, *sorted(columns_of(read.filter)))
    missing = tuple(dict.fromkeys(name for name in asked if name not in names))
    _check(read, place, names, missing, until_ms)
    filtered = None if read.filter is None else _filter(read, place, names).rows_of(read.filter)
    if isinstance(filtered, Known):
        if filtered.value is not True:
            return RevisionRead(None, names, missing, until_ms)
        filtered = None
    own = CubeRead(
        schema=schema,
        relation=read.relation,
        dimensions=_own(schema.cube.all_dimensions, (names.get(name) for name in read.dimensions)),
        partials=_own([each.name for each in schema.partials], (names.get(name) for name in read.partials)),
        filter=filtered,
        time=time,
    )
    return RevisionRead(own, names, missing, until_ms)


def _own(ordered: Iterable[str], wanted: Iterable[str | None]) -> tuple[str, ...]:
    chosen = set(wanted)
    return tuple(name for name in ordered if name in chosen)


def _filter(read: CubeRead, place: int, names: dict[str, str]) -> OlderFilter:
    schema = read.revisions[place]
    dimensions = {name: names[name] for name in read.schema.cube.all_dimensions if name in names}
    grown = {
        name
        for name, own in dimensions.items()
        if schema.dimension_type(own) != read.schema.dimension_type(name)
    }
    return OlderFilter(dimensions, grown, next(iter(schema.cube.all_dimensions), None))


def _check(
    read: CubeRead, place: int, names: dict[str, str], missing: Sequence[str], until_ms: int | None
) -> None:
    if not missing:
        return
    assert until_ms is not None, "the newest revision has all of its columns"
    name, since = read.cube, utc_text(until_ms)
    units = [each for each in missing if each in read.schema.cube.time_columns]
    other = other_form(read.revisions, place, missing)
    half = half_known(read.schema, read.partials, [each for each in read.partials if each in names])
    refuses = [
        schema
        for schema in read.revisions[place + 1 :]
        if schema.cube.revision is not None and schema.cube.revision.older == "refuse"
    ]
    if units:
        problem, found = f"{name} has no {units[0]} of events before {since}", "a statement that needs it"
    elif other is not None:
        problem = f"{other} of {name} does not go on with what events before {since} have"
        found = "values of another type there, or sketches of another size"
    elif half is not None:
        problem = f"{name} has only a part of what is needed of {half}, of events before {since}"
        found = f"no {', '.join(each for each in missing if each in read.partials)} there"
    elif refuses:
        problem = f"{name} has no {', '.join(missing)} of events before {since}"
        found = "the policy `older: refuse`"
    else:
        return
    time = read.schema.table.time.column
    raise QueryError(
        problem,
        expected=f"a condition on {time} that leaves them out",
        found=found,
        action="add the condition, or leave the column out",
    )


def in_asked_form(read: CubeRead, part: RevisionRead, table: pa.Table) -> pa.Table:
    """Return rows of a revision as rows of the read."""
    columns = []
    for field in read.columns:
        own = part.names.get(field.name)
        if own is not None:
            columns.append(table.column(own).cast(field.type))
        else:
            columns.append(pa.nulls(table.num_rows, field.type))
    return pa.Table.from_arrays(columns, schema=read.columns)


def united(read: CubeRead, stats: Sequence[ReadStats]) -> ReadStats:
    """Return the statistics of a read out of those of its revisions."""
    found = ReadStats(read.cube, revisions=tuple(stats))
    for each in stats:
        found.history_segments += each.history_segments
        found.pruned_segments += each.pruned_segments
        found.realtime_segments += each.realtime_segments
        found.receivers |= each.receivers
        found.cuboids = dict(Counter(found.cuboids) + Counter(each.cuboids))
        found.realtime_cuboids = dict(Counter(found.realtime_cuboids) + Counter(each.realtime_cuboids))
        if each.is_own:  # what another statement has read is in its statistics
            for name in _COUNTED:
                setattr(found, name, getattr(found, name) + getattr(each, name))
        found.snapshots = max(found.snapshots, each.snapshots)
        for reason, count in each.refused.items():  # each revision reads all of the topic
            found.refused[reason] = max(count, found.refused.get(reason, 0))
        found.refused_example |= each.refused_example
        found.stalled |= each.stalled
        found.warnings += tuple(warning for warning in each.warnings if warning not in found.warnings)
    if stats:
        found.is_own = any(each.is_own for each in stats)
        found.statements = min(each.statements for each in stats)
    engines = {each.engine: each.engine_reason for each in stats if each.engine}
    found.engine = " and ".join(engines)
    found.engine_reason = "; ".join(dict.fromkeys(engines.values()))
    return found


class RevisionFetcher(Fetcher):
    """Fetches reads of cubes with revisions, too: each revision as a cube of its own."""

    def segments(self, read: CubeRead, cancellation: Cancellation) -> tuple[SegmentRecord, ...]:
        """Return all segments of the read's time that there are records of."""
        if not read.revisions:
            return super().segments(read, cancellation)
        found: list[SegmentRecord] = []
        for place, time, _ in _touched(read):
            part = replace(read, schema=read.revisions[place], time=time, filter=None, revisions=())
            found += super().segments(part, cancellation)
        return tuple(found)

    def estimate(self, read: CubeRead, cancellation: Cancellation) -> ReadStats:
        """Return what `fetch` would do. Raises QueryError, Corrupted."""
        if not read.revisions:
            return super().estimate(read, cancellation)
        parts, estimate = revision_reads(read), super().estimate
        stats = [estimate(part.read, cancellation) for part in parts if part.read is not None]
        return self._with_warnings(read, parts, united(read, stats))

    def fetch(
        self, read: CubeRead, cancellation: Cancellation, session: SessionPositions, account: Account
    ) -> Fetched:
        """Fetch a read, see `Fetcher.fetch`. Raises QueryError too."""
        if not read.revisions:
            return super().fetch(read, cancellation, session, account)
        parts, tables, stats = revision_reads(read), [], []
        spilled: SpilledTable | None = None
        held_bytes = 0
        for part in parts:
            if part.read is None:
                continue
            fetched = super().fetch(part.read, cancellation, session, account)
            stats.append(fetched.stats)
            if isinstance(fetched.table, SpilledTable):
                spilled = spilled or fetched.table.beside(read.columns)
                _copy(read, part, fetched.table, spilled)
            else:
                tables.append(in_asked_form(read, part, fetched.table))
                held_bytes += tables[-1].nbytes
                account.reserve(_READ, held_bytes)
        merged = merge(read, tables)
        if sum(table.num_rows > 0 for table in tables) > 1:
            merged = group_partials(read, merged)
        account.reserve(_READ, 0)
        done = self._with_warnings(read, parts, united(read, stats))
        done.partial_rows = merged.num_rows
        if spilled is None:
            return Fetched(merged, done)
        spilled.write(merged)
        spilled.seal()
        done.partial_rows = spilled.num_rows
        return Fetched(spilled, done)

    def _with_warnings(self, read: CubeRead, parts: Sequence[RevisionRead], stats: ReadStats) -> ReadStats:
        stats.warnings += tuple(
            QueryWarning(
                "column_since",
                "Warning",
                f"{read.cube} has no {', '.join(part.missing)} of events before {utc_text(part.until_ms)}: "
                "NULL stands there",
            )
            for part in parts
            if part.missing and part.until_ms is not None
        )
        return stats


def _copy(read: CubeRead, part: RevisionRead, source: SpilledTable, target: SpilledTable) -> None:
    for batch in source.mapped().to_batches(_CHUNK_ROWS):
        target.write(in_asked_form(read, part, pa.Table.from_batches([batch])))


def _within(time: TimeRange, since_ms: int | None, until_ms: int | None) -> TimeRange | None:
    """Return the part of a range that a revision has events of; None where there is none."""
    starts = [at for at in (time.start_ms, since_ms) if at is not None]
    ends = [at for at in (time.end_ms, until_ms) if at is not None]
    start, end = max(starts, default=None), min(ends, default=None)
    if start is not None and end is not None and start >= end:
        return None
    return TimeRange(start, end)
