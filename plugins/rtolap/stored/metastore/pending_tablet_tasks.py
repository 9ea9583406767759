"""Pending tasks of storage nodes for tables: statements, within a read or a write of their caller.

A task goes in with the change that it follows from, in one write, and goes out when the node has done it.
A node that is away, or a master that dies in between, changes nothing about that.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec
import sqlalchemy as sa

from rtolap.base.decoding import copied, decode_json
from rtolap.stored.metastore.records import PendingTabletTask
from rtolap.stored.metastore.schema import pending_tablet_task as _d

_AT_ONCE = 10_000


def add_tasks(connection: sa.Connection, tasks: Collection[PendingTabletTask]) -> None:
    """Add tasks. A task that is there already stays, for the buckets of both and the later incarnation: it
    will be completed by the state that it finds then, and what is dropped of a later incarnation is dropped
    of those before it."""
    known = {_key(task): task for task in _of(connection, {task.table_id for task in tasks})}
    for task in tasks:
        before = known.get(_key(task))
        if before is None:
            continue
        both = msgspec.structs.replace(
            before,
            buckets=tuple(sorted({*before.buckets, *task.buckets})),
            incarnation=max(before.incarnation, task.incarnation),
        )
        if both != before:
            changed = {"buckets": _values(both)["buckets"], "incarnation": both.incarnation}
            connection.execute(sa.update(_d).where(_is(task)).values(changed))
            known[_key(task)] = both
    rows = [_values(task) for task in tasks if _key(task) not in known]
    if rows:
        connection.execute(sa.insert(_d), rows)


def all_tasks(connection: sa.Connection) -> tuple[PendingTabletTask, ...]:
    """Return all tasks: those of older tables first; what is to be dropped before what is to be made."""
    order = sa.select(_d).order_by(_d.c.table_id, _d.c.kind != "drop", _d.c.part).limit(_AT_ONCE)
    return tuple(_task(row) for row in connection.execute(order))


def of_table(connection: sa.Connection, table_id: int) -> tuple[PendingTabletTask, ...]:
    return _of(connection, {table_id})


def stands(connection: sa.Connection, task: PendingTabletTask) -> bool:
    """Return True if the task is still pending, just as it was read."""
    row = connection.execute(sa.select(_d).where(_is(task))).one_or_none()
    return row is not None and _task(row) == task


def complete(connection: sa.Connection, task: PendingTabletTask) -> None:
    """Complete the task as it was read. Harmless when it is gone; it stays where it has got more buckets, or
    a later incarnation."""
    as_read = (_d.c.buckets == _values(task)["buckets"]) & (_d.c.incarnation == task.incarnation)
    connection.execute(sa.delete(_d).where(_is(task), as_read))


def cancel(connection: sa.Connection, table_id: int, part: str | None = None) -> None:
    """Cancel what would make tablets that are being dropped: of a partition, or of all of the table."""
    here = (_d.c.table_id == table_id) & (_d.c.kind != "drop")
    connection.execute(sa.delete(_d).where(here if part is None else here & (_d.c.part == part)))


def _of(connection: sa.Connection, table_ids: Collection[int]) -> tuple[PendingTabletTask, ...]:
    here = sa.select(_d).where(_d.c.table_id.in_(tuple(table_ids)))
    rows = connection.execute(here.order_by(_d.c.kind != "drop", _d.c.part))
    return tuple(_task(row) for row in rows)


def _is(task: PendingTabletTask) -> sa.ColumnElement[bool]:
    here = (_d.c.table_id == task.table_id) & (_d.c.part == task.part)
    return here & (_d.c.node == task.node) & (_d.c.kind == task.kind)


def _key(task: PendingTabletTask) -> tuple[object, ...]:
    return task.table_id, task.part, task.node, task.kind


def _values(task: PendingTabletTask) -> dict[str, object]:
    return {**msgspec.structs.asdict(task), "buckets": msgspec.json.encode(task.buckets).decode()}


def _task(row: sa.Row[tuple[object, ...]]) -> PendingTabletTask:
    return copied(PendingTabletTask, row, buckets=decode_json(row.buckets, tuple[int, ...]))
