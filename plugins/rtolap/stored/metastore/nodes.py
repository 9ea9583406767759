"""Storage nodes: where each answers, until when it is believed to. Statements, each within a read or a write.

A name belongs to the data folder that took it first (`node_id`). Its process may come back at another address
at once; another folder gets the name only when the lease has run out.
"""

from __future__ import annotations

import sqlalchemy as sa
from msgspec.structs import asdict

from rtolap.base.errors import Refused
from rtolap.stored.metastore.records import StorageNode
from rtolap.stored.metastore.schema import checked_name, values
from rtolap.stored.metastore.schema import storage_node as _n


def refresh(connection: sa.Connection, node: StorageNode, now_ms: int) -> None:
    """Note a heartbeat. Raises Refused while the name is another folder's."""
    named = (("node", node.name), ("node id", node.node_id), ("address", node.address))
    for field, name in (*named, *((("body URL", node.body_url),) if node.body_url else ())):
        checked_name(field, name)
    known = connection.execute(sa.select(_n).where(_n.c.name == node.name).with_for_update()).one_or_none()
    if known is None:
        connection.execute(sa.insert(_n).values(**_values(node)))
        return
    if known.node_id != node.node_id and known.lease_until_ms > now_ms:
        raise Refused(
            f"the name {node.name} is taken by another storage node",
            expected=f"data folder {known.node_id}, at {known.address}",
            found=f"data folder {node.node_id}",
            action="give one of them another name",
        )
    connection.execute(sa.update(_n).where(_n.c.name == node.name).values(**_values(node)))


def all_nodes(connection: sa.Connection) -> tuple[StorageNode, ...]:
    """Return them by name; those whose lease has run out among them."""
    return tuple(_record(row) for row in connection.execute(sa.select(_n).order_by(_n.c.name)).mappings())


def set_draining(connection: sa.Connection, name: str, draining: bool) -> bool:
    """Note whether a node is to be emptied. Return False for a node that never sent a heartbeat."""
    here = sa.update(_n).where(_n.c.name == name)
    return connection.execute(here.values(draining=int(draining))).rowcount == 1


def alive(connection: sa.Connection, now_ms: int) -> tuple[StorageNode, ...]:
    """Return, by name, the nodes that have sent a heartbeat within their lease."""
    return tuple(node for node in all_nodes(connection) if node.lease_until_ms > now_ms)


def _values(node: StorageNode) -> dict[str, object]:
    """Return what a heartbeat says: whether the node is drained, others do."""
    return {name: value for name, value in asdict(node).items() if name != "draining"}


def _record(row: sa.RowMapping) -> StorageNode:
    kept = {"body_url": row["body_url"] or "", "draining": bool(row["draining"])}
    return StorageNode(**{**values(row), **kept})
