"""Close and sign the nodes of a cluster that was made when anybody could write them.

It trusts what stands there, so it is a command of an operator and nothing that a service does by itself.
"""

from __future__ import annotations

from typing import NamedTuple

from rtolap.metadata.signed import Signer
from rtolap.metadata.store import SIGNATURE_MARK, Put
from rtolap.metadata.zookeeper import ZooKeeperStore


class UnprotectedNode(NamedTuple):
    """A node that is not protected.

    Attributes:
        open: anybody may change it.
        unsigned: it holds a record without the cluster's signature.
    """

    path: str
    open: bool
    unsigned: bool


def protect_cluster(store: ZooKeeperStore, token: str, *, apply: bool) -> list[UnprotectedNode]:
    """Return the nodes that lack something, parents first; with `apply` they do so no more.

    A node is closed before its record is signed, so that nobody changes it in between. A crash leaves the
    rest for another call. Raises CommitConflict where a service is still writing.
    """
    signer = Signer(token)
    found = []
    waiting = [""]
    while waiting:
        path = waiting.pop()
        node = store.get(path)
        if node is None:
            continue
        waiting += [f"{path}/{name}" for name in reversed(store.children(path))]
        lacks = UnprotectedNode(path, store.is_open(path), signer.open_record(path, node) is None)
        if not lacks.open and not lacks.unsigned:
            continue
        found.append(lacks)
        if not apply:
            continue
        if lacks.open:
            store.close_to_others(path)
            node = store.get(path) or node
        if lacks.unsigned:
            record = node.data.rpartition(SIGNATURE_MARK)[0] if SIGNATURE_MARK in node.data else node.data
            store.commit([Put(path, signer.record(path, node.version + 1, record), node.version)])
    return found
