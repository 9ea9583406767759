"""The major version of what services of a cluster write for each other: messages and records.

Within a major version each service reads what the others write (docs/operations/upgrades.md). The first
coordinator notes it; a program of an older one is refused by name, before it reads anything.
"""

from __future__ import annotations

import msgspec

from rtolap.base.errors import SchemaTooNew
from rtolap.metadata import codec, paths
from rtolap.metadata.store import Create, MetadataStore
from rtolap.metadata.updates import read, retrying

MAJOR = 1


class ClusterFormat(msgspec.Struct, frozen=True):
    """Attributes:
    major: what a program has to read to work in this cluster.
    """

    major: int


def check_format(store: MetadataStore) -> None:
    """Raise SchemaTooNew where the cluster is of a later major version than this program."""
    found = read(store, paths.CLUSTER_FORMAT, ClusterFormat)
    if found is not None and found.major > MAJOR:
        raise SchemaTooNew(
            "the cluster's messages and records are of a later major version than this program",
            expected=f"at most {MAJOR}",
            found=found.major,
            action="run the version of rtolap that the other services run",
        )


def note_format(store: MetadataStore) -> None:
    """Write the major version where none is noted yet."""

    def attempt() -> None:
        if store.get(paths.CLUSTER_FORMAT) is None:
            store.commit([Create(paths.CLUSTER_FORMAT, codec.encode(ClusterFormat(MAJOR)))])

    retrying(attempt)
