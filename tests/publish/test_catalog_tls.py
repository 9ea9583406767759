"""What a catalog's declaration says of TLS reaches libpq and the REST client, or is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from rtolap.base.errors import DefinitionError
from rtolap.model.publication import IcebergCatalog
from rtolap.publish import catalog
from rtolap.publish.catalog import open_catalog
from sqlalchemy import make_url

POSTGRES = IcebergCatalog(
    kind="postgres", address="db.example.org:5432/lake", user="publisher", warehouse="file:///lake"
)
REST = IcebergCatalog(kind="rest", address="https://catalog.example.org/v1")


class Opened:
    """Stands in for a catalog of the library, and keeps what it was opened with."""

    properties: dict[str, Any]

    def __init__(self, name: str, **properties: Any) -> None:
        Opened.properties = properties


@pytest.fixture(autouse=True)
def _no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "SqlCatalog", Opened)
    monkeypatch.setattr(catalog, "_BoundedRestCatalog", Opened)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """A certificate authority, a client's certificate, and its key."""
    for name in ("ca_file", "cert_file", "key_file"):
        (tmp_path / name).write_text("-----BEGIN …")
        (tmp_path / name).chmod(0o600)
    return {name: str(tmp_path / name) for name in ("ca_file", "cert_file", "key_file")}


def query_of(declared: IcebergCatalog) -> dict[str, Any]:
    open_catalog(declared)
    query = dict(make_url(Opened.properties["uri"]).query)
    assert query.pop("connect_timeout") == "10"
    return query


@pytest.mark.parametrize(
    ("tls", "ca", "expected"),
    [
        ("verify", False, {"sslmode": "verify-full", "sslrootcert": "system"}),
        ("verify", True, {"sslmode": "verify-full", "sslrootcert": "ca_file"}),
        ("verify_ca", True, {"sslmode": "verify-ca", "sslrootcert": "ca_file"}),
        ("none", False, {"sslmode": "disable"}),
    ],
)
def test_the_mode_and_the_authority_reach_libpq(
    files: dict[str, str], tls: str, ca: bool, expected: dict[str, str]
) -> None:
    declared = msgspec.structs.replace(POSTGRES, tls=tls, ca_file=files["ca_file"] if ca else None)
    assert query_of(declared) == {name: files.get(value, value) for name, value in expected.items()}


def test_a_clients_certificate_reaches_libpq_and_the_rest_client(files: dict[str, str]) -> None:
    query = query_of(msgspec.structs.replace(POSTGRES, **files))
    assert (query["sslcert"], query["sslkey"]) == (files["cert_file"], files["key_file"])
    open_catalog(msgspec.structs.replace(REST, **files))
    assert Opened.properties["ssl"] == {
        "cabundle": files["ca_file"],
        "client": {"cert": files["cert_file"], "key": files["key_file"]},
    }


@pytest.mark.parametrize("declared", [POSTGRES, REST])
@pytest.mark.parametrize("missing", ["ca_file", "cert_file", "key_file"])
def test_a_file_that_is_missing_is_refused_by_its_name(
    files: dict[str, str], declared: IcebergCatalog, missing: str
) -> None:
    Path(files[missing]).unlink()
    with pytest.raises(DefinitionError, match=rf"`catalog\.{missing}`.*{files[missing]}"):
        open_catalog(msgspec.structs.replace(declared, **files))


def test_a_key_that_others_may_read_is_refused_with_what_mends_it(files: dict[str, str]) -> None:
    Path(files["key_file"]).chmod(0o644)
    with pytest.raises(DefinitionError, match=f"chmod go-rwx {files['key_file']}"):
        open_catalog(msgspec.structs.replace(POSTGRES, **files))
