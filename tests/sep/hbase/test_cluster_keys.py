"""Keys of clusters, as peers and people write them."""

from __future__ import annotations

import pytest
from rtolap.base.errors import DefinitionError
from rtolap.sep.hbase.peers import ClusterKey, cluster_key


@pytest.mark.parametrize(
    ("text", "zookeeper", "parent"),
    [
        ("h1:2181:/hbase", "h1:2181", "/hbase"),
        ("h1,h2,h3:2182:/rtolap/sep/orders", "h1:2182,h2:2182,h3:2182", "/rtolap/sep/orders"),
        ("h1:2183,h2:2181:/x", "h1:2183,h2:2181", "/x"),
        ("h1:2183,h2:2184:2181:/x", "h1:2183,h2:2184", "/x"),
        ("127.0.0.1:2181", "127.0.0.1:2181", "/hbase"),
    ],
)
def test_a_key_names_every_server_with_its_port(text: str, zookeeper: str, parent: str) -> None:
    key = ClusterKey.parse(text)
    assert (key.zookeeper, key.parent) == (zookeeper, parent)
    assert ClusterKey.parse(str(key)) == key


@pytest.mark.parametrize("text", ["", "h1", "h1:/hbase", "h1:x:/hbase", ":2181:/hbase", "h1,:2181:/x"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError, match="host,host:2181:/hbase"):
        ClusterKey.parse(text)


@pytest.mark.parametrize(
    ("zookeeper", "key"),
    [
        ("h1:2181", "h1:2181:/p"),
        ("h1:2181,h2:2181", "h1,h2:2181:/p"),
        ("h1:2181, h2:2182", "h1:2181,h2:2182:2181:/p"),
    ],
)
def test_the_cluster_key_names_every_server(zookeeper: str, key: str) -> None:
    assert cluster_key(zookeeper, "/p") == key
