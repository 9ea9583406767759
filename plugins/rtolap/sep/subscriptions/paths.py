"""Nodes of subscriptions in the source's ZooKeeper, outside of HBase's own.

/rtolap/sep/<name>/                 the root node of the cluster that HBase takes us for
/rtolap/sep/<name>/definition       the subscription as it was created, see `kept`
/rtolap/sep/<name>/hbaseid          the UUID of that cluster, as text
/rtolap/sep/<name>/rs/<server>      its region servers: our ports, ephemeral; nothing else may be in there
/rtolap/sep/<name>/delivery        how delivery stands, ephemeral, by the process that leads
/rtolap/sep/<name>/leader/          candidates: the one process that has ports
"""

from __future__ import annotations

import msgspec

ROOT = "/rtolap/sep"


class SubscriptionPaths(msgspec.Struct, frozen=True):
    name: str

    @property
    def root(self) -> str:
        return f"{ROOT}/{self.name}"

    @property
    def definition(self) -> str:
        return f"{self.root}/definition"

    @property
    def hbaseid(self) -> str:
        return f"{self.root}/hbaseid"

    @property
    def rs(self) -> str:
        return f"{self.root}/rs"

    @property
    def delivery(self) -> str:
        return f"{self.root}/delivery"

    @property
    def leader(self) -> str:
        return f"{self.root}/leader"


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
