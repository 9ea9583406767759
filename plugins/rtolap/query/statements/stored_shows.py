"""SHOW of stored tables: partitions, transactions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from rtolap.base.errors import NotFound, QueryError
from rtolap.protocols.stored_tables.messages import TableName, TransactionInfo
from rtolap.query.statement_service import QueryService
from rtolap.query.statements.session import Session
from rtolap.query.statements.shows import Show

Rows = tuple[Sequence[str], list[tuple[object, ...]]]


class StoredShows:
    """Thread-safe."""

    def __init__(self, service: QueryService) -> None:
        self._service = service

    def partitions(self, name: TableName) -> Rows:
        head = ("PartitionName", "VisibleVersion", "CommittedVersion", "Start", "End", "Buckets", "Replicas")
        rows: list[tuple[object, ...]] = []
        for part in self._service.definitions.partitions(name):
            bounded = part.range.start_ms > -(1 << 62)
            rows.append(
                (
                    part.range.name,
                    str(part.visible_version),
                    str(part.committed_version),
                    _instant(part.range.start_ms) if bounded else None,
                    _instant(part.range.end_ms) if bounded else None,
                    str(part.buckets),
                    str(part.replicas),
                )
            )
        return head, rows

    def transaction(self, show: Show, session: Session) -> Rows:
        head = (
            *("TransactionId", "Label", "TransactionStatus", "PrepareTime", "CommitTime", "FinishTime"),
            *("Reason", "Tables"),
        )
        database = show.database or session.database
        if database is None:
            raise QueryError("no database is selected", action="write SHOW TRANSACTION FROM database WHERE …")
        definitions = self._service.definitions
        if show.is_pattern:
            return head, [_transaction(each) for each in definitions.transactions(database, show.label)]
        try:
            return head, [_transaction(definitions.transaction(database, show.label))]
        except NotFound:
            return head, []


def _transaction(transaction: TransactionInfo) -> tuple[object, ...]:
    return (
        str(transaction.txn_id),
        transaction.label,
        transaction.state,
        _instant(transaction.began_at_ms),
        None if transaction.committed_at_ms is None else _instant(transaction.committed_at_ms),
        None if transaction.finished_at_ms is None else _instant(transaction.finished_at_ms),
        transaction.reason,
        ", ".join(transaction.tables),
    )


def _instant(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
