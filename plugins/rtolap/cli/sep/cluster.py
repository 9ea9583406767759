"""The HBase cluster that a command is about."""

from __future__ import annotations

from typing import Annotated

import typer

from rtolap.base.settings import Settings
from rtolap.model.subscription import HBaseSource
from rtolap.sep.hbase.peers import ClusterKey

ClusterOption = Annotated[
    str,
    typer.Option(
        "--cluster",
        help="ZooKeeper of HBase and its parent node, host:port,…/hbase. Default: RTOLAP_HBASE.",
        show_default=False,
    ),
]


def source_of(cluster: str) -> HBaseSource:
    """Parse `host:port,host:port/hbase`; the parent node may be left out."""
    return HBaseSource.parse(cluster or Settings().hbase)


def key_of(cluster: str) -> ClusterKey:
    """Return the key of the cluster that `source_of` finds."""
    source = source_of(cluster)
    return ClusterKey(source.zookeeper, source.parent)
