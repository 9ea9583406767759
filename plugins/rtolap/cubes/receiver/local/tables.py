"""The local state: what a receiver holds of a cube, as one immutable value.

The core thread builds a new `LocalState` out of the old one and swaps a single reference; queries, uploads
and merges work on whichever they took. Tables of a segment stand in the order of consumption.

Memory tables are compacted like a binary counter with digits up to FAN_OUT: FAN_OUT neighbours of one level
become one table of the next. A row is merged log_FAN_OUT(batches) times, and a segment has at most
(FAN_OUT - 1) tables per level. Only neighbours of one version are merged, and never across a table that
straddles a vector; therefore the ranges of different tables never overlap.

Statistics of a memory table's columns, so that a predicate that excludes it need not read it.

Smallest and largest values and the number of nulls, as a fragment's header has them, and the dictionaries of
strings, which hold every value that occurs. Gathered at the first request for a column and kept: most tables
are merged away before any query needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from rtolap.columnar.chunks import single_chunk
from rtolap.columnar.filter import mask
from rtolap.cubes.format.fragment import Fragment
from rtolap.cubes.format.index import ColumnRange, can_match, column_range
from rtolap.cubes.receiver.local.align import NO_VECTORS, Ranges, Vectors, versions_of
from rtolap.cubes.receiver.local.small_cuboids import TableCuboids
from rtolap.cubes.receiver.local.table_codes import TableCodes
from rtolap.cubes.receiver.local.table_results import TableResults
from rtolap.cubes.receiver.settled import NO_SETTLED_SEGMENTS, SettledSegments
from rtolap.model.leader_epochs import PartitionEpochs
from rtolap.model.offsets import Offsets
from rtolap.model.predicate import And, Compare, In, Like, Or, Predicate, columns_of

FAN_OUT = 8

Merge = Callable[[Sequence[pa.Table]], pa.Table]


@dataclass(frozen=True, eq=False)
class LocalTable:
    """Aggregated events of one segment. Compared by identity.

    Attributes:
        table: local form; memory-mapped when it stands in `fragment`.
        ranges: partition → [start, end): the table holds the segment's events of exactly these offsets.
        versions: the result of `align.versions_of` for the ranges. With more than one, the table straddles
            and is realigned.
        sealed: True while a checkpoint writes the table out: until then it stands for itself.
        results: results of repeated statements over `table`; retained while only its versions change.
        cuboids: small cuboids of `table`, once they are made; retained likewise.
        codes: columns of `table` as codes, as far as statements have needed them; retained likewise.
        cuts: partition → offset at which the log was cut: what the table has beyond is void.
    """

    table: pa.Table
    events: int
    ranges: Ranges
    versions: tuple[int, ...]
    fragment: Fragment | None = None
    level: int = 0
    sealed: bool = False
    results: TableResults = field(default_factory=TableResults)
    cuboids: TableCuboids = field(default_factory=TableCuboids)
    codes: TableCodes = field(default_factory=TableCodes)
    cuts: Mapping[int, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return int(self.table.num_rows)

    @cached_property
    def nbytes(self) -> int:
        return int(self.table.nbytes) if self.fragment is None else self.fragment.info.bytes

    @cached_property
    def statistics(self) -> TableStatistics:
        """Return the statistics of a table in memory; a fragment has its own."""
        return TableStatistics(self.table)

    def excludes(self, predicate: Predicate) -> bool:
        """Return True only when statistics say that no row can match."""
        if self.fragment is not None:
            return not self.fragment.can_match(predicate)
        return self.statistics.excludes(predicate)

    @property
    def in_memory(self) -> bool:
        return self.fragment is None

    @property
    def straddles(self) -> bool:
        return len(self.versions) > 1

    @property
    def unsettled(self) -> bool:
        """True if history holds some of its events: no answer is possible before it is realigned."""
        return self.straddles and self.versions[0] == 0

    @property
    def version(self) -> int:
        """Return the table's version; for a straddling table, the lowest one that is not dropped."""
        return next((version for version in self.versions if version), 0)


@dataclass(frozen=True)
class LocalSegment:
    start_ms: int
    tables: tuple[LocalTable, ...] = ()

    @cached_property
    def unsettled(self) -> bool:
        """True if one of its tables is: every statement looks at every segment."""
        return any(table.unsettled for table in self.tables)

    def of_version(self, version: int) -> tuple[LocalTable, ...]:
        return tuple(table for table in self.tables if table.versions == (version,))


@dataclass(frozen=True)
class LocalState:
    """The local data of a cube at one moment.

    Attributes:
        vectors: what is known of segments that are open or have local data, by start. The tables are aligned
            with it, and with the assignment of `assignment_epoch`.
        settled: all other segments.
        epochs: leader epochs of what was read up to `positions`.
        void: partition → [start, end) of offsets whose records the log has lost: what was read of them counts
            no more.
    """

    positions: Offsets = field(default_factory=dict)
    segments: Mapping[int, LocalSegment] = field(default_factory=dict)
    vectors: Mapping[int, Vectors] = field(default_factory=dict)
    settled: SettledSegments = NO_SETTLED_SEGMENTS
    horizon_ms: int | None = None
    assignment_epoch: int = 0
    epochs: PartitionEpochs = field(default_factory=dict)
    void: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    def tables(self) -> Iterable[LocalTable]:
        for segment in self.segments.values():
            yield from segment.tables

    def version(self, start_ms: int) -> int:
        """Return the READY version known of an open segment, or of one with local data; 0 for none."""
        return self.vectors.get(start_ms, NO_VECTORS).version

    def with_segments(self, changed: Mapping[int, LocalSegment]) -> LocalState:
        """Replace whole segments; those left without tables disappear."""
        together = {**self.segments, **changed}
        return replace(
            self, segments={start: segment for start, segment in together.items() if segment.tables}
        )


def union(ranges: Iterable[Ranges]) -> Ranges:
    """Return the smallest ranges that hold all of them."""
    united: Ranges = {}
    for each in ranges:
        for partition, (start, end) in each.items():
            low, high = united.get(partition, (start, end))
            united[partition] = (min(low, start), max(high, end))
    return united


def appended(
    segment: LocalSegment, fresh: Iterable[LocalTable], merge: Merge, *, fan_out: int = FAN_OUT
) -> LocalSegment:
    """Add tables of a batch behind the others and carry over full levels."""
    tables = list(segment.tables)
    for table in fresh:
        tables.append(table)
        if not table.straddles:
            _carry(tables, table.versions, merge, fan_out)
    return replace(segment, tables=tuple(tables))


def _carry(tables: list[LocalTable], versions: tuple[int, ...], merge: Merge, fan_out: int) -> None:
    while True:
        same = _tail(tables, versions)
        level = tables[same[-1]].level
        if len(same) < fan_out:
            return
        group = [tables[index] for index in same]
        tables[same[-1]] = merged(group, merge([table.table for table in group]), level=level + 1)
        for index in reversed(same[:-1]):
            del tables[index]


def _tail(tables: Sequence[LocalTable], versions: tuple[int, ...]) -> list[int]:
    """Return the indexes of the last memory tables of one version and level that no checkpoint is writing out
    and that no other version interrupts.

    A table that was read again stands, with level 0, where the old one stood: taking it together with the
    newest would give the result a range that covers those between them too.
    """
    tail: list[int] = []
    for index in range(len(tables) - 1, -1, -1):
        table = tables[index]
        if table.straddles or not table.in_memory or table.sealed:
            break
        if table.versions != versions:
            continue
        if tail and table.level != tables[tail[0]].level:
            break
        tail.append(index)
    tail.reverse()
    return tail


def merged(
    group: Sequence[LocalTable], table: pa.Table, *, fragment: Fragment | None = None, level: int = 0
) -> LocalTable:
    """Return the table that stands for `group`, whose rows have been merged into `table`."""
    assert len({member.versions for member in group}) == 1, "tables of different versions are never merged"
    assert len(group) == 1 or not any(member.cuts for member in group), "what is void is read again first"
    return LocalTable(
        table=table,
        events=sum(member.events for member in group),
        ranges=union(member.ranges for member in group),
        versions=group[0].versions,
        cuts=group[0].cuts,
        fragment=fragment,
        level=level,
        results=TableResults([member.results for member in group]),
        cuboids=TableCuboids([member.cuboids for member in group]),
    )


def runs(segment: LocalSegment, wanted: Callable[[LocalTable], bool]) -> list[list[LocalTable]]:
    """Return groups of tables that may become one: of one version, with no other of that version and no
    straddling table between them, so that the range of the result holds nothing of theirs.
    """
    open_runs: dict[tuple[int, ...], list[LocalTable]] = {}
    run_list: list[list[LocalTable]] = []
    for table in segment.tables:
        if table.straddles:
            run_list += open_runs.values()
            open_runs = {}
        elif wanted(table):
            open_runs.setdefault(table.versions, []).append(table)
        elif table.versions in open_runs:
            run_list.append(open_runs.pop(table.versions))
    return [*run_list, *open_runs.values()]


def substituted(
    segment: LocalSegment, old: Sequence[LocalTable], new: Sequence[LocalTable]
) -> LocalSegment | None:
    """Put `new` where the last of `old` stood; None when one of `old` is gone (the work is void)."""
    present = {id(table) for table in segment.tables}
    if not old or any(id(table) not in present for table in old):
        return None
    leaving = {id(table) for table in old}
    tables: list[LocalTable] = []
    for table in segment.tables:
        if table is old[-1]:
            tables += new
        elif id(table) not in leaving:
            tables.append(table)
    return replace(segment, tables=tuple(tables))


def realigned(segment: LocalSegment, vectors: Vectors, owned: Collection[int]) -> LocalSegment:
    """Classify every table again by the vectors; tables that no query needs any more are dropped."""
    tables: list[LocalTable] = []
    for table in segment.tables:
        versions = versions_of(vectors, table.ranges, owned, table.cuts)
        if versions == table.versions:
            tables.append(table)
        elif versions != (0,):
            tables.append(replace(table, versions=versions))
    return LocalSegment(segment.start_ms, tuple(tables))


class TableStatistics:
    """The statistics of one immutable table. Thread-safe: two threads may at worst gather the same twice."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._ranges: dict[str, ColumnRange] = {}

    def excludes(self, predicate: Predicate | None) -> bool:
        """Return True only when no row can match."""
        if predicate is None or not self._table.num_rows:
            return False
        if not self._is_member(predicate):
            return True
        names = [name for name in columns_of(predicate) if name in self._table.column_names]
        types = {name: self._table.schema.field(name).type for name in names}
        may_match: bool = can_match({name: self._range(name) for name in names}, types, predicate)
        return not may_match

    def _range(self, name: str) -> ColumnRange:
        if name not in self._ranges:
            self._ranges[name] = column_range(single_chunk(self._table.column(name)))
        return self._ranges[name]

    def _is_member(self, predicate: Predicate) -> bool:
        """Return True if some value of the dictionaries may match; a column without a dictionary is never
        ruled out."""
        match predicate:
            case And(terms=terms):
                return all(map(self._is_member, terms))
            case Or(terms=terms):
                return any(map(self._is_member, terms))
            case Compare(column=name) | In(column=name) | Like(column=name) if self._is_coded(name):
                dictionary = single_chunk(self._table.column(name)).dictionary
                matches: bool = pc.any(mask(pa.table({name: dictionary}), predicate), min_count=0).as_py()
                return matches
            case _:
                return True

    def _is_coded(self, name: str) -> bool:
        at = self._table.schema.get_field_index(name)
        return at >= 0 and bool(pa.types.is_dictionary(self._table.schema.field(at).type))
