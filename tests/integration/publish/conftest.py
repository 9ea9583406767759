"""Catalogs on servers: PostgreSQL, and REST over HTTP."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from rtolap.model.publication import IcebergCatalog

from tests.support.publish.iceberg_rest import CLIENT, SECRET, RestCatalogServer, rest_catalog
from tests.support.publish.postgres import PASSWORD, USER, PostgresServer, find_postgres, postgres_server


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    programs = find_postgres()
    if programs is None:
        pytest.skip("PostgreSQL is not installed here: apt-get install postgresql")
    with tempfile.TemporaryDirectory(prefix="rtolap-pg-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        with postgres_server(Path(folder) / "pg", programs) as server:
            yield server


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[RestCatalogServer]:
    with rest_catalog(tmp_path / "rest") as server:
        yield server


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.touch(mode=0o600)
    return path


@pytest.fixture
def postgres_catalog(postgres: PostgresServer, tmp_path: Path, secret_file: Path) -> IcebergCatalog:
    secret_file.write_text(f"{PASSWORD}\n")
    return IcebergCatalog(
        kind="postgres",
        address=postgres.address,
        name=f"c{uuid.uuid4().hex[:8]}",
        warehouse=(tmp_path / "warehouse").as_uri(),
        user=USER,
        password_file=str(secret_file),
        tls="none",
    )


@pytest.fixture
def rest_server_catalog(rest: RestCatalogServer, secret_file: Path) -> IcebergCatalog:
    secret_file.write_text(SECRET)
    return IcebergCatalog(kind="rest", address=rest.url, user=CLIENT, password_file=str(secret_file))


@pytest.fixture(params=["sqlite", "postgres", "rest"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> IcebergCatalog:
    """Each kind of catalog. REST is a server of these tests, since none can be had; see its module."""
    if request.param == "sqlite":
        address, warehouse = str(tmp_path / "catalog.db"), (tmp_path / "warehouse").as_uri()
        return IcebergCatalog(kind="sqlite", address=address, warehouse=warehouse)
    name = "postgres_catalog" if request.param == "postgres" else "rest_server_catalog"
    found: IcebergCatalog = request.getfixturevalue(name)
    return found
