"""Rows of transactions: statements, each within a read or a write of its caller."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import sqlalchemy as sa

from rtolap.base.decoding import convert, decode_json
from rtolap.stored.metastore import schema
from rtolap.stored.metastore.records import (
    ABORTABLE,
    FINAL,
    RUNNING,
    BeginRequest,
    Partition,
    Transaction,
    TransactionState,
)
from rtolap.stored.metastore.schema import checked_name
from rtolap.stored.metastore.schema import load_replica as _r
from rtolap.stored.metastore.schema import load_transaction as _t
from rtolap.stored.metastore.schema import transaction_partition as _parts

_COLUMNS = tuple(column for column in _t.c if column.name != "live")
_AT_ONCE = 1000  # rows of one statement, to hold few locks
LIKE_MAX = 1000  # what one look at labels shows


def insert(connection: sa.Connection, wanted: BeginRequest, now_ms: int) -> Transaction:
    """Insert a transaction in PREPARE. If the label is in use, the write raises CommitConflict."""
    named = (("database", wanted.db), ("label", wanted.label), ("request id", wanted.request_id))
    for field, name in named:
        checked_name(field, name)
    values = {
        "db": wanted.db,
        "label": wanted.label,
        "live": 1,
        "request_id": wanted.request_id,
        "state": TransactionState.PREPARE.value,
        "tables": msgspec.json.encode(wanted.tables).decode(),
        "two_phase": int(wanted.two_phase),
        "keep_until_acknowledged": int(wanted.keep_until_acknowledged),
        "acknowledged": 0,
        "abort_pending": 0,
        "began_at_ms": now_ms,
        "deadline_ms": now_ms + wanted.timeout_ms,
        "reason": "",
        **({} if wanted.user_name is None else {"user_name": wanted.user_name}),
    }
    txn_id = connection.execute(sa.insert(_t).values(values)).inserted_primary_key
    assert txn_id is not None
    return _record(
        {
            **values,
            "txn_id": txn_id[0],
            "committed_at_ms": None,
            "finished_at_ms": None,
            "user_name": wanted.user_name,
        }
    )


def find(connection: sa.Connection, db: str, txn_id: int) -> Transaction | None:
    return _one(connection, sa.select(*_COLUMNS).where(_t.c.txn_id == txn_id, _t.c.db == db))


def find_live(connection: sa.Connection, db: str, label: str) -> Transaction | None:
    """Return the one that holds the label, if any does: an aborted one that does closes it."""
    live = sa.select(*_COLUMNS).where(_t.c.db == db, _t.c.label == label, _t.c.live == 1)
    return _one(connection, live)


def find_latest(connection: sa.Connection, db: str, label: str) -> Transaction | None:
    """Return the one that holds the label, or the latest of those that were aborted."""
    tried = sa.select(*_COLUMNS).where(_t.c.db == db, _t.c.label == label)
    # an aborted one was begun before the one that holds the label
    return _one(connection, tried.order_by(_t.c.txn_id.desc()).limit(1))


def find_like(connection: sa.Connection, db: str, pattern: str) -> tuple[Transaction, ...]:
    """Return the transactions whose labels are LIKE the pattern, the latest first, at most `LIKE_MAX`; case
    counts."""
    alike = sa.select(*_COLUMNS).where(_t.c.db == db, _t.c.label.like(pattern, escape="\\"))
    return _many(connection, alike.order_by(_t.c.txn_id.desc()).limit(LIKE_MAX))


def running_count(connection: sa.Connection, db: str) -> int:
    running = sa.select(sa.func.count()).where(_t.c.state.in_(RUNNING), _t.c.db == db)
    return int(connection.scalar(running) or 0)


def move(
    connection: sa.Connection,
    txn_id: int,
    before: TransactionState,
    after: TransactionState,
    *,
    keeps_label: bool = False,
    **values: object,
) -> bool:
    """Compare and set: False when it is not in the state `before`. An abort frees the label, unless that one
    `keeps_label`."""
    if after is TransactionState.ABORTED and not keeps_label:
        values["live"] = None
    changed = connection.execute(
        sa.update(_t)
        .where(_t.c.txn_id == txn_id, _t.c.state == before.value)
        .values(state=after.value, **values)
    )
    return changed.rowcount == 1


def committed(connection: sa.Connection) -> tuple[Transaction, ...]:
    """Return the committed transactions of all databases. All of them: there are no more than the limits of
    running ones allow.
    """
    query = sa.select(*_COLUMNS).where(_t.c.state == TransactionState.COMMITTED.value)
    return _many(connection, query.order_by(_t.c.committed_at_ms, _t.c.txn_id))


def newest(connection: sa.Connection) -> int:
    """Return the id of the newest transaction that is there; 0 without one."""
    return connection.scalar(sa.select(sa.func.max(_t.c.txn_id))) or 0


def is_running(connection: sa.Connection, partition: Partition, until: int) -> bool:
    """Return True while a transaction of the partition's table up to this id is not over."""
    of_db = sa.select(*_COLUMNS).where(_t.c.state.in_(RUNNING), _t.c.db == partition.db)
    running = _many(connection, of_db.where(_t.c.txn_id <= until))
    return any(partition.table in transaction.tables for transaction in running)


def overdue(connection: sa.Connection, now_ms: int) -> tuple[Transaction, ...]:
    """Return the transactions that may be aborted without a request."""
    late = sa.select(*_COLUMNS).where(_t.c.state.in_(ABORTABLE), _t.c.deadline_ms <= now_ms)
    return _many(connection, late.order_by(_t.c.txn_id).limit(_AT_ONCE))


def owing_abort(connection: sa.Connection) -> tuple[Transaction, ...]:
    """Return the transactions whose abort is owed, the latest first: older ones may wait for an absent
    node.
    """
    owing = sa.select(*_COLUMNS).where(_t.c.abort_pending == 1)
    return _many(connection, owing.order_by(_t.c.txn_id.desc()).limit(_AT_ONCE))


def clear_abort_pending(connection: sa.Connection, txn_id: int) -> None:
    connection.execute(sa.update(_t).where(_t.c.txn_id == txn_id).values(abort_pending=0))


def acknowledge(connection: sa.Connection, db: str, label: str) -> None:
    """Acknowledge all transactions of the label, so that aborted ones go with the visible one."""
    of_label = sa.update(_t).where(_t.c.db == db, _t.c.label == label)
    connection.execute(of_label.values(acknowledged=1))


def acknowledged(connection: sa.Connection) -> tuple[Transaction, ...]:
    """Return the final transactions that their loaders have acknowledged."""
    return _many(connection, _finished(retained=1).where(_t.c.acknowledged == 1).limit(_AT_ONCE))


def finished_before(connection: sa.Connection, before_ms: int) -> tuple[Transaction, ...]:
    """Return final transactions that nobody acknowledges and that ended before the limit of time."""
    old = _finished(retained=0).where(_t.c.finished_at_ms < before_ms)
    return _many(connection, old.order_by(_t.c.finished_at_ms).limit(_AT_ONCE))


def finished_beyond(connection: sa.Connection, db: str, count_max: int) -> tuple[Transaction, ...]:
    """Return final transactions that nobody acknowledges, beyond the `count_max` latest of the database."""
    beyond = (
        _finished(retained=0).where(_t.c.db == db).order_by(_t.c.finished_at_ms.desc(), _t.c.txn_id.desc())
    )
    return _many(connection, beyond.limit(_AT_ONCE).offset(count_max))


def delete(connection: sa.Connection, txn_ids: Collection[int]) -> None:
    connection.execute(sa.delete(_parts).where(_parts.c.txn_id.in_(txn_ids)))
    connection.execute(sa.delete(_t).where(_t.c.txn_id.in_(txn_ids)))


def touch(connection: sa.Connection, txn_id: int, partitions: Collection[Partition]) -> None:
    """Note which partitions it writes to, their versions still open. Harmless for those that are noted."""
    known = touched(connection, txn_id)
    rows = [
        {"txn_id": txn_id, **partition.columns(), "version": None}
        for partition in sorted(set(partitions) - known.keys())
    ]
    if rows:
        connection.execute(sa.insert(_parts), rows)


def touched(connection: sa.Connection, txn_id: int) -> dict[Partition, int | None]:
    """Return the partitions it writes to, with their versions once it is committed."""
    rows = connection.execute(sa.select(_parts).where(_parts.c.txn_id == txn_id))
    return {Partition.of(row): row.version for row in rows}


def set_versions(connection: sa.Connection, txn_id: int, versions: Mapping[Partition, int]) -> None:
    for partition, version in versions.items():
        own_rows = (
            (_parts.c.txn_id == txn_id)
            & (_parts.c.tbl == partition.table)
            & (_parts.c.part == partition.name)
        )
        connection.execute(sa.update(_parts).where(own_rows).values(version=version))


def of_versions(connection: sa.Connection, partition: Partition, after: int, until: int) -> dict[int, int]:
    """Return the transactions by version, for the versions in (after, until]."""
    rows = connection.execute(
        sa.select(_parts.c.version, _parts.c.txn_id).where(
            _parts.c.db == partition.db,
            _parts.c.tbl == partition.table,
            _parts.c.part == partition.name,
            _parts.c.incarnation == partition.incarnation,
            _parts.c.version > after,
            _parts.c.version <= until,
        )
    )
    return {row.version: row.txn_id for row in rows}


def rows_of_versions(connection: sa.Connection, ranges: Mapping[Partition, tuple[int, int]]) -> int | None:
    """Return the rows that were loaded in the versions (after, until] of these partitions of one table, each
    load once. None where a load is not known any more, has no count, or has loaded other versions too."""
    by_id: set[int] = set()
    for partition, (after, until) in ranges.items():
        loads = of_versions(connection, partition, after, until)
        if len(loads) != until - after:
            return None
        by_id.update(loads.values())
    row_count = 0
    for txn_id in sorted(by_id):
        for partition, version in touched(connection, txn_id).items():
            after, until = ranges.get(partition, (0, 0))
            if version is None or not after < version <= until:
                return None
        loaded = connection.scalar(sa.select(_t.c.row_count).where(_t.c.txn_id == txn_id))
        if loaded is None:
            return None
        row_count += int(loaded)
    return row_count


def _finished(*, retained: int) -> sa.Select[Any]:
    """Return the query of final transactions that every node has.

    A node that misses a version still needs its transaction.
    """
    same = (_r.c.db == _parts.c.db) & (_r.c.tbl == _parts.c.tbl) & (_r.c.part == _parts.c.part)
    behind = sa.select(_r.c.node).join(_parts, same)
    behind = behind.where(_parts.c.txn_id == _t.c.txn_id, _r.c.version < _parts.c.version)
    return sa.select(*_COLUMNS).where(
        _t.c.state.in_(FINAL),
        _t.c.keep_until_acknowledged == retained,
        _t.c.abort_pending == 0,
        ~behind.exists(),
    )


def _one(connection: sa.Connection, statement: sa.Select[Any]) -> Transaction | None:
    row = connection.execute(statement).mappings().one_or_none()
    return None if row is None else _record(row)


def _many(connection: sa.Connection, statement: sa.Select[Any]) -> tuple[Transaction, ...]:
    return tuple(_record(row) for row in connection.execute(statement).mappings())


def _record(row: Mapping[Any, Any]) -> Transaction:
    values = schema.values(row)
    tables = decode_json(values.pop("tables"), tuple[str, ...])
    return convert({**values, "tables": tables}, Transaction, strict=False)
