"""The checks of a publication's definition. Pure; every problem with the way to it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rtolap.base.errors import DefinitionError
from rtolap.model.cube import Cube, Cuboid, cuboids
from rtolap.model.problems import Problem, bound_problems
from rtolap.model.publication import POSTGRES_ADDRESS, IcebergCatalog, Publication
from rtolap.model.validation.names import name_problems

DAY_MS = 86_400_000
_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\.[A-Za-z_][A-Za-z0-9_]{0,127}")
_WAREHOUSE = re.compile(r"(file|s3)://[^\s@]+")


def publication_problems(publication: Publication) -> tuple[Problem, ...]:
    found = [*name_problems(publication.name, ("name",)), *name_problems(publication.cube, ("cube",))]
    if not _TABLE.fullmatch(publication.table):
        found.append(
            Problem(("table",), "not a table", expected="NAMESPACE.TABLE", found=repr(publication.table))
        )
    found += _catalog_problems(publication.catalog)
    batch, snapshots = publication.batch, publication.snapshots
    for key, value, least, most in (
        (("batch", "every_ms"), batch.every_ms, 100, DAY_MS),
        (("batch", "versions_max"), batch.versions_max, 1, 10_000),
        (("snapshots", "expire_after_ms"), snapshots.expire_after_ms, 0, 30 * DAY_MS),
        (("snapshots", "count_max"), snapshots.count_max, 1, 1_000),
    ):
        found += bound_problems(key, value, least, most)
    return tuple(found)


def published_cuboid(publication: Publication, cube: Cube) -> Cuboid:
    """Return the cuboid, as the cube orders it. Raises DefinitionError where the cube has none such."""
    there = cuboids(cube)
    if publication.cuboid is None:
        return there[0]
    for cuboid in there:
        if set(cuboid.dimensions) == set(publication.cuboid):
            return cuboid
    raise DefinitionError(
        f"publication {publication.name}: cube {cube.name} has no such cuboid",
        expected=f"the dimensions of one of {', '.join(each.name for each in there)}",
        found=", ".join(publication.cuboid) or "none",
        action="`rtolap describe CUBE` lists them",
    )


def _catalog_problems(catalog: IcebergCatalog) -> Iterable[Problem]:
    at, address = ("catalog", "address"), catalog.address
    if catalog.kind == "sqlite" and not address.startswith("/"):
        yield Problem(at, "not a file", expected="an absolute path", found=repr(address))
    if catalog.kind == "postgres":
        if not POSTGRES_ADDRESS.fullmatch(address):
            yield Problem(at, "not an address", expected="host:port/database", found=repr(address))
        if not catalog.user:
            yield Problem(("catalog", "user"), "a database needs a user")
    if catalog.kind == "rest" and (not address.startswith(("http://", "https://")) or "@" in address):
        yield Problem(at, "not an address", expected="http(s)://host:port/prefix")
    if catalog.kind != "rest" and not _WAREHOUSE.fullmatch(catalog.warehouse):
        yield Problem(
            ("catalog", "warehouse"),
            "not a folder",
            expected="file://… or s3://…, without a password",
            found=repr(catalog.warehouse),
        )
    if catalog.kind == "rest" and catalog.password_file is not None and not catalog.user:
        yield Problem(("catalog", "user"), "a client's secret needs the client's id")
    if catalog.token_file is not None and (catalog.kind != "rest" or catalog.password_file is not None):
        yield Problem(("catalog", "token_file"), "a token is for a REST server, instead of a client's secret")
    yield from _tls_problems(catalog)


def _tls_problems(catalog: IcebergCatalog) -> Iterable[Problem]:
    if (catalog.cert_file is None) != (catalog.key_file is None):
        missing = "cert_file" if catalog.cert_file is None else "key_file"
        yield Problem(("catalog", missing), "a client's certificate and its key belong together")
    if catalog.kind == "postgres" and catalog.tls == "verify_ca" and catalog.ca_file is None:
        yield Problem(("catalog", "ca_file"), "`verify_ca` needs the certificates that may sign")
    if catalog.kind == "postgres" and catalog.tls == "none":
        for field in ("ca_file", "cert_file"):
            if getattr(catalog, field) is not None:
                yield Problem(("catalog", field), "nothing is encrypted without TLS", expected="tls: verify")
    if catalog.kind == "rest" and catalog.tls != "verify":
        yield Problem(("catalog", "tls"), "a REST server's certificate is checked", expected="verify")
