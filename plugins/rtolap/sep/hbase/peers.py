"""A peer as HBase has it: the cluster that it ships to, what it ships there, and whether it does.

The cluster stands in it by its key, `host,host:2181:/hbase`: quorum, port and parent node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from rtolap.base.errors import DefinitionError
from rtolap.sep.hbase import admin_pb2

DEFAULT_NAMESPACE = "default"
TableFamilies = dict[str, tuple[str, ...]]  # table → families, none: all of them
DEFAULT_PARENT = "/hbase"


class ClusterKey(msgspec.Struct, frozen=True):
    """The address of an HBase cluster.

    Attributes:
        zookeeper: host:port of each server of the ensemble, separated by commas.
    """

    zookeeper: str
    parent: str = DEFAULT_PARENT

    def __str__(self) -> str:
        return f"{self.zookeeper}:{self.parent}"

    @staticmethod
    def parse(text: str) -> ClusterKey:
        """Parse a key, also without the default port of hosts and without a parent node.

        Raises DefinitionError.
        """
        quorum, separator, parent = text.strip().partition(":/")
        path = f"/{parent}" if separator else DEFAULT_PARENT
        hosts, _, port = quorum.rpartition(":")
        servers = []
        for server in hosts.split(","):
            host, colon, own_port = server.strip().rpartition(":")
            servers.append((host, own_port) if colon else (own_port, port))
        wrong_port = any(not server_port.isdecimal() for _, server_port in (*servers, ("", port)))
        if wrong_port or not all(host for host, _ in servers):
            raise DefinitionError(
                "not the key of an HBase cluster", expected="host,host:2181:/hbase", found=repr(text)
            )
        return ClusterKey(",".join(f"{host}:{server_port}" for host, server_port in servers), path)


def cluster_key(zookeeper: str, path: str) -> str:
    """Return the key by which HBase finds the cluster at `path`: `host,host:port:/path`.

    `zookeeper`: host:port, separated by commas. Where ports differ, each host has its own and the first
    port stands for those without.
    """
    servers = [server.strip().rpartition(":") for server in zookeeper.split(",")]
    ports = [port for _, _, port in servers]
    if len(set(ports)) == 1:
        hosts = ",".join(host for host, _, _ in servers)
    else:
        hosts = ",".join(f"{host}:{port}" for host, _, port in servers)
    return f"{hosts}:{ports[0]}:{path}"


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """A replication peer of HBase.

    Attributes:
        cluster_key: quorum, port and parent node of the receiving cluster, as `host:2181:/path`.
        replicate_all: True ships everything but the exclusions; False ships `tables` and `namespaces` only.
        configuration: settings of the region servers that are overridden for this peer.
    """

    id: str
    cluster_key: str
    enabled: bool = True
    replicate_all: bool = False
    tables: TableFamilies = {}
    namespaces: tuple[str, ...] = ()
    exclude_tables: TableFamilies = {}
    exclude_namespaces: tuple[str, ...] = ()
    serial: bool = False
    configuration: dict[str, str] = {}

    def to_message(self) -> admin_pb2.ReplicationPeer:
        return admin_pb2.ReplicationPeer(
            clusterkey=self.cluster_key,
            configuration=[
                admin_pb2.NameStringPair(name=name, value=value)
                for name, value in sorted(self.configuration.items())
            ],
            table_cfs=_table_families(self.tables),
            namespaces=[name.encode() for name in sorted(self.namespaces)],
            bandwidth=0,
            replicate_all=self.replicate_all,  # said explicitly: what is unset means all
            exclude_table_cfs=_table_families(self.exclude_tables),
            exclude_namespaces=[name.encode() for name in sorted(self.exclude_namespaces)],
            serial=self.serial,
        )

    @staticmethod
    def of(described: admin_pb2.ReplicationPeerDescription) -> Peer:
        config = described.config
        return Peer(
            id=described.id,
            cluster_key=config.clusterkey,
            enabled=described.state.state == admin_pb2.ReplicationState.ENABLED,
            # of a peer that an old HBase has made, nothing is said, and only its tables or namespaces count
            replicate_all=config.replicate_all
            if config.HasField("replicate_all")
            else not (config.table_cfs or config.namespaces),
            tables=_families_by_table(config.table_cfs),
            namespaces=_names(config.namespaces),
            exclude_tables=_families_by_table(config.exclude_table_cfs),
            exclude_namespaces=_names(config.exclude_namespaces),
            serial=config.serial,
            configuration={pair.name: pair.value for pair in config.configuration},
        )


def table_name(text: str) -> admin_pb2.TableName:
    """Parse `namespace:table`, or `table` in the default namespace."""
    namespace, separator, qualifier = text.rpartition(":")
    return admin_pb2.TableName(
        namespace=(namespace if separator else DEFAULT_NAMESPACE).encode(), qualifier=qualifier.encode()
    )


def table_text(name: admin_pb2.TableName) -> str:
    namespace, qualifier = name.namespace.decode(), name.qualifier.decode()
    return qualifier if namespace == DEFAULT_NAMESPACE else f"{namespace}:{qualifier}"


def _table_families(tables: Mapping[str, Iterable[str]]) -> list[admin_pb2.TableCF]:
    return [
        admin_pb2.TableCF(
            table_name=table_name(table), families=[family.encode() for family in sorted(families)]
        )
        for table, families in sorted(tables.items())
    ]


def _families_by_table(tables: Iterable[admin_pb2.TableCF]) -> TableFamilies:
    return {table_text(entry.table_name): _names(entry.families) for entry in tables}


def _names(names: Iterable[bytes]) -> tuple[str, ...]:
    return tuple(sorted(name.decode() for name in names))
