"""All records of one moment, out of a tree that goes on changing.

ZooKeeper has no read of many nodes at one transaction. The tree is read again and again until two passes
after each other have found the same nodes in the same versions, each with the same stamp of its children:
then all of them, and no others, stood at the moment between the two. Without the stamps, a record that moves
from place to place could be away from each place in both passes.

Records change when segments close, are built and purged, so a few passes suffice. Nodes that are written
every second are named here: they hold values that only grow, and are taken from the last pass.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rtolap.base.errors import NotYet
from rtolap.metadata.store import MetadataStore, Versioned

PASSES_MAX = 20
_SHOWN_MAX = 5  # of the nodes that change

# Watermarks that were published, and reports of how far somebody is: any of them goes with any record.
_GROWING = re.compile(
    r"/cubes/[^/]+/watermark|/applications/[^/]+/state|/publications/[^/]+/status|/fleet/[^/]+/mover"
)


class ClusterCopy(NamedTuple):
    """The records of one moment.

    Attributes:
        records: path → record, without signatures, ephemeral nodes and empty nodes.
        passes: how often the tree was read.
    """

    records: dict[str, bytes]
    passes: int


def copy_cluster(store: MetadataStore, *, passes_max: int = PASSES_MAX) -> ClusterCopy:
    """Return the records. Raises NotYet where they change all the time; Forged, Unavailable."""
    store.sync()
    before = _read_all(store)
    changing: list[str] = []
    for passes in range(2, passes_max + 1):
        after = _read_all(store)
        changing = _differing(before, after)
        if not changing:
            kept = {path: node.data for path, node in sorted(after.items()) if node.data}
            return ClusterCopy(
                {path: data for path, data in kept.items() if not after[path].ephemeral}, passes
            )
        before = after
    raise NotYet(
        f"the cluster's records have changed in each of {passes_max} passes",
        expected="two passes that find the same",
        found=", ".join(changing[:_SHOWN_MAX]),
        action="repeat it while fewer segments close and are built",
    )


def live_sessions(store: MetadataStore) -> list[str]:
    """Return the paths of the ephemeral nodes: whoever has made them runs."""
    return sorted(path for path, node in _read_all(store).items() if node.ephemeral)


def all_paths(store: MetadataStore) -> list[str]:
    """Return the paths of all nodes below the root, children before their parents."""
    return [path for path in _read_all(store) if path][::-1]


def _read_all(store: MetadataStore) -> dict[str, Versioned]:
    """Return every node by its path, the root too, parents before their children."""
    found: dict[str, Versioned] = {}
    waiting = [""]
    while waiting:
        path = waiting.pop()
        node = store.get(path)  # before its children: what comes or goes afterwards has another stamp
        if node is None:
            continue  # gone since its name was read: the next pass decides
        found[path] = node
        if not node.ephemeral:  # these have no children
            waiting += [f"{path}/{name}" for name in store.children(path)]
    return found


def _differing(before: dict[str, Versioned], after: dict[str, Versioned]) -> list[str]:
    return sorted(
        path
        for path in before.keys() | after.keys()
        if before.get(path) != after.get(path) and not _GROWING.fullmatch(path)
    )
