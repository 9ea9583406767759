"""Nodes of subscriptions in the source's ZooKeeper, outside of HBase's own.

/rtolap/sep/<name>/                 the root node of the cluster that HBase takes us for
/rtolap/sep/<name>/definition       the subscription as it was created, see `kept`
/rtolap/sep/<name>/hbaseid          the UUID of that cluster, as text
/rtolap/sep/<name>/rs/<server>      its region servers: our ports, ephemeral; nothing else may be in there
/rtolap/sep/<name>/delivery         how delivery stands, ephemeral, by the process that leads
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
