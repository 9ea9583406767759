"""History and metadata in S3: credentials come from where the AWS SDKs look, and are in no metadata."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rtolap.model.publication import IcebergCatalog, PublicationSnapshots
from rtolap.publish.verify import verify_publication
from rtolap.stack.artifacts import JavaArtifacts
from rtolap.stack.ports import free_port

from tests.support.cubes.object_servers import S3Keys, new_keys, s3_spec, s3_uri
from tests.support.publish.published import PublishedCube
from tests.support.servers import running

pytestmark = pytest.mark.integration


@pytest.fixture
def keys() -> S3Keys:
    return new_keys()


@pytest.fixture
def port(java: JavaArtifacts, tmp_path: Path, keys: S3Keys, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(keys.profile(tmp_path / "aws")))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    number = free_port()
    with running(s3_spec(tmp_path / "s3", number, keys)):
        yield number


def test_a_table_of_files_in_s3_is_published_read_and_tidied(tmp_path: Path, port: int, keys: S3Keys) -> None:
    cube = PublishedCube(tmp_path, uri=s3_uri(port, "store"))
    try:
        publication = cube.declared(
            cuboid=("shop",),
            snapshots=PublicationSnapshots(expire_after_ms=0),
            catalog=IcebergCatalog(
                kind="sqlite", address=str(tmp_path / "catalog.db"), warehouse=s3_uri(port, "lake")
            ),
        )
        publisher = cube.publisher(publication)
        for number in (0, 1, 0):
            cube.promote(number)
            publisher.look()
        cube.assert_published(publication)
        assert verify_publication(cube.metadata, cube.files, publication).sound
        stored = [path for path in (tmp_path / "s3" / "objects").rglob("*") if path.is_file()]
        metadata = [path for path in stored if "lake" in path.parts]
        assert 0 < len(metadata) <= 15
        for path in metadata:
            content = path.read_bytes()
            assert keys.secret.encode() not in content
            assert keys.access.encode() not in content
    finally:
        cube.close()
