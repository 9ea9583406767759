"""What every catalog has to keep, and what goes wrong with those on servers: errors by name, nothing lost."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rtolap.base.errors import (
    CommitConflict,
    DefinitionError,
    NotFound,
    Refused,
    RtolapError,
    Unauthorized,
    Unavailable,
)
from rtolap.model.publication import IcebergCatalog, PublicationSnapshots
from rtolap.publish.catalog import close_catalog, open_catalog
from rtolap.publish.removal import drop_publication, drop_table
from rtolap.publish.verify import verify_publication

from tests.support.publish.iceberg_rest import RestCatalogServer
from tests.support.publish.postgres import PASSWORD, PostgresServer
from tests.support.publish.published import NAME, PublishedCube

pytestmark = pytest.mark.integration


@pytest.fixture
def cube(tmp_path: Path) -> Iterator[PublishedCube]:
    made = PublishedCube(tmp_path)
    yield made
    made.close()


def test_readers_find_the_sums_of_the_events(cube: PublishedCube, catalog: IcebergCatalog) -> None:
    publication = cube.declared(catalog=catalog, cuboid=("shop",), snapshots=PublicationSnapshots(0))
    publisher = cube.publisher(publication)
    for number in (0, 1, 0, 2, 1):
        cube.promote(number)
        assert publisher.look().snapshots == 1
    cube.assert_published(publication)
    assert verify_publication(cube.metadata, cube.files, publication).sound


def test_the_second_of_two_commits_is_refused(cube: PublishedCube, catalog: IcebergCatalog) -> None:
    publication = cube.declared(catalog=catalog)
    cube.promote(0)
    cube.publisher(publication).look()
    cube.promote(1)

    def overtaken(step: str) -> None:
        if step == "verified":
            cube.purge(0)
            assert cube.publisher(publication).look().committed == 1

    with pytest.raises(CommitConflict):
        cube.publisher(publication, reached=overtaken).look()
    cube.assert_published(publication)


def test_a_dropped_publication_leaves_no_table_and_all_data(
    cube: PublishedCube, catalog: IcebergCatalog
) -> None:
    publication = cube.declared(catalog=catalog)
    cube.promote(0)
    cube.publisher(publication).look()
    data = cube.files.list("history")
    drop_publication(cube.records, NAME, keep_table=False)
    assert not cube.catalog(publication).table_exists(publication.identifier)
    assert cube.files.list("history") == data
    assert cube.records.declarations() == {}
    assert not drop_table(publication), "there is none any more"


def test_a_table_that_is_reset_is_made_anew(cube: PublishedCube, catalog: IcebergCatalog) -> None:
    publication = cube.declared(catalog=catalog)
    cube.promote(0)
    publisher = cube.publisher(publication)
    publisher.look()
    with cube.table(publication).update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("weight__sum")
    with pytest.raises(Refused, match="publish reset"):
        publisher.look()
    assert drop_table(publication)
    publisher.look()
    cube.assert_published(publication)


# -- what goes wrong -------------------------------------------------------------------------------------


def error_of(call: Callable[[], Any]) -> RtolapError:
    """Return what it raises, which holds no secret."""
    with pytest.raises(RtolapError) as raised:
        call()
    assert PASSWORD not in str(raised.value)
    assert "s3cret" not in str(raised.value)
    return raised.value


def test_wrong_credentials_are_named_and_never_shown(
    cube: PublishedCube,
    postgres_catalog: IcebergCatalog,
    rest_server_catalog: IcebergCatalog,
    tmp_path: Path,
) -> None:
    wrong = tmp_path / "wrong"
    wrong.touch(mode=0o600)
    wrong.write_text("s3cret that is wrong")
    for catalog in (postgres_catalog, rest_server_catalog):
        declared = msgspec.structs.replace(catalog, password_file=str(wrong))
        error = error_of(lambda declared=declared: open_catalog(declared))
        assert isinstance(error, Unauthorized), error
        assert "refuses the credentials" in str(error)


def test_a_secret_that_others_may_read_is_not_used(rest_server_catalog: IcebergCatalog) -> None:
    assert rest_server_catalog.password_file is not None
    Path(rest_server_catalog.password_file).chmod(0o644)
    error = error_of(lambda: open_catalog(rest_server_catalog))
    assert isinstance(error, DefinitionError)
    assert "chmod go-rwx" in str(error)


def test_a_server_that_is_away_is_unavailable_and_nothing_is_lost(
    cube: PublishedCube, postgres_catalog: IcebergCatalog, postgres: PostgresServer
) -> None:
    publication = cube.declared(catalog=postgres_catalog)
    publisher = cube.publisher(publication)
    cube.promote(0)
    publisher.look()
    cube.promote(0)
    cube.promote(1)
    postgres.kill()
    try:
        assert isinstance(error_of(publisher.look), Unavailable)
        assert isinstance(error_of(lambda: open_catalog(postgres_catalog)), Unavailable)
    finally:
        postgres.start()
    assert publisher.look().committed == 1
    cube.assert_published(publication)


def test_a_rest_server_that_is_away_or_loses_answers_makes_no_file_twice(
    cube: PublishedCube, rest_server_catalog: IcebergCatalog, rest: RestCatalogServer
) -> None:
    publication = cube.declared(catalog=rest_server_catalog, snapshots=PublicationSnapshots(0))
    publisher = cube.publisher(publication)
    cube.promote(0)
    publisher.look()
    cube.promote(1)
    rest.down = True
    assert isinstance(error_of(publisher.look), Unavailable)
    rest.down = False
    rest.lost_answers, before = 1, rest.commits
    assert error_of(publisher.look).code in ("commit_unknown", "unavailable")
    assert rest.commits > before, "it was done, and nobody was told"
    successor = cube.publisher(publication)
    successor.look()
    cube.assert_published(publication)


def test_a_rest_server_that_never_answers_is_given_up(
    rest_server_catalog: IcebergCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rtolap.publish.catalog.TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        declared = msgspec.structs.replace(rest_server_catalog, address=address)
        assert isinstance(error_of(lambda: open_catalog(declared)), Unavailable)


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    path.write_bytes(b"not a database at all" * 100)
    declared = IcebergCatalog(kind="sqlite", address=str(path), warehouse="file:///nowhere")
    error = error_of(lambda: open_catalog(declared))
    assert isinstance(error, DefinitionError)
    assert "no catalog that can be used" in str(error)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    address = str(tmp_path / "nowhere" / "catalog.db")
    declared = IcebergCatalog(kind="sqlite", address=address, warehouse="file:///nowhere")
    assert isinstance(error_of(lambda: open_catalog(declared)), Unavailable)


def test_a_full_disk_is_named_and_the_next_look_goes_on(
    cube: PublishedCube, monkeypatch: pytest.MonkeyPatch
) -> None:
    publication = cube.declared()
    publisher = cube.publisher(publication)
    cube.promote(0)
    publisher.look()
    cube.promote(0)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr("pyiceberg.table.update.snapshot.write_manifest_list", full)
        error = error_of(publisher.look)
    assert isinstance(error, Unavailable)
    assert "no space for metadata" in str(error)
    publisher.look()
    cube.assert_published(publication)


def test_metadata_of_a_version_that_is_not_read_is_named(cube: PublishedCube) -> None:
    publication = cube.declared()
    cube.promote(0)
    cube.publisher(publication).look()
    location = cube.table(publication).metadata_location.removeprefix("file://")
    text = Path(location).read_text().replace('"format-version":2', '"format-version":9')
    Path(location).write_text(text)
    error = error_of(lambda: cube.publisher(publication).look())
    assert isinstance(error, Refused)
    assert "does not read" in str(error)


def test_a_table_that_is_not_there_is_not_found(cube: PublishedCube) -> None:
    publication = cube.declared()
    cube.promote(0)
    error = error_of(lambda: verify_publication(cube.metadata, cube.files, publication))
    assert isinstance(error, NotFound)


def test_a_catalog_that_is_closed_keeps_no_connection(
    postgres_catalog: IcebergCatalog, postgres: PostgresServer
) -> None:
    catalog = open_catalog(postgres_catalog)
    close_catalog(catalog)
    assert getattr(catalog, "engine").pool.checkedin() == 0  # noqa: B009 - only of SQL catalogs
