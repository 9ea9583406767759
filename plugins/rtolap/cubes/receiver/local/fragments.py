"""Memory tables → fragments, and small fragments → larger ones. Builds values; swaps nothing."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from rtolap.base.errors import Corrupted
from rtolap.cubes.format.aggregate import merge_tables
from rtolap.cubes.format.fragment import SUFFIX, Fragment, open_fragment, write_fragment
from rtolap.cubes.receiver.local.small_cuboids import TABLE_ROWS_MIN, small_cuboids
from rtolap.cubes.receiver.local.tables import LocalSegment, LocalState, LocalTable, merged, runs, substituted
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.model.cube import Schema

SPREAD_PART = 0.5
SPREAD_ROWS_MIN = TABLE_ROWS_MIN  # fewer rows are read about as quickly wherever they are


@dataclass(frozen=True)
class Flushed:
    """`written` stands for the memory tables of `group`."""

    start_ms: int
    group: tuple[LocalTable, ...]
    written: LocalTable


def sealed(state: LocalState) -> LocalState:
    """Return the same state, whose memory tables are merged with no later ones: they are about to be written
    out.
    """
    segments = {
        start: replace(segment, tables=tuple(map(_sealed, segment.tables)))
        for start, segment in state.segments.items()
    }
    return replace(state, segments=segments)


def _sealed(table: LocalTable) -> LocalTable:
    return replace(table, sealed=True) if table.in_memory and not table.sealed else table


def flush(schema: Schema, folder: Path, state: LocalState) -> list[Flushed]:
    """Write out the memory of every segment. A table that straddles a vector gets its own fragment."""
    flushed: list[Flushed] = []
    for segment in state.segments.values():
        groups = runs(segment, lambda table: table.in_memory)
        groups += [[table] for table in segment.tables if table.straddles and table.in_memory]
        for group in groups:
            written = _written(schema, folder, segment.start_ms, group)
            flushed.append(Flushed(segment.start_ms, tuple(group), written))
    return flushed


def with_flushed(state: LocalState, flushed: Iterable[Flushed]) -> LocalState:
    """Return the state with fragments for memory tables.

    Tables that have been realigned or dropped meanwhile stay as they are.
    """
    segments = dict(state.segments)
    for one in flushed:
        segment = segments.get(one.start_ms)
        after = substituted(segment, one.group, (one.written,)) if segment is not None else None
        if after is not None:
            segments[one.start_ms] = after
    return replace(state, segments=segments)


def _written(schema: Schema, folder: Path, start_ms: int, group: list[LocalTable]) -> LocalTable:
    table = merge_tables(schema, [member.table for member in group])
    name = f"{start_ms}-{uuid.uuid4().hex[:12]}"
    write_fragment(folder, name, table, schema)
    fragment = open_fragment(folder / f"{name}{SUFFIX}", verify=False)
    fragment.load_index()
    del table
    pa.default_memory_pool().release_unused()  # kept for each thread: this one needs it seldom
    return merged(group, fragment.table, fragment=fragment)


@dataclass(frozen=True)
class MergeJob:
    start_ms: int
    group: tuple[LocalTable, ...]


def merge_job(segments: Mapping[int, LocalSegment], settings: ReceiverSettings) -> MergeJob | None:
    """Return a job that merges as many neighbouring fragments as fit; None if there is nothing to merge.

    The first run of more than `fragments_max` fragments is taken, else the first one that is spread over
    several. A complete fragment is merged no more: each merge with its small neighbours would write it again.
    """
    fragment_runs = [
        (segment.start_ms, run)
        for segment in segments.values()
        for run in runs(segment, lambda table: not (table.in_memory or _is_complete(table, settings)))
    ]
    for wanted in (lambda run: len(run) > settings.fragments_max, _is_spread):
        for start_ms, run in fragment_runs:
            group = _neighbours(run, settings) if wanted(run) else ()
            if len(group) > 1:
                return MergeJob(start_ms, group)
    return None


def _is_complete(table: LocalTable, settings: ReceiverSettings) -> bool:
    """Return True for a fragment that has half of what a merge may read."""
    return 2 * table.rows > settings.merge_rows_max or 2 * table.nbytes > settings.merge_bytes_max


def _is_spread(run: list[LocalTable]) -> bool:
    """Tell whether the fragments beside the largest have a SPREAD_PART of its rows together.

    A statement that comes once reads the rows of each fragment. Cuboids can be small beside one large
    fragment where they are not beside its parts. Each merge makes a fragment larger by at least that part,
    which bounds how often a row is written: about three times in all.
    """
    rows = [table.rows for table in run]
    return len(run) > 1 and sum(rows) >= max((1 + SPREAD_PART) * max(rows), SPREAD_ROWS_MIN)


def _neighbours(run: list[LocalTable], settings: ReceiverSettings) -> tuple[LocalTable, ...]:
    """Return the longest stretch whose rows and bytes together stay within the bounds."""
    best: tuple[LocalTable, ...] = ()
    left = rows = nbytes = 0
    for right, table in enumerate(run):
        rows, nbytes = rows + table.rows, nbytes + table.nbytes
        while rows > settings.merge_rows_max or nbytes > settings.merge_bytes_max:
            rows, nbytes = rows - run[left].rows, nbytes - run[left].nbytes
            left += 1
        if right + 1 - left > len(best):
            best = tuple(run[left : right + 1])
    return best


def merge(schema: Schema, folder: Path, job: MergeJob) -> LocalTable:
    """Merge the tables beside the core thread, as they are immutable. Raises what `verified` raises."""
    with verified(folder, job.group):
        return _written(schema, folder, job.start_ms, list(job.group))


def unverified(state: LocalState) -> list[Fragment]:
    """Return fragments of an earlier process that nobody has read since this one began."""
    return [
        table.fragment
        for table in state.tables()
        if table.fragment is not None and not table.fragment.verified
    ]


def release_pages(tables: Iterable[LocalTable]) -> None:
    """Release the pages of the tables' fragments that were read."""
    for table in tables:
        if table.fragment is not None:
            table.fragment.release_pages()


def cuboid_jobs(state: LocalState, rows_min: int = TABLE_ROWS_MIN) -> list[LocalTable]:
    """Return fragments that are large enough for cuboids beside them and have been given none yet."""
    return [
        table
        for table in state.tables()
        if table.fragment is not None
        and table.fragment.verified
        and table.rows >= rows_min
        and not table.cuboids.made
    ]


def keep_cuboids(schema: Schema, state: LocalState, table: LocalTable, bytes_max: int) -> None:
    """Give one table its cuboids, within what those of all tables may take. Runs beside the core thread."""
    bytes_left = max(0, bytes_max - sum(other.cuboids.nbytes for other in state.tables()))
    table.cuboids.keep(small_cuboids(schema, table.table, bytes_left, table.cuboids))


@contextmanager
def verified(folder: Path, tables: Sequence[LocalTable]) -> Iterator[None]:
    """Verify these tables' files before the block reads them, and again before what it made goes further.

    A fragment is checked when it is opened and mapped from then on: a page that the disk loses later would
    go unseen into larger fragments and into history. The first look is for Arrow, which trusts what it reads;
    the second finds what was lost meanwhile. Corrupted; NotFound where a checkpoint was faster.
    """
    _verify(folder, tables)
    yield
    _verify(folder, tables)


def _verify(folder: Path, tables: Iterable[LocalTable]) -> None:
    for table in tables:
        if table.fragment is None:
            continue
        path = folder / f"{table.fragment.info.name}{SUFFIX}"
        try:
            open_fragment(path, verify=True)
        except Corrupted as error:
            raise Corrupted(
                f"{path} was damaged after it was opened: {error.message}",
                expected=error.expected,
                found=error.found,
                action="stop the receiver, move the cube's folder away and start it: it replays from Kafka",
            ) from error
