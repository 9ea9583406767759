"""On which nodes the replicas of a partition's buckets go. Pure.

Rendezvous hashing: every node has a weight for a bucket, the heaviest ones keep it. Buckets spread evenly,
and each of a bucket's replicas is on another node. Replicas do not move: where too few nodes are up, those
that are away for a while get some as well, and their tasks when they are back.
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b

from rtolap.base.errors import Unavailable
from rtolap.stored.metastore.records import Partition

REPLICATION = 3


def place(
    partition: Partition,
    bucket_count: int,
    nodes: Collection[str],
    replication: int = REPLICATION,
    away: Collection[str] = (),
) -> dict[int, tuple[str, ...]]:
    """bucket -> nodes: those that are up first, then those that are `away`; fewer than `replication` where
    there are no more. Raises Unavailable without one that is up."""
    if not nodes:
        raise Unavailable(
            f"no storage node can keep partition {partition}",
            expected="at least one that is up",
            action="start one with `rtolap storage`",
        )

    def heaviest(bucket: int) -> tuple[str, ...]:
        def weight(node: str) -> tuple[bool, bytes]:
            return node in nodes, blake2b(f"{partition}/{bucket}@{node}".encode(), digest_size=8).digest()

        return tuple(sorted(sorted({*nodes, *away}, key=weight, reverse=True)[:replication]))

    return {bucket: heaviest(bucket) for bucket in range(bucket_count)}


def buckets_by_node(placed: dict[int, tuple[str, ...]]) -> dict[str, tuple[int, ...]]:
    """node -> the buckets that it keeps, ascending."""
    by_node: dict[str, list[int]] = {}
    for bucket, nodes in sorted(placed.items()):
        for node in nodes:
            by_node.setdefault(node, []).append(bucket)
    return {node: tuple(buckets) for node, buckets in by_node.items()}
