"""Stored tables, their replicas, and their loads, as a front end reports them."""

from __future__ import annotations

import re
from collections import Counter

from rtolap.airflow.page.stored.messages import (
    ErrorPage,
    ErrorReason,
    Load,
    LoadList,
    Loads,
    ReplicaMove,
    StorageNode,
    StoredPartition,
    StoredTablePage,
    StoredTableRow,
)
from rtolap.base.decoding import copied
from rtolap.protocols.storage.messages import MovesInfo
from rtolap.protocols.stored_tables.messages import (
    PartitionInfo,
    PartitionView,
    TableInfo,
    TableName,
    TableTablets,
    TabletReplicaInfo,
    TableView,
    TransactionInfo,
)
from rtolap.protocols.stream_load.error_rows import ErrorRows

ERROR_ROWS_MAX, REASONS_MAX = 100, 50
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|\[[^\]]*\]|\b\d+\b")
LISTED_MAX = 1000  # a front end answers no more transactions at once


def loads_of(
    databases: tuple[str, ...],
    tables: tuple[TableInfo, ...],
    moves: MovesInfo,
    *,
    now_ms: int,
    nodes_error: str = "",
) -> Loads:
    """Return tables and nodes. moves: of no node where `nodes_error` says why they could not be read."""
    rows = [
        StoredTableRow(
            db=each.db,
            name=each.name,
            model=each.definition.model,
            partitions=len(each.partitions),
            created_ms=each.created_at_ms,
        )
        for each in tables
    ]
    return Loads(
        now_ms=now_ms,
        databases=tuple(sorted({*databases, *(each.db for each in tables)})),
        tables=tuple(sorted(rows, key=lambda row: (row.db, row.name))),
        nodes=tuple(
            StorageNode(
                name=each.name, state=each.state.upper(), replicas=each.replicas, held_bytes=each.bytes
            )
            for each in sorted(moves.nodes, key=lambda each: each.name)
        ),
        moves=tuple(
            ReplicaMove(
                tablet=f"{each.db}.{each.table}/{each.partition}/{each.bucket}",
                from_node=each.old_node,
                to_node=each.node,
                reason=each.reason,
                state=each.state,
            )
            for each in moves.moves
        ),
        nodes_error=nodes_error,
    )


def table_page(
    name: TableName,
    partitions: tuple[PartitionInfo, ...],
    view: TableView,
    tablets: TableTablets,
    *,
    now_ms: int,
) -> StoredTablePage:
    """Return a table with its partitions, those that cannot be read first, then the newest; and with the
    replicas of its tablets, those that need a look first."""
    seen = {each.range: each for each in view.partitions}
    found = [(each.range.start_ms, _partition(each, seen.get(each.range))) for each in partitions]
    ordered = sorted(found, key=lambda each: (not each[1].unreadable, -each[0]))
    return StoredTablePage(
        now_ms=now_ms,
        db=name.db,
        name=name.name,
        partitions=tuple(each for _, each in ordered),
        replicas=tuple(sorted(tablets.replicas, key=_by_need)),
        missing=tablets.missing,
    )


def _by_need(replica: TabletReplicaInfo) -> tuple[bool, int, str, int, str]:
    return not replica.problem, -replica.pending_files, replica.partition, replica.bucket, replica.node


def loads_found(transactions: tuple[TransactionInfo, ...], *, now_ms: int) -> LoadList:
    """Return transactions as they came, the latest first."""
    return LoadList(
        now_ms=now_ms,
        loads=tuple(
            copied(
                Load,
                each,
                began_ms=each.began_at_ms,
                took_ms=None if each.finished_at_ms is None else each.finished_at_ms - each.began_at_ms,
                rows=each.row_count,
                has_errors=each.error_url is not None,
            )
            for each in transactions
        ),
        states=dict(sorted(Counter(each.state for each in transactions).items())),
        cut=len(transactions) >= LISTED_MAX,
    )


def error_page(label: str, found: ErrorRows, reason: str, first: int, *, now_ms: int) -> ErrorPage:
    """Return a page of rejected rows from number `first` on: of a reason, or of all where that is empty."""
    reasons = Counter(_kind(each.reason) for each in found.rows)
    fitting = [each for each in found.rows if reason in ("", _kind(each.reason))]
    first = max(0, first)
    return ErrorPage(
        now_ms=now_ms,
        label=label,
        first=first,
        total=len(fitting),
        rows=tuple(fitting[first : first + ERROR_ROWS_MAX]),
        reasons=tuple(ErrorReason(each, rows) for each, rows in reasons.most_common(REASONS_MAX)),
        left_out=found.left_out,
    )


def _kind(reason: str) -> str:
    """Return a reason without the values that it quotes, so that rows of one kind are of one reason."""
    return _QUOTED.sub("…", reason)


def containing(text: str) -> str:
    """Return the LIKE pattern of labels that contain the text, in which % and _ mean themselves."""
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"


def _partition(info: PartitionInfo, view: PartitionView | None) -> StoredPartition:
    tablets = () if view is None else view.tablets
    fresh = sum(len(each.nodes) for each in tablets)
    unreadable = tuple(each.bucket for each in tablets if not each.nodes)
    if view is None or view.version != info.visible_version:
        health = "CHANGING"
    elif unreadable:
        health = "UNREADABLE"
    else:
        health = "READABLE" if fresh >= info.replicas else "BEHIND"
    return StoredPartition(
        name=info.range.name,
        visible_version=info.visible_version,
        committed_version=info.committed_version,
        tablets=info.buckets,
        replicas=info.replicas,
        fresh=fresh,
        unreadable=unreadable,
        health=health,
    )
