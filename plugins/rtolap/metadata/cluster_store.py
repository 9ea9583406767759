"""Open the metadata of a cluster in ZooKeeper: its nodes are closed to others, its records are signed.

The cluster has a major version: of messages, and of records. Within it each service reads what the others
write (docs/operations/upgrades.md). The first coordinator notes it; an older program is refused by name,
before it reads anything.
"""

from __future__ import annotations

import msgspec

from rtolap.base.cluster_secret import ZOOKEEPER, derived_key
from rtolap.base.errors import Refused, RtolapError, SchemaTooNew
from rtolap.base.files import read_password
from rtolap.base.metrics import Metrics
from rtolap.base.settings import Settings
from rtolap.metadata import codec, paths
from rtolap.metadata.signed import SignedStore
from rtolap.metadata.store import MetadataStore
from rtolap.metadata.updates import create_missing, read
from rtolap.metadata.zookeeper import ZooKeeperStore
from rtolap.metadata.zookeeper_session import Credentials

ZOOKEEPER_USER = "rtolap"
MAJOR = 1  # of messages and records


def zookeeper_credentials(settings: Settings) -> Credentials:
    """Return the name and the password that the cluster's nodes are closed with.

    The password is in the file that is declared, or is derived from the cluster's token, which it does not
    give away. Raises DefinitionError.
    """
    file = settings.zookeeper_password_file
    if file is not None:
        return Credentials(ZOOKEEPER_USER, read_password(file, f"ZooKeeper's user {ZOOKEEPER_USER}"))
    return Credentials(ZOOKEEPER_USER, derived_key(settings.token(), ZOOKEEPER).hex())


def open_zookeeper(settings: Settings) -> ZooKeeperStore:
    """Return a store without signatures. Raises Unavailable where ZooKeeper does not answer,
    DefinitionError."""
    return ZooKeeperStore(
        settings.zookeeper,
        root=settings.zookeeper_root,
        session_timeout_s=settings.session_timeout_s,
        credentials=zookeeper_credentials(settings),
    )


def open_cluster_store(settings: Settings, *, restores: bool = False) -> SignedStore:
    """Return the store of the cluster that the settings name. Raises as `open_zookeeper`, SchemaTooNew,
    and Refused while a restore of the metadata has not ended. `restores`: for the restore itself."""
    store = open_zookeeper(settings)
    try:
        if not restores:
            _refuse_half_restored(store)
        store.warn_of_open_nodes()
        signed = SignedStore(store, settings.token())
        check_format(signed)
        return signed
    except RtolapError:
        store.close()
        raise


def _refuse_half_restored(store: MetadataStore) -> None:
    if store.get(paths.RESTORING) is not None:
        raise Refused(
            "the cluster's metadata is being restored, or a restore of it was cut short",
            expected=f"no node {paths.RESTORING}",
            action="let `rtolap restore` end, or repeat it with --overwrite",
        )


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
    create_missing(store, paths.CLUSTER_FORMAT, codec.encode(ClusterFormat(MAJOR)))


def show_refused(metrics: Metrics, store: MetadataStore) -> None:
    """Add to a service's metrics how many records were refused. Stores without signatures refuse none."""
    if not isinstance(store, SignedStore):
        return

    metrics.sampled(lambda: [metrics.value("metadata_records_refused", store.refused_records)])
