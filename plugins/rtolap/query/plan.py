"""The nouns between the steps of a statement."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import pyarrow as pa

from rtolap.columnar.pushed_schema import partials_schema, rows_schema
from rtolap.columnar.schema import physical_schema
from rtolap.metadata.records import SegmentRecord
from rtolap.model.cube import Schema
from rtolap.model.predicate import Predicate
from rtolap.model.stored.pushed import Partials, TopRows
from rtolap.protocols.query.messages import QueryWarning
from rtolap.protocols.receiver.messages import GroupsLeft, HistorySnapshot, TopGroups
from rtolap.protocols.stored_tables.messages import TableInfo


@dataclass(frozen=True)
class TimeRange:
    """Event time `[start_ms, end_ms)` in UTC that a filter can be true for; None is unbounded."""

    start_ms: int | None = None
    end_ms: int | None = None

    def overlaps(self, start_ms: int, end_ms: int) -> bool:
        return (self.end_ms is None or start_ms < self.end_ms) and (
            self.start_ms is None or end_ms > self.start_ms
        )

    def union(self, other: TimeRange) -> TimeRange:
        starts, ends = (self.start_ms, other.start_ms), (self.end_ms, other.end_ms)
        return TimeRange(
            None if None in starts else min(s for s in starts if s is not None),
            None if None in ends else max(e for e in ends if e is not None),
        )


@dataclass(frozen=True)
class CubeRead:
    """The read of one cube for a statement: rows of `dimensions` + `partials` that pass `filter`.

    Attributes:
        top: the groups that are enough; None: all. It is known once the statement's parameters are.
        revisions: the cubes that hold the events, oldest first, where `schema` stands for several; none
            where it is the cube itself.
    """

    schema: Schema
    relation: str
    dimensions: tuple[str, ...]
    partials: tuple[str, ...]
    filter: Predicate | None
    time: TimeRange
    top: TopGroups | None = None
    revisions: tuple[Schema, ...] = ()

    @property
    def cube(self) -> str:
        return self.schema.cube.name

    @cached_property
    def columns(self) -> pa.Schema:
        """The schema of the partials that are read."""
        return physical_schema(self.schema, self.dimensions, self.partials, plain=True)


@dataclass(frozen=True)
class NodeWork:
    """The work of storage nodes on the rows of a read, beside the filter.

    Attributes:
        partials: partial aggregates in the place of rows; None: rows.
        top: the first rows only; None: all.
        rows_because: the reason for which nodes do nothing more; empty if they do.
    """

    partials: Partials | None = None
    top: TopRows | None = None
    rows_because: str = ""


@dataclass(frozen=True)
class TableRead:
    """The read of one stored table for a statement, by itself or as a lookup.

    Attributes:
        columns: the columns to read.
        filter: condition of the rows to read; None: all rows. Unless partial aggregates are read, the engine
            applies it again.
        time: time range that the rows are in; partitions outside it are not read.
    """

    table: TableInfo
    relation: str
    columns: tuple[str, ...]
    filter: Predicate | None
    time: TimeRange
    work: NodeWork = NodeWork()

    @cached_property
    def relation_schema(self) -> pa.Schema:
        """The columns of the relation in the engine."""
        if self.work.partials is not None:
            return partials_schema(self.table.schema, self.work.partials)
        return rows_schema(self.table.schema, self.columns)


@dataclass
class TableStats:
    """The statistics of reading one stored table.

    Attributes:
        nodes: storage node → tablets read from it.
        views: number of read views taken.
        rows_read: rows that nodes have sent, partial aggregates counted as rows.
    """

    table: str
    partitions: tuple[str, ...] = ()
    pruned_partitions: tuple[str, ...] = ()
    tablets: int = 0
    nodes: dict[str, int] = field(default_factory=dict)
    rows_read: int = 0
    views: int = 1
    fetch_ms: float = 0.0


@dataclass(frozen=True)
class LatestRows:
    """The condition under which a limited result is complete: no row with a larger key was left out.

    Attributes:
        key: the time dimension that rows are sorted by.
        rows: number of rows that the statement returns.
    """

    key: str
    rows: int


@dataclass(frozen=True)
class MergedColumn:
    """A column of a plain merge, out of the partials of one group.

    | kind | is |
    |---|---|
    | value | the dimension, minimum or maximum `source` as it is |
    | count | the number `source`, 0 where there is none |
    | sum | the sum `source`, in the engine's type of a sum |
    | mean | the sum `source` divided by the number `count` |
    | distinct | the estimate of the sketch `source` |
    | set_size | the size of the set `source` |
    """

    kind: Literal["value", "count", "sum", "mean", "distinct", "set_size"]
    source: str
    count: str = ""


@dataclass(frozen=True)
class MergedOrder:
    """A sort key of the rows of a plain merge."""

    column: MergedColumn
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class PlainMerge:
    """A statement over one cube whose rows are the merged partials of its groups. It needs no engine.

    Attributes:
        columns: name and column of the result.
        limit: a number, or the name of the parameter; None: all rows.
        offset: a number, or the name of the parameter; None: from the first row.
    """

    columns: tuple[tuple[str, MergedColumn], ...]
    order: tuple[MergedOrder, ...] = ()
    limit: int | str | None = None
    offset: int | str | None = None


@dataclass(frozen=True)
class ValueSet:
    """Values of other relations, outside of which a cube has no rows of the answer.

    Attributes:
        column: the dimension that is compared with them.
        sql: gives the values in one column, for the engine.
        parameters: names of the parameters in the SQL.
        negated: True if rows with these values are those that are left out.
        needs: cubes whose relations the SQL reads.
    """

    cube: str
    column: str
    sql: str
    parameters: tuple[str, ...]
    negated: bool
    needs: tuple[str, ...]


@dataclass(frozen=True)
class CutCheck:
    """A question to the engine about the texts of a statement.

    Attributes:
        sql: its value is 1 where a text is cut, else 0. It reads the statement's relations.
        parameters: names of the parameters in it.
        warning: for an answer in which one is cut.
    """

    sql: str
    parameters: tuple[str, ...]
    warning: QueryWarning


@dataclass(frozen=True)
class Rewritten:
    """SQL for the engine, and the relations that it reads.

    Attributes:
        parameters: names of the parameters that the SQL still contains.
        warnings: where the SQL is not run exactly as written.
        reads: each behind those that its sets need.
        merge: the same statement without an engine; None where it needs one.
        cuts: asked before the statement runs.
        is_constant: True if the statement reads nothing but literals, so that its answer is always the same.
    """

    sql: str
    reads: tuple[CubeRead, ...]
    lookups: tuple[str, ...]
    information: tuple[str, ...]
    parameters: tuple[str, ...]
    latest: LatestRows | None = None
    tables: tuple[TableRead, ...] = ()
    warnings: tuple[QueryWarning, ...] = ()
    merge: PlainMerge | None = None
    is_constant: bool = False
    sets: tuple[ValueSet, ...] = ()
    cuts: tuple[CutCheck, ...] = ()


@dataclass(frozen=True)
class Planned:
    """A plan, and whether it may be used again.

    Attributes:
        varies: True if the clock or a random number was folded into the plan, so that it is used once.
    """

    rewritten: Rewritten
    varies: bool


@dataclass(frozen=True)
class HistoryPlan:
    """READY versions to read, those left out by time, and the snapshot that receivers answer the rest of."""

    segments: tuple[SegmentRecord, ...]
    pruned: tuple[str, ...]
    snapshot: HistorySnapshot


@dataclass(frozen=True)
class ReplicaSetPlan:
    """The receivers to call for one replica set, the preferred one first: (receiver id, address)."""

    replica_set: str
    partitions: tuple[int, ...]
    receivers: tuple[tuple[str, str], ...]


@dataclass
class ReadStats:
    """The statistics of one cube read or, for EXPLAIN, its estimate.

    Attributes:
        cube_id: id of the creation of the cube that was read.
        dimensions: those of the groups and of the filter, by name.
        cuboids: cuboid name → segments read from it.
        receivers: replica set → receiver that answered.
        realtime_events: number of events that receivers answer for, at most; only estimates have it.
        realtime_cuboids: small cuboid → number of receivers' tables that it stood for.
        engine: what read history: local, spark, cached (a kept result) or refused; empty without history.
        engine_reason: why that engine was chosen, in words.
        files_cached: files of history that were read from the local disk cache.
        files_remote: files of history that were read from the object store.
        spilled_bytes: bytes of partial rows that were written to the disk.
        positions: partition → next offset.
        void: see `PartialAnswer`.
        refused: reason → records that receivers refused and that are in no count.
        refused_example: reason → what was wrong with one of these records.
        stalled: receiver → the reason for which it does not consume.
        warnings: warnings of the cube itself, whatever the query.
        partial_bytes: bytes of the partial rows in memory.
        top_groups: True if the receiver was asked for the first groups alone.
        top_rounds: how often several sources were asked for their first groups; 0: all groups were read.
        left: replica set → what its answer leaves out; None of a receiver that does not say it.
        value_sets: what became of the sets of values, in words.
        statements: number of statements that the read was made for.
        is_own: True if this statement has made the read.
        revisions: the statistics of each revision that was read, of a cube that has several.
    """

    cube: str
    cube_id: str = ""
    dimensions: tuple[str, ...] = ()
    history_segments: tuple[str, ...] = ()
    pruned_segments: tuple[str, ...] = ()
    cuboids: dict[str, int] = field(default_factory=dict)
    receivers: dict[str, str] = field(default_factory=dict)
    realtime_segments: tuple[str, ...] = ()
    realtime_events: int = 0
    realtime_cuboids: dict[str, int] = field(default_factory=dict)
    engine: str = ""
    engine_reason: str = ""
    files_cached: int = 0
    files_remote: int = 0
    spilled_bytes: int = 0
    rows_read: int = 0
    rows_pruned: int = 0
    partial_rows: int = 0
    snapshots: int = 1
    fetch_ms: float = 0.0
    positions: dict[int, int] = field(default_factory=dict)
    void: dict[int, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    refused_example: dict[str, str] = field(default_factory=dict)
    stalled: dict[str, str] = field(default_factory=dict)
    warnings: tuple[QueryWarning, ...] = ()
    partial_bytes: int = 0
    top_groups: bool = False
    top_rounds: int = 0
    left: dict[str, GroupsLeft | None] = field(default_factory=dict)
    value_sets: tuple[str, ...] = ()
    statements: int = 1
    is_own: bool = True
    revisions: tuple[ReadStats, ...] = ()

    def all_positions(self) -> dict[str, dict[int, int]]:
        """Return cube → partition → next offset, of each revision under its own name."""
        if not self.revisions:
            return {self.cube: dict(sorted(self.positions.items()))}
        return {cube: at for each in self.revisions for cube, at in each.all_positions().items()}
