"""A publication: the history of a cuboid as an Iceberg table, for all engines that read those."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

CatalogKind = Literal["sqlite", "postgres", "rest"]

# host:port/database; an IPv6 host in brackets
POSTGRES_ADDRESS = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}/[A-Za-z0-9_-]+")


class IcebergCatalog(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True
):
    """The catalog that holds the table.

    Attributes:
        kind: `sqlite` is a file on the publisher's host, `postgres` a database, `rest` a server.
        address: the file's absolute path; host:port/database; or http(s)://host/prefix.
        name: of the catalog, where several share a database. Readers have to give the same.
        warehouse: URI of the folder of tables' metadata, as RTOLAP_OBJECT_STORE; of a REST server its own
            name for a warehouse. Data files stay in the object store of history.
        user: of the database; of a REST server the OAuth2 client id.
        password_file: the file that holds the database's password, or the client's secret.
        token_file: the file that holds a bearer token, for a REST server without OAuth2.
        ca_file: certificates by which a REST server's or a database's own certificate is checked.
        cert_file: a client's certificate, for a database or a REST server that asks for one.
        key_file: the private key of `cert_file`.
        tls: `verify` encrypts connections to a database and checks its certificate and its host's name;
            `verify_ca` checks only who has signed the certificate, for addresses that are not in it.
    """

    kind: CatalogKind
    address: str
    name: str = "rtolap"
    warehouse: str = ""
    user: str | None = None
    password_file: str | None = None
    token_file: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    tls: Literal["verify", "verify_ca", "none"] = "verify"


class PublicationBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The promotions that make one snapshot.

    Attributes:
        every_ms: interval of the looks at the cube; a look commits at least one snapshot if there is news.
        versions_max: versions that one snapshot adds at most.
    """

    every_ms: int = 60_000
    versions_max: int = 500


class PublicationSnapshots(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The retention of snapshots.

    Attributes:
        expire_after_ms: age at which a snapshot expires once another has taken its place. Statements of
            readers may run for this long; files that were replaced stay for as long.
        count_max: snapshots that the table has at most; older ones expire before their time.
    """

    expire_after_ms: int = 3_600_000
    count_max: int = 100


class Publication(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """The READY versions of a cube's cuboid, committed to an Iceberg table.

    Attributes:
        cuboid: the dimensions of the cuboid; None is the base cuboid.
        table: NAMESPACE.TABLE in the catalog.
    """

    name: str
    cube: str
    table: str
    catalog: IcebergCatalog
    cuboid: tuple[str, ...] | None = None
    batch: PublicationBatch = PublicationBatch()
    snapshots: PublicationSnapshots = PublicationSnapshots()

    @property
    def identifier(self) -> tuple[str, str]:
        """Return the namespace and the name of the table."""
        namespace, _, table = self.table.rpartition(".")
        return namespace, table
