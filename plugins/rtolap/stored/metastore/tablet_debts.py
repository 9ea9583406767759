"""What storage nodes have yet to be told of tables: statements, within a read or a write of their caller.

A debt goes in with the change that it follows from, in one write, and goes out when the node has done it.
A node that is away, or a master that dies in between, changes nothing about that.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec
import sqlalchemy as sa

from rtolap.stored.metastore.records import TabletDebt
from rtolap.stored.metastore.schema import tablet_debt as _d

_AT_ONCE = 10_000


def add(connection: sa.Connection, debts: Collection[TabletDebt]) -> None:
    """One that is there already stays as it is: it will be paid by the state that it finds then."""
    known = {_key(debt) for debt in _of(connection, {debt.table_id for debt in debts})}
    rows = [_values(debt) for debt in debts if _key(debt) not in known]
    if rows:
        connection.execute(sa.insert(_d), rows)


def all_debts(connection: sa.Connection) -> tuple[TabletDebt, ...]:
    """Those of older tables first; what is to be dropped before what is to be made."""
    order = sa.select(_d).order_by(_d.c.table_id, _d.c.kind != "drop", _d.c.part).limit(_AT_ONCE)
    return tuple(_debt(row) for row in connection.execute(order))


def of_table(connection: sa.Connection, table_id: int) -> tuple[TabletDebt, ...]:
    return _of(connection, {table_id})


def stands(connection: sa.Connection, debt: TabletDebt) -> bool:
    """Whether it is still owed, just as it was read."""
    row = connection.execute(sa.select(_d).where(_is(debt))).one_or_none()
    return row is not None and _debt(row) == debt


def pay(connection: sa.Connection, debt: TabletDebt) -> None:
    """Harmless when it is gone."""
    connection.execute(sa.delete(_d).where(_is(debt)))


def forgive(connection: sa.Connection, table_id: int, part: str | None = None) -> None:
    """Nobody has to make any more what is being dropped: of a partition, or of all of the table."""
    here = (_d.c.table_id == table_id) & (_d.c.kind != "drop")
    connection.execute(sa.delete(_d).where(here if part is None else here & (_d.c.part == part)))


def _of(connection: sa.Connection, table_ids: Collection[int]) -> tuple[TabletDebt, ...]:
    here = sa.select(_d).where(_d.c.table_id.in_(tuple(table_ids)))
    rows = connection.execute(here.order_by(_d.c.kind != "drop", _d.c.part))
    return tuple(_debt(row) for row in rows)


def _is(debt: TabletDebt) -> sa.ColumnElement[bool]:
    here = (_d.c.table_id == debt.table_id) & (_d.c.part == debt.part)
    return here & (_d.c.node == debt.node) & (_d.c.kind == debt.kind)


def _key(debt: TabletDebt) -> tuple[object, ...]:
    return debt.table_id, debt.part, debt.node, debt.kind


def _values(debt: TabletDebt) -> dict[str, object]:
    return {**msgspec.structs.asdict(debt), "buckets": msgspec.json.encode(debt.buckets).decode()}


def _debt(row: sa.Row[tuple[object, ...]]) -> TabletDebt:
    buckets = msgspec.json.decode(row.buckets, type=tuple[int, ...])
    return TabletDebt(row.table_id, row.db, row.tbl, row.part, row.node, row.kind, buckets)
