"""Keys of HBase clusters, as peers have them: `host,host:2181:/hbase`, quorum, port and parent node."""

from __future__ import annotations

import msgspec

from rtolap.base.errors import DefinitionError

DEFAULT_PARENT = "/hbase"


class ClusterKey(msgspec.Struct, frozen=True):
    """`zookeeper`: host:port of each server of the ensemble, separated by commas."""

    zookeeper: str
    parent: str = DEFAULT_PARENT

    def __str__(self) -> str:
        return f"{self.zookeeper}:{self.parent}"

    @staticmethod
    def parse(text: str) -> ClusterKey:
        """Also without the port that stands for hosts that have none, and without a parent node.

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
    """The key by which HBase finds the cluster at `path`: `host,host:port:/path`.

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
